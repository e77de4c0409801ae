"""The page of a watching service in a real headless Chromium: watched, on a phone, with zones, and by keys alone."""

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from lstr.pipelines.pages.server import Server
from lstr.pipelines.watching.service import Service
from lstr.pipelines.watching.site import WatchSite
from tests.pipelines.watching import test_clips
from tests.support.browser import wait_for
from tests.support.videos import write_video
from tests.support.watching import HOSTILE, Camera, event_of

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("idle")]

HOSTILE_CLASSES = ("Background", "fall", HOSTILE, '"><script>alert(2)</script>', "</script>{{data}}", "\u202e\u2028")
TOP = (((0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5)),)
VEIL = "document.querySelector('.source .veil')"
INK = """(() => {
  const canvas = document.querySelector(".source .lane canvas"), { width, height } = canvas ?? {};
  if (!width) return 0;
  const pen = new OffscreenCanvas(width, height).getContext("2d");
  pen.drawImage(canvas, 0, 0);
  return pen.getImageData(0, 0, width, height).data.filter((value, at) => at % 4 === 3 && value).length;
})()"""


@pytest.fixture
def watched(unanswered):
    """A service of `hall` and `door`: watched(zones of the hall). It decides on both four times a second."""

    @contextmanager
    def running(zones=()):
        ramp = np.broadcast_to(np.linspace(30, 220, 64, dtype=np.uint8)[None, :, None], (48, 64, 3))
        more = f'zones = {json.dumps(zones)}\n[sources.door]\naddress = "http://127.0.0.1:9/door"\n'
        with unanswered('[clips]\nbefore = "2s"\nafter = "1s"', more) as service:
            cameras = [Camera(service.dashboard, name, HOSTILE_CLASSES) for name in ("hall", "door")]

            def show() -> None:
                while not service.ended.wait(0.25):
                    for camera in cameras:
                        camera.show(0.1, 0.9, *[0.2] * 4, at=now(), frame=ramp + camera.chunk % 20)

            threading.Thread(target=show, daemon=True).start()
            yield service

    return running


def now() -> datetime:
    return datetime.now().astimezone()


def add_event(service: Service, source: str = "hall", ago: float = 3, **more):
    event = event_of(source, start=now() - timedelta(seconds=ago), decided=now(), seen=now(), **more)
    service.recorder.add(event, "new")
    return event


@pytest.fixture
def tab(chromium):
    """Open the page of a service: tab(service, width) -> page. Words on the console fail the test."""
    complaints, contexts = [], []

    def open_tab(service: Service, width: int = 1280, address: str = "", **settings):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        expected = ("ERR_", "status of 4")  # of a service that ends, and of what it refuses
        page.on("console", lambda said: any(text in said.text for text in expected) or complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: _is_own(request.url) or complaints.append(request.url))
        page.goto(address or service.server.address)
        wait_for(page, "document.querySelector('.source img')?.naturalWidth === 64")
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert not complaints


def _is_own(url: str) -> bool:
    return url.startswith(("data:", "blob:")) or urlsplit(url).hostname == "127.0.0.1"


def test_watch(tab, watched, tmp_path):
    """What is shown, events with their clips, filters, and what is wanted of the service; over a restart."""
    with watched() as service:
        service.dashboard.update_source("door", trouble=f"{HOSTILE}<script>alert(4)</script>")
        page = tab(service)
        assert page.locator(".source h2").all_inner_texts() == ["hall", "door"]
        wait_for(page, "document.querySelector('.source').querySelectorAll('.lane').length === 5")
        wait_for(page, "document.querySelector('.source .now output')?.textContent === '0.90'")
        before = page.evaluate(INK)
        wait_for(page, f"{INK} > {before}")
        shown = page.evaluate("document.querySelector('.source img').src")
        wait_for(page, f"document.querySelector('.source img').src !== {shown!r}")
        watch_an_event(page, service, tmp_path)
        filter_events(page, service)
        change_sources(page, service)
    page.locator("#broken:not([hidden])").wait_for()
    with watched() as service:
        wait_for(page, "$('broken').hidden && document.querySelectorAll('.source').length === 2")
        assert service.paused == ["hall"]
        page.get_by_role("button", name="Resume hall").wait_for()
    page.close()


