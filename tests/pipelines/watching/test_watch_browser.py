"""The page of a watching service in headless Chromium: sources, events, a phone, zones, and the keyboard."""

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from lstr.pipelines.pages.server import Server
from lstr.pipelines.watching.service import Service
from lstr.pipelines.watching.site import WatchSite
from tests.pipelines.watching import test_clips
from tests.support.browser import UNAVAILABLE, ink, wait_for
from tests.support.served import free_port
from tests.support.videos import write_video
from tests.support.watching import HOSTILE, Camera, event_of, recent_event

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("idle")]

HOSTILE_CLASSES = ("Background", "fall", HOSTILE, '"><script>alert(2)</script>', "</script>{{data}}", "\u202e\u2028")
TOP = (((0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5)),)
VEIL = "document.querySelector('.source .veil')"
ZONES_BUTTON = "Zones: where motion counts"


@pytest.fixture
def start(start_service):
    """Start a service of `hall` and `door` that decides on both every 0.25 s: start(zones of the hall)."""
    tables = f'[page]\nport = {free_port()}\n[clips]\nbefore = "2s"\nafter = "1s"'

    @contextmanager
    def start_cameras(zones=()):
        ramp = np.broadcast_to(np.linspace(30, 220, 64, dtype=np.uint8)[None, :, None], (48, 64, 3))
        settings = f"zones = {json.dumps(zones)}\n"
        with start_service(tables, settings, hall=9, door=9) as service:
            cameras = [Camera(service.dashboard, name, HOSTILE_CLASSES) for name in ("hall", "door")]

            def show() -> None:
                while not service.ended.wait(0.25):
                    for camera in cameras:
                        camera.show(0.1, 0.9, *[0.2] * 4, at=now(), frame=ramp + camera.chunk % 20)

            threading.Thread(target=show, daemon=True).start()
            yield service

    return start_cameras


def now() -> datetime:
    return datetime.now().astimezone()


def add_event(service: Service, source: str = "hall", ago: float = 3):
    event = recent_event(ago, source=source)
    service.recorder.add(event, "new")
    return event


@pytest.fixture
def open_page(show):
    def open_tab(address: str, width: int = 1280, **settings):
        page = show(address, width, UNAVAILABLE, **settings)
        wait_for(page, "document.querySelector('.source img')?.naturalWidth === 64")
        return page

    return open_tab


def button(page, name: str):
    return page.get_by_role("button", name=name)


def wait_for_count(page, selector: str, count: int) -> None:
    wait_for(page, f"document.querySelectorAll('{selector}').length === {count}")


def test_sources_and_a_restart(open_page, start):
    with start() as service:
        service.dashboard.update_source("door", trouble=f"{HOSTILE}<script>alert(4)</script>")
        page = open_page(service.server.address)
        assert page.locator(".source h2").all_inner_texts() == ["hall", "door"]
        wait_for(page, "document.querySelector('.source').querySelectorAll('.lane').length === 5")
        wait_for(page, "document.querySelector('.source .now output')?.textContent === '0.90'")
        pixels = ink(page, 0)
        while ink(page, 0) <= pixels:
            page.wait_for_timeout(25)
        address = page.evaluate("document.querySelector('.source img').src")
        wait_for(page, f"document.querySelector('.source img').src !== {address!r}")
        assert page.locator("main script, main img[onerror]").count() == 0
        check_changes(page, service)
    page.locator("#broken:not([hidden])").wait_for()
    with start() as service:
        wait_for(page, "$('broken').hidden && document.querySelectorAll('.source').length === 2")
        assert service.paused == ["hall"]
        button(page, "Resume hall").wait_for()
    page.close()


@pytest.fixture
def opened(open_page, start):
    """A service and its page."""
    with start() as service:
        page = open_page(service.server.address)
        yield service, page
        page.close()


