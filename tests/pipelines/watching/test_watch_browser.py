"""The page of a watching service in a real headless Chromium."""

import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import av
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from lstr.extractors.video.clips import ClipFile, PacketRing
from lstr.pipelines.pages.server import SavedAddress, Server
from lstr.pipelines.watching.recorder import Snooze
from lstr.pipelines.watching.site import WatchSite
from tests.support.browser import until
from tests.support.videos import write_video
from tests.support.watching import HOSTILE, Calls, Camera, dashboard_of, event_of

pytestmark = pytest.mark.long


class Service:
    """A board that is served; its cameras decide four times a second."""

    def __init__(self, folder, names=("hall", HOSTILE)):
        self.dashboard, self.calls, self.folder = dashboard_of(folder, names), Calls(), folder
        self.cameras = [Camera(self.dashboard, name) for name in names]
        self.ended = threading.Event()
        self.server = self.serve()

    def serve(self, **options) -> Server:
        self.site = WatchSite(self.dashboard, self.calls, lambda: self.server.ending)
        return Server(self.site.app(), port=options.pop("port", 0), **options)

    def run(self) -> None:
        while not self.ended.wait(0.25):
            for camera in self.cameras:
                camera.show(0.1, 0.9, 0.2, at=now(), grey=30 + camera.chunk % 200)

    def __enter__(self):
        self.server.__enter__()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.ended.set()
        self.thread.join(5)
        self.server.__exit__(*exception)


def now() -> datetime:
    return datetime.now().astimezone()


def begin(service, source: str = "hall", ago: float = 3, **more):
    event = event_of(source, start=now() - timedelta(seconds=ago), decided=now(), seen=now(), **more)
    service.dashboard.history.begin(event, (), now())
    service.dashboard.show_event(event, "new")
    return event


@pytest.fixture
def service(tmp_path):
    with Service(tmp_path) as opened:
        yield opened


@pytest.fixture
def tab(chromium, service):
    """Open the page: tab(width) -> page. Words on the console and requests to other hosts fail the test."""
    complaints, contexts = [], []

    def open_tab(width: int = 1280, expected: str = "nothing", **settings):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: expected in message.text or complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        address = f"http://127.0.0.1:{service.server.port}/"
        own = (address, "data:", f"blob:{address}")
        page.on("request", lambda request: request.url.startswith(own) or complaints.append(request.url))
        page.goto(service.server.address)
        page.locator(".source").first.wait_for()  # the stream brings the state
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert not complaints


LANE_INK = """(() => {
  const canvas = document.querySelector(".source .lane canvas"), { width, height } = canvas ?? {};
  if (!width) return 0;
  const pen = new OffscreenCanvas(width, height).getContext("2d");
  pen.drawImage(canvas, 0, 0);
  return pen.getImageData(0, 0, width, height).data.filter((value, at) => at % 4 === 3 && value).length;
})()"""


def test_a_source_and_what_happens(tab, service):
    page = tab()
    assert page.locator(".source h2").all_inner_texts() == ["hall", HOSTILE]
    assert page.locator(".source").first.locator(".lane .name .cut").all_inner_texts() == ["fall", "wave"]
    until(page, "document.querySelector('.source .now output')?.textContent === '0.90'")
    until(page, f"{LANE_INK} > 200")
    until(page, "document.querySelector('.source img')?.naturalWidth === 64")
    before = page.evaluate(LANE_INK)
    until(page, f"{LANE_INK} > {before}")
    shown = page.evaluate("document.querySelector('.source img').src")
    until(page, f"document.querySelector('.source img').src !== {shown!r}")
    assert "No event yet" in page.locator("#no-events").inner_text()

    event = begin(service)
    page.locator(".event.on").wait_for()
    assert "fall in hall" in page.locator("#announced").inner_text()
    assert "so far" in page.locator(".event .when").inner_text()
    assert page.locator("#count").inner_text() == "Events, 1 active"
    page.get_by_role("button", name="Right: it happened").click()
    page.locator(".yes[aria-pressed=true]").wait_for()
    assert service.dashboard.history.find(event.id).verdict == "right"
    service.dashboard.history.end(event.id, now(), False, now())
    service.dashboard.show_event(replace(event, end=now()), "end")
    page.locator(".event:not(.on)").wait_for()
    assert "has ended" in page.locator("#announced").inner_text()
    assert page.locator(".yes[aria-pressed=true]").count() == 1