def watch_an_event(page, service: Service, folder: Path) -> None:
    camera = test_clips.Camera(service.clips, test_clips.film(folder / "film.ts"), "hall").send(0, 9.5)
    event = camera.event(5.2, 6.0)
    service.recorder.add(event, "new")
    page.locator(".event.on").wait_for()
    page.get_by_role("button", name="Right: it happened").click()
    page.locator(".yes[aria-pressed=true]").wait_for()
    assert service.history.find(event.id).verdict == "right"
    service.recorder.add(camera.ended(event, 7.0), "end")
    page.locator(".event:not(.on)").wait_for()
    assert "hall" in page.locator("#announced").inner_text() and page.locator(".yes[aria-pressed=true]").count() == 1
    page.locator("button.thumb").click()  # of a clip that came after the end
    wait_for(page, "$('clip').videoWidth === 64 && $('clip').duration > 4.8")
    page.evaluate("$('clip').playbackRate = 8")
    wait_for(page, "$('clip').ended && $('clip').getVideoPlaybackQuality().totalVideoFrames > 10")
    page.keyboard.press("Escape")
    wait_for(page, "!$('player').open && !$('clip').hasAttribute('src')")
    other = event_of("door", start=now(), decided=now(), seen=now())
    path = service.clips.folder / f"{other.id}.mp4"
    write_video(path, range(0, 2000, 40), codec="mpeg4")  # like HEVC, which many cameras send: it cannot be played
    service.recorder.add(other, "new")
    service.history.attach(other.id, clip=path.name)
    service.dashboard.show_event(other, "update")
    wait_for(page, "document.querySelectorAll('button.thumb').length === 2")
    page.locator("button.thumb").first.click()
    page.locator("#no-clip").wait_for()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the clip").click()
    assert Path(saved.value.path()).read_bytes() == path.read_bytes()
    page.keyboard.press("Escape")
    path.unlink()
    page.locator("button.thumb").first.click()
    page.locator("#no-clip").wait_for()
    assert not page.get_by_role("link", name="Save the clip").is_visible()
    page.keyboard.press("Escape")


def filter_events(page, service: Service) -> None:
    """Sixty events of yesterday, of hostile names too, next to the one of now."""
    for k in range(60):
        source, action = "hall" if k % 2 else HOSTILE, HOSTILE if k % 3 == 0 else "wave"
        event = event_of(source, action, now() - timedelta(days=1, minutes=k), model=HOSTILE)
        service.history.begin(event, (), now())
        service.history.update(replace(event, end=event.seen), now())
    page.reload()
    wait_for(page, "document.querySelectorAll('.event').length === 50")
    page.click("#older")
    wait_for(page, "document.querySelectorAll('.event').length === 62 && $('older').hidden")
    page.select_option("#by-action", HOSTILE)
    wait_for(page, "document.querySelectorAll('.event').length === 20")
    page.select_option("#by-source", "hall")
    wait_for(page, "document.querySelectorAll('.event').length === 10")
    page.fill("#by-day", f"{now() + timedelta(days=2):%Y-%m-%d}")
    wait_for(page, "!document.querySelectorAll('.event').length && $('no-events').checkVisibility()")
    page.click("#show-all")
    wait_for(page, "document.querySelectorAll('.event').length >= 50")
    assert page.locator("main script, main img[onerror]").count() == 0


def change_sources(page, service: Service) -> None:
    page.locator(".menu summary").first.click()
    page.locator(".sheet select").first.select_option("fall")
    page.get_by_role("button", name="Snooze notifications").first.click()
    page.locator("#snoozes li").wait_for()
    assert [(one.source, one.action) for one in service.policy.snoozes()] == [("hall", "fall")]
    page.locator("#snoozes").get_by_role("button", name="End").click()
    wait_for(page, "!document.querySelector('#snoozes li')")
    assert service.policy.snoozes() == []
    page.click("#add summary")
    page.fill("#add-name", "../hall")
    page.fill("#add-address", "rtsp://garage/s")
    page.keyboard.press("Enter")
    wait_for(page, "$('add-told').textContent && $('add').open")
    page.fill("#add-name", "garage")
    page.keyboard.press("Enter")
    wait_for(page, "!$('add').open && document.querySelectorAll('.source').length === 3")
    assert service.sources["garage"].address == "rtsp://garage/s"
    page.locator(".menu summary").last.click()
    page.get_by_role("button", name="Remove this source").last.click()
    page.get_by_role("button", name="Press again").last.click()
    wait_for(page, "document.querySelectorAll('.source').length === 2")
    assert service.sources.keys() == {"hall", "door"}
    page.get_by_role("button", name="Pause hall").click()
    page.get_by_role("button", name="Resume hall").wait_for()


def test_watch_on_a_phone(tab, watched):
    """By touch, and behind a proxy: every request of the page, and the way in, begins with the path."""
    with watched() as service:
        event, paths = add_event(service), []
        site = WatchSite(service.dashboard, service, lambda: server.ending)
        with Server(Starlette(routes=[Mount("/home/cameras", site.app())]), port=0) as server:
            address = server.address.replace("/?", "/home/cameras/?")
            page = tab(service, 390, address, has_touch=True, is_mobile=True)
            page.on("request", lambda request: paths.append(urlsplit(request.url)))
            page.reload()
            page.locator(".event.on").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            page.get_by_role("button", name="Wrong: it did not").tap()
            page.locator(".no[aria-pressed=true]").wait_for()
            page.get_by_role("button", name="Pause door").tap()
            page.get_by_role("button", name="Resume door").wait_for()
            page.close()
        assert service.history.find(event.id).verdict == "wrong" and service.paused == ["door"]
    asked = [part.path for part in paths if part.scheme == "http"]
    assert len(asked) > 4 and all(path.startswith("/home/cameras/") for path in asked), asked