def test_events_and_clips(opened, tmp_path):
    """An event with a verdict and a clip; a clip that no browser plays; and a deleted clip."""
    service, page = opened
    service.clips.opened, service.clips.opened_wall = monotonic(), now()
    camera = test_clips.Camera(service.clips, test_clips.write_film(tmp_path / "film.ts"), "hall").send(0, 9.5)
    event = camera.event(5.2, 6.0)
    service.recorder.add(event, "new")
    page.locator(".event.on").wait_for()
    button(page, "Right: it happened").click()
    page.locator(".yes[aria-pressed=true]").wait_for()
    assert service.history.find(event.id).verdict == "right"
    service.recorder.add(camera.end(event, 7.0), "end")
    page.locator(".event:not(.on)").wait_for()
    assert "hall" in page.locator("#announced").inner_text() and page.locator(".yes[aria-pressed=true]").count() == 1
    page.locator("button.thumb").click()  # the clip came after the end
    wait_for(page, "$('clip').videoWidth === 64 && $('clip').duration > 4.8")
    page.evaluate("$('clip').playbackRate = 8")
    wait_for(page, "$('clip').ended && $('clip').getVideoPlaybackQuality().totalVideoFrames > 10")
    page.keyboard.press("Escape")
    wait_for(page, "!$('player').open && !$('clip').hasAttribute('src')")
    unplayable = event_of("door", start=now())
    path = service.clips.folder / f"{unplayable.id}.mp4"
    write_video(path, range(0, 2000, 40), codec="mpeg4")  # like HEVC, which many cameras send
    service.recorder.add(unplayable, "new")
    service.history.attach(unplayable.id, clip=path.name)
    service.dashboard.show_event(unplayable, "update")
    wait_for_count(page, "button.thumb", 2)
    page.locator("button.thumb").first.click()
    page.locator("#no-clip").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Save the clip").click()
    assert Path(download.value.path()).read_bytes() == path.read_bytes()
    page.keyboard.press("Escape")
    path.unlink()
    page.locator("button.thumb").first.click()
    page.locator("#no-clip").wait_for()
    assert not page.get_by_role("link", name="Save the clip").is_visible()
    page.keyboard.press("Escape")


def test_filters_of_events(opened):
    """Sixty events of yesterday, some with hostile names, and two of today."""
    service, page = opened
    add_event(service)
    add_event(service, "door")
    for k in range(60):
        source, action = "hall" if k % 2 else HOSTILE, HOSTILE if k % 3 == 0 else "wave"
        event = event_of(source, action, now() - timedelta(days=1, minutes=k), model=HOSTILE)
        service.history.begin(event, ())
        service.history.update(replace(event, end=event.seen))
    page.reload()
    wait_for_count(page, ".event", 50)
    page.click("#older")
    wait_for(page, "document.querySelectorAll('.event').length === 62 && $('older').hidden")
    page.select_option("#by-action", HOSTILE)
    wait_for_count(page, ".event", 20)
    page.select_option("#by-source", "hall")
    wait_for_count(page, ".event", 10)
    page.fill("#by-day", f"{now() + timedelta(days=2):%Y-%m-%d}")
    wait_for(page, "!document.querySelectorAll('.event').length && $('no-events').checkVisibility()")
    page.click("#show-all")
    wait_for(page, "document.querySelectorAll('.event').length >= 50")
    assert page.locator("main script, main img[onerror]").count() == 0


def check_changes(page, service: Service) -> None:
    """Snooze a source, add and remove one, and pause one."""
    page.locator(".menu summary").first.click()
    page.locator(".sheet select").first.select_option("fall")
    button(page, "Snooze notifications").first.click()
    page.locator("#snoozes li").wait_for()
    assert [(snooze.source, snooze.action) for snooze in service.policy.snoozes()] == [("hall", "fall")]
    page.locator("#snoozes").get_by_role("button", name="End").click()
    wait_for_count(page, "#snoozes li", 0)
    assert service.policy.snoozes() == []
    page.click("#add summary")
    page.fill("#add-name", "../hall")
    page.fill("#add-address", "rtsp://garage/s")
    page.keyboard.press("Enter")
    wait_for(page, "$('add-status').textContent && $('add').open")
    page.fill("#add-name", "garage")
    page.keyboard.press("Enter")
    wait_for(page, "!$('add').open && document.querySelectorAll('.source').length === 3")
    assert service.sources["garage"].address == "rtsp://garage/s"
    page.locator(".menu summary").last.click()
    button(page, "Remove this source").last.click()
    button(page, "Press again").last.click()
    wait_for_count(page, ".source", 2)
    assert service.sources.keys() == {"hall", "door"}
    button(page, "Pause hall").click()
    button(page, "Resume hall").wait_for()


def test_a_phone_behind_a_proxy(open_page, start):
    """By touch; every request of the page begins with the path of the proxy."""
    with start() as service:
        event, addresses = add_event(service), []
        with Server(Starlette(routes=[Mount("/home/cameras", WatchSite(service).app)]), port=0) as server:
            address = server.address.replace("/?", "/home/cameras/?")
            page = open_page(address, 390, has_touch=True, is_mobile=True)
            page.on("request", lambda request: addresses.append(urlsplit(request.url)))
            page.reload()
            page.locator(".event.on").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            button(page, "Wrong: it did not").tap()
            page.locator(".no[aria-pressed=true]").wait_for()
            button(page, "Pause door").tap()
            button(page, "Resume door").wait_for()
            page.close()
        assert service.history.find(event.id).verdict == "wrong" and service.paused == ["door"]
    paths = [address.path for address in addresses if address.scheme == "http"]
    assert len(paths) > 4 and all(path.startswith("/home/cameras/") for path in paths), paths