def test_by_keys_alone(tab, service):
    events = [begin(service, ago=4), begin(service, HOSTILE)]
    page = tab()
    page.locator(".event").nth(1).wait_for()
    page.keyboard.press("2")
    assert page.evaluate("document.activeElement.source.name") == HOSTILE
    page.keyboard.press("n")
    page.keyboard.press("n")
    page.keyboard.press("w")
    page.locator(".no[aria-pressed=true]").wait_for()
    assert [service.dashboard.history.find(event.id).verdict for event in events] == ["wrong", ""]
    page.keyboard.press("w")
    until(page, "!document.querySelector('.no[aria-pressed=true]')")
    assert service.dashboard.history.find(events[0].id).verdict == ""
    page.keyboard.press("m")
    assert "5 min ago" in page.locator(".ago").first.inner_text()


def test_a_clip_plays(tab, service):
    """The film of a camera's packets, as the service writes it."""
    video, ring = (
        write_video(service.folder / "a.ts", range(0, 3600, 60), options={"g": "10", "bf": "2"}),
        PacketRing(2**26, 100),
    )
    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        for number, packet in enumerate(container.demux(stream)):
            ring.take(packet, stream, number / 10)
    packets = ring.after(10)
    clip = ClipFile(service.folder / "clip.mp4", packets[0])
    for packet in packets:
        clip.write(packet)
    clip.close()
    event = begin(service, clip="clip.mp4")
    service.calls.files[event.id] = service.folder / "clip.mp4"
    page = tab()
    page.locator(".thumb").click()
    until(page, "$('clip').videoWidth === 64")
    assert abs(page.evaluate("$('clip').duration") - clip.seconds) < 0.15 and 4.8 < clip.seconds < 5.2
    page.keyboard.press("Escape")
    until(page, "!$('player').open && !$('clip').hasAttribute('src')")
    page.locator(".event").focus()
    page.keyboard.press("c")
    page.evaluate("$('clip').playbackRate = 8")
    until(page, "$('clip').ended")
    assert page.evaluate("$('clip').getVideoPlaybackQuality().totalVideoFrames") > 10, (
        "frames were decoded as it played"
    )


def test_a_clip_that_the_browser_cannot_play_is_offered(tab, service):
    """As HEVC, which is what many cameras send; instead of a black box there is a sentence and the file."""
    path = write_video(service.folder / "clip.mp4", range(0, 2000, 40), codec="mpeg4")
    event = begin(service, clip=path.name)
    service.calls.files[event.id] = path
    page = tab(expected="status of 404")
    page.locator(".thumb").click()
    page.get_by_role("alert").filter(has_text="cannot play the clip").wait_for()
    assert not page.locator("#clip").is_visible()
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the clip").click()
    assert Path(saved.value.path()).read_bytes() == path.read_bytes()
    assert saved.value.suggested_filename.startswith("hall fall ")
    page.keyboard.press("Escape")
    path.unlink()
    page.locator(".thumb").click()
    page.get_by_role("alert").filter(has_text="no longer there").wait_for()
    assert not page.get_by_role("link", name="Save the clip").is_visible()


def test_filters_and_older_events(tab, service):
    history = service.dashboard.history
    for k in range(60):
        event = event_of(
            "hall" if k % 2 else HOSTILE, ("fall", "wave")[k % 3 == 0], now() - timedelta(days=1, minutes=k)
        )
        history.begin(event, (), now())
        history.end(event.id, event.seen, False, now())
    page = tab()
    until(page, "document.querySelectorAll('.event').length === 50")
    page.click("#older")
    until(page, "document.querySelectorAll('.event').length === 60 && $('older').hidden")
    page.select_option("#by-action", "wave")
    until(page, "document.querySelectorAll('.event').length === 20")
    page.select_option("#by-source", "hall")
    until(page, "document.querySelectorAll('.event').length === 10")
    begin(service, "hall", action="fall")
    page.fill("#by-day", f"{now():%Y-%m-%d}")
    until(page, "!document.querySelectorAll('.event').length")
    assert "No event fits" in page.locator("#no-events").inner_text()
    page.click("#show-all")
    until(page, "document.querySelectorAll('.event').length >= 50 && document.querySelector('.event.on')")