def edit(page) -> None:
    page.locator(".menu summary").first.click()
    page.get_by_role("button", name="Zones: where motion counts").first.click()
    wait_for(page, "$('zones').open")


def at(page, x: float, y: float) -> tuple[float, float]:
    box = page.locator("#stage").bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def is_near(zone, corners) -> bool:
    return len(zone) == len(corners) and np.abs(np.array(zone) - np.array(corners)).max() < 0.01


def test_zones(tab, watched):
    """Drawn, changed and deleted by the mouse, and kept over a restart."""
    corners = [(0.1, 0.2), (0.6, 0.2), (0.6, 0.9), (0.1, 0.9)]
    with watched() as service:
        page = tab(service)
        assert page.evaluate(f"{VEIL}.childElementCount") == 0
        edit(page)
        for corner in (*corners, corners[0]):
            page.mouse.click(*at(page, *corner))
        wait_for(page, "!edited.open && edited.zones.length === 1")
        page.mouse.move(*at(page, 0.6, 0.9))
        page.mouse.down()
        page.mouse.move(*at(page, 0.7, 0.8), steps=3)
        page.mouse.up()
        for corner in ((0.8, 0.1), (0.95, 0.1)):  # of another one, closed with its third by a double click
            page.mouse.click(*at(page, *corner))
        page.mouse.dblclick(*at(page, 0.9, 0.3))
        wait_for(page, "edited.zones.length === 2")
        assert service.zones["hall"] == (), "nothing before it is saved"
        page.click("#zones-save")
        wait_for(page, f"!$('zones').open && {VEIL}?.querySelectorAll('.zone').length === 2")
        first, second = service.zones["hall"]
        assert is_near(first, [*corners[:2], (0.7, 0.8), corners[3]])
        assert is_near(second, [(0.8, 0.1), (0.95, 0.1), (0.9, 0.3)])
        page.close()
    with watched() as service:
        page = tab(service)
        assert service.zones["hall"] == (first, second)
        wait_for(page, f"{VEIL}?.querySelectorAll('.zone').length === 2")
        edit(page)
        page.mouse.click(*at(page, 0.3, 0.5))  # in the first one
        page.click("#zone-delete")
        page.click("#zones-cancel")
        wait_for(page, "$('zones-told').textContent && $('zones').open")
        page.click("#zones-cancel")
        wait_for(page, "!$('zones').open")
        assert service.zones["hall"] == (first, second)
        edit(page)
        page.mouse.click(*at(page, 0.3, 0.5))
        page.click("#zone-delete")
        page.click("#zones-save")
        wait_for(page, f"{VEIL}?.querySelectorAll('.zone').length === 1")
        assert service.zones["hall"] == (second,)


def test_keyboard_alone(tab, watched):
    """Sources, events, verdicts and clips; and a zone that is drawn, kept, and given up for those of the file."""
    with watched(TOP) as service:
        page = tab(service)
        events = [add_event(service, ago=4), add_event(service, "door")]
        page.locator(".event").nth(1).wait_for()
        page.keyboard.press("2")
        assert page.evaluate("document.activeElement.source.name") == "door"
        for key in ("n", "n", "w"):
            page.keyboard.press(key)
        page.locator(".no[aria-pressed=true]").wait_for()
        assert [service.history.find(event.id).verdict for event in events] == ["wrong", ""]
        page.keyboard.press("w")
        wait_for(page, "!document.querySelector('.no[aria-pressed=true]')")
        assert service.history.find(events[0].id).verdict == ""
        page.locator(".menu summary").first.focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Zones: where motion counts").first.focus()
        page.keyboard.press("Enter")
        wait_for(page, "$('zones').open && $('zones-file').hidden")
        page.locator("#zone-rectangle").focus()
        page.keyboard.press("Enter")
        wait_for(page, "document.activeElement.dataset.corner === '1:0'")
        for key in ("ArrowLeft", "Shift+ArrowUp", "Tab", "ArrowRight", "ArrowRight", "Tab", "+", "Shift+ArrowDown"):
            page.keyboard.press(key)
        page.keyboard.press("Tab")
        page.keyboard.press("Delete")
        page.locator("#zones-save").focus()
        page.keyboard.press("Enter")
        wait_for(page, "!$('zones').open")
        drawn = ((0.24, 0.2), (0.77, 0.25), (0.75, 0.75), (0.5, 0.8))
        assert service.zones["hall"] == (*TOP, drawn)
        wait_for(page, f"{VEIL}?.querySelectorAll('.zone').length === 2")
        edit(page)
        page.locator("#zones-file").focus()
        page.keyboard.press("Enter")
        wait_for(page, f"!$('zones').open && {VEIL}?.querySelectorAll('.zone').length === 1")
        assert service.zones["hall"] == TOP