def open_zones(page) -> None:
    """Open the zones of the first source by the keyboard."""
    page.locator(".menu summary").first.press("Enter")
    button(page, ZONES_BUTTON).first.press("Enter")
    wait_for(page, "$('zones').open")


def wait_for_zones(page, count: int) -> None:
    wait_for(page, f"!$('zones').open && {VEIL}?.querySelectorAll('.zone').length === {count}")


def test_zones_are_drawn_changed_and_deleted_by_the_mouse(open_page, start):
    corners = [(0.1, 0.2), (0.6, 0.2), (0.6, 0.9), (0.1, 0.9)]

    def at(x: float, y: float) -> tuple[float, float]:
        box = page.locator("#stage").bounding_box()
        return box["x"] + x * box["width"], box["y"] + y * box["height"]

    def delete_first() -> None:
        open_zones(page)
        page.mouse.click(*at(0.3, 0.5))
        page.click("#zone-delete")

    with start() as service:
        page = open_page(service.server.address)
        assert page.evaluate(f"{VEIL}.childElementCount") == 0
        open_zones(page)
        for corner in (*corners, corners[0]):
            page.mouse.click(*at(*corner))
        wait_for(page, "!edited.open && edited.zones.length === 1")
        page.mouse.move(*at(0.6, 0.9))
        page.mouse.down()
        page.mouse.move(*at(0.7, 0.8), steps=3)
        page.mouse.up()
        for corner in ((0.8, 0.1), (0.95, 0.1)):
            page.mouse.click(*at(*corner))
        page.mouse.dblclick(*at(0.9, 0.3))  # closes the second zone with its third corner
        wait_for(page, "edited.zones.length === 2")
        assert service.zones["hall"] == (), "nothing is saved yet"
        page.click("#zones-save")
        wait_for_zones(page, 2)
        first, second = service.zones["hall"]
        np.testing.assert_allclose(first, [*corners[:2], (0.7, 0.8), corners[3]], atol=0.01)
        np.testing.assert_allclose(second, [(0.8, 0.1), (0.95, 0.1), (0.9, 0.3)], atol=0.01)
        delete_first()
        page.click("#zones-cancel")
        wait_for(page, "$('zones-status').textContent && $('zones').open")
        page.click("#zones-cancel")
        wait_for_zones(page, 2)
        assert service.zones["hall"] == (first, second)
        delete_first()
        page.click("#zones-save")
        wait_for_zones(page, 1)
        assert service.zones["hall"] == (second,)


def test_keyboard(open_page, start):
    """Select sources, judge events, and draw a zone; then return to the zones of the file."""
    with start(TOP) as service:
        page = open_page(service.server.address)
        events = [add_event(service, ago=4), add_event(service, "door")]

        def press(*keys: str) -> None:
            for key in keys:
                page.keyboard.press(key)

        page.locator(".event").nth(1).wait_for()
        press("2")
        assert page.evaluate("document.activeElement.source.name") == "door"
        press("n", "n", "w")
        page.locator(".no[aria-pressed=true]").wait_for()
        assert [service.history.find(event.id).verdict for event in events] == ["wrong", ""]
        press("w")
        wait_for(page, "!document.querySelector('.no[aria-pressed=true]')")
        assert service.history.find(events[0].id).verdict == ""
        open_zones(page)
        assert page.locator("#zones-file").is_hidden()
        page.locator("#zone-rectangle").press("Enter")
        wait_for(page, "document.activeElement.dataset.corner === '1:0'")
        press("ArrowLeft", "Shift+ArrowUp", "Tab", "ArrowRight", "ArrowRight", "Tab", "+", "Shift+ArrowDown")
        press("Tab", "Delete")
        page.locator("#zones-save").press("Enter")
        wait_for_zones(page, 2)
        assert service.zones["hall"] == (*TOP, ((0.24, 0.2), (0.77, 0.25), (0.75, 0.75), (0.5, 0.8)))
        open_zones(page)
        page.locator("#zones-file").press("Enter")
        wait_for_zones(page, 1)
        assert service.zones["hall"] == TOP