def test_what_is_wanted_of_the_service(tab, service):
    page = tab(expected="status of 4")
    page.get_by_role("button", name="Pause hall").click()
    until(page, "true")
    page.locator(".menu summary").first.click()
    page.locator(".sheet select").first.select_option("fall")
    page.get_by_role("button", name="Snooze notifications").first.click()
    page.locator(".menu:not([open])").first.wait_for()
    service.dashboard.snoozes = [Snooze("hall", "fall", None)]
    page.locator("#snoozes").get_by_role("button", name="End").click()
    service.dashboard.snoozes = [Snooze("hall", "fall", now() + timedelta(seconds=1.5))]
    until(page, "!document.querySelector('#snoozes li')")
    page.click("#add summary")
    page.fill("#add-name", "../hall")
    page.fill("#add-address", "rtsp://garage/s")
    page.keyboard.press("Enter")
    until(page, "$('add-told').textContent.includes('not a name')")
    page.fill("#add-name", "garage")
    page.keyboard.press("Enter")
    until(page, "!$('add').open")
    page.locator(".menu summary").first.click()
    page.get_by_role("button", name="Remove this source").first.click()
    page.get_by_role("button", name="Press again").first.click()
    wanted = [("pause", "hall", True), ("snooze", "hall", "fall", 3600.0), ("snooze", "hall", "fall", 0.0)]
    wanted += [("add", "garage", "rtsp://garage/s"), ("remove", "hall")]
    deadline = time.monotonic() + 5
    while service.calls.done != wanted:
        assert time.monotonic() < deadline, service.calls.done
        time.sleep(0.02)
    service.dashboard.update_source("hall", paused=True)
    page.get_by_role("button", name="Resume hall").wait_for()
    service.dashboard.remove_source("hall")
    until(page, "document.querySelectorAll('.source').length === 1")


def test_a_page_goes_on_with_a_service_that_was_started_again(tab, service):
    page = tab(expected="ERR_")
    until(page, f"{LANE_INK} > 200")
    port, kept = service.server.port, service.server.address.partition("token=")[2]
    service.server.__exit__(None, None, None)
    page.locator("#broken:not([hidden])").wait_for(timeout=10000)
    again = Service(service.folder, ("hall", "porch"))
    with again:
        again.server.__exit__(None, None, None)
        address = SavedAddress(service.folder / "watch.toml", service.folder / "pages")
        address.token = kept
        again.server = again.serve(port=port, saved=address)
        again.server.__enter__()
        page.locator(".source h2", has_text="porch").wait_for(timeout=20000)
        until(page, "$('broken').hidden && document.querySelectorAll('.source').length === 2")


def test_it_works_under_a_path(chromium, service):
    """As behind a proxy: every request of the page, and the way in, begins with the path."""
    site = WatchSite(service.dashboard, service.calls, lambda: server.ending)
    event, paths = begin(service), []
    with Server(Starlette(routes=[Mount("/home/cameras", site.app())]), port=0) as server:
        page = chromium.new_page()
        page.on("request", lambda request: paths.append(urlsplit(request.url)))
        page.goto(server.address.replace("/?", "/home/cameras/?"))
        page.get_by_role("button", name="Wrong: it did not").click()
        page.locator(".no[aria-pressed=true]").wait_for()
        until(page, "document.querySelector('.source img')?.naturalWidth === 64")
        page.close()
    assert service.dashboard.history.find(event.id).verdict == "wrong"
    asked = [part.path for part in paths if part.scheme == "http"]
    assert len(asked) > 4 and all(path.startswith("/home/cameras/") for path in asked), asked


HOSTILE_CLASSES = (
    "Background",
    HOSTILE,
    '"><script>alert(2)</script>',
    "</script><script>alert(3)</script>",
    "{{data}}",
    "\u202e\u2028",
)


def test_names_run_nothing(tab, service):
    """`tab` fails at the first dialog, word on the console, or request elsewhere."""
    service.dashboard.update_source(
        "hall", address=f"rtsp://x/{HOSTILE}", trouble=f"{HOSTILE}<script>alert(4)</script>"
    )
    camera = Camera(service.dashboard, HOSTILE, HOSTILE_CLASSES)
    for _ in range(4):
        camera.show(*(0.1 * k for k in range(len(HOSTILE_CLASSES))))
    service.dashboard.snoozes = [Snooze(HOSTILE, HOSTILE, None)]
    for action in HOSTILE_CLASSES[1:]:
        begin(service, HOSTILE, action=action, model=HOSTILE)
    page = tab()
    until(page, f"document.querySelectorAll('.event').length === {len(HOSTILE_CLASSES) - 1}")
    until(page, "document.querySelectorAll('.source')[1].querySelectorAll('.lane').length === 5")
    for name in ("by-action", "by-source"):
        page.select_option(f"#{name}", HOSTILE)
    until(page, "document.querySelectorAll('.event').length === 1")
    page.locator(".event .yes").click()
    page.locator(".yes[aria-pressed=true]").wait_for()
    page.locator(".event").focus()
    page.keyboard.press("c")
    page.locator(".menu summary").nth(1).click()
    page.wait_for_timeout(500)
    assert page.locator("main script, main img[onerror]").count() == 0
    assert page.evaluate("document.querySelector('#snoozes li').textContent").startswith(HOSTILE)
