"""The HTML report in a real headless Chromium: it draws, plays, seeks, filters, and takes two hours of 50 classes."""

import shutil
from fractions import Fraction

import av
import cv2
import numpy as np
import pytest

from pipelines.index_page import write_index
from pipelines.report import FULL_SCALE, write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --autoplay-policy=no-user-gesture-required"
).split()
CLASSES = ["Background", "<script>alert(1)</script>", "kick", "hug"]
HOSTILE = CLASSES[1]
SECONDS = 10
GREYS = (40, 90, 140, 190, 240)  # of the video's five parts of two seconds


@pytest.fixture(scope="module")
def chromium():
    """A headless browser; skips, with the reason, where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install -e .[test]"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: `apt-get install chromium`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def until(page, expression: str) -> None:
    """Wait until a script says true. Asked again and again from outside: the page's own policy forbids eval."""
    for _ in range(400):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never came: {expression}")


@pytest.fixture
def show(chromium):
    """Open a report: show(path, width) -> page. Words on the console and requests beyond files fail the test."""
    complaints, pages = [], []

    def open_page(path, width: int = 1280, missing: str = "", **settings):
        page = chromium.new_page(viewport={"width": width, "height": 900}, **settings)
        pages.append(page)
        page.on("console", lambda message: (missing and missing in message.text) or complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: request.url.startswith(("file:", "data:", "blob:")) or complaints.append(request.url),
        )
        page.goto(path.as_uri())
        until(page, "typeof frameAsked === 'undefined' || !frameAsked")
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not complaints


def write_greys(path, codec: str = "libx264") -> None:
    """A file of plain greys, another each two seconds."""
    with av.open(str(path), "w") as container:
        options = {"g": "12", "preset": "ultrafast", "x265-params": "log-level=none"}
        stream = container.add_stream(codec, rate=Fraction(24), options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for k in range(SECONDS * 24):
            image = np.full((48, 64, 3), GREYS[k // 48], np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def segment(label: str, start: float, end: float, score: float) -> dict:
    return {"label": label, "start": start, "end": end, "score": score}


SEGMENTS = [segment("kick", 2, 4, 0.9), segment("hug", 5, 5.5, 0.6), segment(HOSTILE, 6, 8, 0.8)]
EVENTS = [{"event": "started", "label": s["label"], "start": s["start"], "time": s["start"] + 0.5} for s in SEGMENTS]
TRUTH = [
    {"label": "kick", "start": 1.25, "end": 4},  # found, announced 1.25 s after its start
    {"label": HOSTILE, "start": 0, "end": 1},  # missed
    {"label": "wave", "start": 8, "end": 9},  # unknown to the checkpoint
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of a real file of ten seconds, with labels and events, opened from disk."""
    folder = tmp_path_factory.mktemp("a report #1")
    write_greys(folder / "greys.mp4")
    return report_on(folder / "greys.mp4", folder / "report.html")


def report_on(video, path, **more):
    """Write the report of a video of greys; its path."""
    chunks = SECONDS * 4
    scores = np.full((chunks, len(CLASSES)), 0.1, np.float32)
    for c, label in enumerate(CLASSES):
        for found in SEGMENTS:
            if found["label"] == label:
                scores[int(found["start"] * 4) : int(found["end"] * 4), c] = found["score"]
    timeline = {
        "source": "rtsp://admin:hunter2@camera/live",
        "duration": float(SECONDS),
        "checkpoint": "run/checkpoint.pt",
        "recipe": "8f3ac01d",
        "classes": CLASSES,
        "seconds_per_chunk": 0.25,
        "chunks": chunks,
        "segments": SEGMENTS,
        "speed": {"realtime_factor": 3.5},
        "warnings": [HOSTILE],
    }
    write_report(path, timeline, scores, video=video, truth=TRUTH, events=EVENTS, **more)
    return path


def seconds(page) -> float:
    """Where the cursor is, as a screen reader hears it."""
    until(page, "!frameAsked || playing")
    return float(page.get_attribute("#surface", "aria-valuenow"))


def click_at(page, time: float, element: str = "#surface") -> None:
    box = page.locator(element).bounding_box()
    page.mouse.click(box["x"] + box["width"] * time / SECONDS, box["y"] + 10)


def wait_for_picture(page, grey: int) -> None:
    """Until the video's middle has a grey, read from the screen: scripts may not look into a video from disk."""
    for _ in range(200):
        shot = cv2.imdecode(np.frombuffer(page.locator("#video").screenshot(), np.uint8), cv2.IMREAD_GRAYSCALE)
        seen = int(shot[shot.shape[0] // 2, shot.shape[1] // 2])
        if abs(seen - grey) < 8:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"the picture is {seen}, not {grey}")


def ink(page, lane: int) -> int:
    """How many pixels of a lane's canvas are drawn, once it is."""
    stale = f"document.querySelectorAll('.line')[{lane}].stale"
    until(page, f"!(typeof lanes === 'undefined' ? {stale} : lanes[{lane}].dirty)")
    return page.evaluate(
        """(lane) => {
          const canvas = document.querySelectorAll(".lane canvas, .line canvas")[lane], { width, height } = canvas;
          const pen = new OffscreenCanvas(width, height).getContext("2d");
          pen.drawImage(canvas, 0, 0);
          const pixels = pen.getImageData(0, 0, width, height).data;
          return pixels.filter((value, index) => index % 4 === 3 && value).length;
        }""",
        lane,
    )


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_draws_at_both_widths_without_scrolling_sideways(show, report, width, scheme):
    page = show(report, width, color_scheme=scheme)
    assert [text for text in page.locator(".lane:visible .cut").all_inner_texts()] == [*CLASSES[1:], "wave"]
    page.locator("#lanes").scroll_into_view_if_needed()
    until(page, "lanes.slice(0, 3).every((lane) => lane.seen && !lane.dirty)")
    assert all(ink(page, lane) > 500 for lane in range(3))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(244, 246, 248)", "dark": "rgb(15, 19, 25)"}[scheme]


def test_markup_in_a_label_is_text_and_the_password_is_nowhere(show, report):
    page = show(report)
    assert page.locator("#warnings").inner_text() == HOSTILE
    assert page.locator("script").count() == 2
    assert "hunter2" not in report.read_text()
    assert page.locator("#run").inner_text().splitlines()[1] == "rtsp://camera/live"


def test_it_seeks_on_click_and_the_picture_follows(show, report):
    page = show(report)
    until(page, "watchable")
    wait_for_picture(page, GREYS[0])
    click_at(page, 3.1)
    assert seconds(page) == pytest.approx(3.1, abs=0.05)
    wait_for_picture(page, GREYS[1])
    assert page.locator("#decision").inner_text() == "kick"
    assert page.locator("#labelled").inner_text() == "Labelled: kick"
    click_at(page, 9.5, "#overview")
    wait_for_picture(page, GREYS[4])
    page.locator("#rows .row", has_text=HOSTILE).last.click()
    wait_for_picture(page, GREYS[3])
    assert seconds(page) == 6


def test_it_plays_and_the_cursor_follows(show, report):
    page = show(report)
    until(page, "watchable")
    click_at(page, 1.7)
    page.click("#play")
    assert page.get_attribute("#play", "aria-label") == "Pause"
    until(page, "now > 2.1")
    page.evaluate("video.pause()")
    until(page, "!playing && !frameAsked")
    at = page.evaluate("video.currentTime")
    assert seconds(page) == pytest.approx(at, abs=0.1)
    wait_for_picture(page, GREYS[min(4, int(at / 2))])
    click_at(page, 9.6)
    page.select_option("#rate", "8")
    page.click("#play")
    until(page, "video.ended && !playing")
    assert page.get_attribute("#play", "aria-label") == "Play"
    until(page, "!frameAsked")
    moved_to = page.evaluate("new DOMMatrix(getComputedStyle($('cursor')).transform).e / $('surface').clientWidth")
    assert moved_to == pytest.approx(1, abs=0.02)


def test_the_keyboard_does_everything(show, report):
    page = show(report)
    page.focus("#surface")
    for key, expected in (
        ("ArrowRight", 0.25), ("Shift+ArrowRight", 1.25), ("ArrowLeft", 1), ("n", 2), ("n", 5), ("p", 2),
        ("End", 10), ("Home", 0), ("PageUp", 10),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert seconds(page) == expected, key
    page.keyboard.press("+")
    assert page.evaluate("view[1] - view[0]") == SECONDS / 2
    page.keyboard.press("0")
    assert page.evaluate("view") == [0, SECONDS]
    page.focus("#rows")
    page.keyboard.press("End")
    assert page.get_attribute("#rows", "aria-activedescendant") == "row-4"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert seconds(page) == 6
    page.locator(".lane > button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert seconds(page) == 2


def test_tab_reaches_each_control_once_and_shows_where_it_is(show, report):
    page = show(report)
    names = []
    for _ in range(16):
        page.keyboard.press("Tab")
        at = page.evaluate(
            """() => {
              const at = document.activeElement, outlined = getComputedStyle(at).outlineStyle !== "none";
              return [at.id || at.tagName, outlined, at.getAttribute("aria-label") || at.textContent];
            }"""
        )
        if at[0] == "BODY":
            break
        names.append(at[0])
        assert at[1] and at[2].strip(), at
    assert names == ["theme", "play", "sound", "rate", "least", "SUMMARY", "in", "surface", "BUTTON", "rows"]


def test_delays_are_told_against_the_labels(show, report):
    page = show(report)
    assert page.locator("#verdict").inner_text() == (
        "1 of 3 labels found, announced +1.25 s from their start (median) · 2 segments without a label"
    )
    rows = [row.split("\n") for row in page.locator("#rows .row").all_inner_texts()]
    assert [row[0] for row in rows] == [HOSTILE, "kick", "hug", HOSTILE, "wave"]
    assert rows[1][4:] == ["+0.50 s", "+1.25 s", "0.90"]
    assert [rows[i][-1] for i in (0, 4)] == ["missed", "missed"]
    spoken = page.locator("#rows .row").nth(1).get_attribute("aria-label")
    assert spoken == (
        "kick, 0:02.00 to 0:04.00, score 0.90, announced 0.50 seconds after its start, "
        "+1.25 seconds from the label's start"
    )


def test_filters_by_class_and_by_score(show, report):
    page = show(report)
    before = ink(page, 2)
    page.fill("#least", "0.7")
    assert page.locator("#count").inner_text() == "2 of 3 segments"
    until(page, "!frameAsked")
    assert 0 < ink(page, 2) < before  # hug lost its bar, not its curve
    page.click("#class-menu summary")
    page.fill("#find-class", "KI")
    assert page.locator("#class-list label:visible").all_inner_texts() == ["kick\n1"]
    page.click("#pick-none")
    assert page.locator("#nothing").is_visible()
    page.locator("#class-list label:visible input").check()
    page.keyboard.press("Escape")
    assert page.locator(".lane:visible .cut").all_inner_texts() == ["kick"]
    assert page.locator("#class-menu summary").inner_text() == "1 of 4 classes"
    assert page.locator("#count").inner_text() == "1 of 3 segments"
    assert page.locator("#verdict").inner_text().startswith("1 of 1 label found")


def test_the_theme_can_be_turned(show, report):
    page = show(report, color_scheme="light")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 25)"
    assert page.evaluate("theme.card") == "rgb(23, 28, 36)"


def test_a_tap_seeks_and_two_fingers_zoom(show, report):
    page = show(report, 400, has_touch=True)
    page.locator("#surface").scroll_into_view_if_needed()
    box = page.locator("#surface").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.3, box["y"] + 20)
    assert seconds(page) == pytest.approx(3, abs=0.1)
    page.evaluate(
        """() => {
          const box = $("surface").getBoundingClientRect(), y = box.top + 20;
          const send = (kind, pointerId, part) => $("surface").dispatchEvent(new PointerEvent(
            kind, { pointerId, pointerType: "touch", clientX: box.left + box.width * part, clientY: y }));
          $("surface").setPointerCapture = () => {};
          send("pointerdown", 1, 0.4); send("pointerdown", 2, 0.6);
          send("pointermove", 1, 0.3); send("pointermove", 2, 0.7);
        }"""
    )
    start, end = page.evaluate("view")
    assert (start, end) == (pytest.approx(2.5, abs=0.2), pytest.approx(7.5, abs=0.2))
    assert seconds(page) == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize(("name", "codec"), [("old.avi", "mpeg4"), ("old.mp4", "mpeg4"), ("new.mp4", "libx265")])
def test_what_browsers_cannot_play_plays_as_a_copy(show, tmp_path, name, codec):
    write_greys(tmp_path / name, codec)
    page = show(report_on(tmp_path / name, tmp_path / "report.html"))
    until(page, "watchable")
    assert page.evaluate("video.duration") == pytest.approx(SECONDS, abs=0.05)
    assert "report.lstr-proxy.mp4, a small H.264 copy" in page.locator("#run").inner_text()
    click_at(page, 5.1)
    wait_for_picture(page, GREYS[2])


@pytest.mark.parametrize("name", ["old.avi", "plain.mp4"])
def test_an_embedded_video_needs_no_other_file(show, tmp_path, name):
    write_greys(tmp_path / name, "mpeg4" if name == "old.avi" else "libx264")
    path = report_on(tmp_path / name, tmp_path / "report.html", embed=10**6)
    (tmp_path / name).unlink()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    page = show(path)
    until(page, "watchable")
    click_at(page, 5.1)
    wait_for_picture(page, GREYS[2])
    assert page.locator("#media").count() == 0


def test_thresholds_and_what_a_model_expects_are_drawn(show, tmp_path):
    timeline = {"source": "a.mp4", "duration": 10.0, "classes": ["Background", "hug", "kick"], "chunks": 40}
    timeline |= {"segments": [], "thresholds": {"on": 0.5, "off": 0.35, "min_length": 0.5, "merge_gap": 0.0}}
    timeline["expected"] = [{"label": "kick", "time": 2.0, "start": 4.0, "score": 0.6}]
    write_report(tmp_path / "r.html", timeline, np.full((40, 3), 0.1))
    page = show(tmp_path / "r.html")
    assert ink(page, 1) > ink(page, 0) > 0
    assert page.locator("#legend span:visible").all_inner_texts() == ["score", "threshold", "detected", "expected"]
    run = page.locator("#run").inner_text()
    assert "on at 0.5, off below 0.35" in run and "Shortest action\n0.5 s" in run
    assert page.locator("#none").is_visible()


@pytest.mark.parametrize("width", [1280, 400])
def test_the_index_leads_to_each_report(show, report, tmp_path, width):
    timeline = {"duration": 10.0, "classes": CLASSES, "segments": SEGMENTS, "warnings": [HOSTILE]}
    shutil.copy(report, tmp_path / "a clip #2.html")
    timelines = {"a clip #2": timeline, "a clip #10": timeline | {"segments": SEGMENTS[:1], "duration": 20.0}}
    page = show(write_index(tmp_path, timelines, failed=["c.mp4 is empty (0 bytes)."]), width, missing="NOT_FOUND")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert ink(page, 0) > ink(page, 1) > 0
    assert page.locator("td a").all_inner_texts() == ["a clip #2", "a clip #10"]
    page.click("button[data-key=duration]")
    page.click("button[data-key=duration]")
    assert page.locator("td a").all_inner_texts() == ["a clip #10", "a clip #2"]
    page.click("button[data-key=id]")
    assert page.locator("td a").all_inner_texts() == ["a clip #2", "a clip #10"]
    page.select_option("#class", label=HOSTILE)
    assert page.locator("#count").inner_text() == "1 of 2 videos"
    page.select_option("#class", "")
    page.fill("#find", "CLIP #1")
    assert page.locator("td a:visible").all_inner_texts() == ["a clip #10"]
    page.fill("#find", "")
    page.focus("td a")
    page.keyboard.press("Enter")
    page.locator("#title", has_text="live").wait_for()


def test_a_video_that_is_gone_leaves_a_timeline_that_works(show, report, tmp_path):
    shutil.copy(report, tmp_path / "alone.html")
    page = show(tmp_path / "alone.html", missing="ERR_FILE_NOT_FOUND")
    page.locator("#no-video", has_text="cannot play live").wait_for()
    page.click("#play")
    until(page, "now > 0.1")
    page.click("#play")
    click_at(page, 2.5)
    assert seconds(page) == pytest.approx(2.5, abs=0.05)
    assert page.locator("#decision").inner_text() == "kick"


def test_two_hours_of_fifty_classes(show, tmp_path):
    """All of it is reachable, but only what is in sight is drawn or is an element."""
    chunks, classes = 28_800, ["Background", *(f"action {c}" for c in range(1, 51))]
    scores = np.random.default_rng(0).random((chunks, 51), np.float32)
    scores[12_345, 50] = 1.0
    segments = [segment(classes[1 + i % 50], i * 3.0, i * 3.0 + 2, 0.75) for i in range(2400)]
    timeline = {"source": "day.mp4", "duration": 7200.0, "classes": classes, "chunks": chunks, "segments": segments}
    write_report(tmp_path / "big.html", timeline, scores)
    page = show(tmp_path / "big.html")
    drawn = "lanes.map((lane, index) => (lane.dirty ? -1 : index)).filter((index) => index >= 0)"
    until(page, f"{drawn}.length > 5")
    assert max(page.evaluate(drawn)) < 45
    assert page.locator("#rows .row").count() < 40
    page.locator(".lane").nth(49).scroll_into_view_if_needed()
    until(page, "!lanes[49].dirty")
    assert ink(page, 49) > 2000
    page.focus("#rows")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("now") == 2399 * 3
    assert page.locator("#rows .row").last.get_attribute("aria-posinset") == "2400"
    page.evaluate("seek(12345.5 * step); look(now - 4, 8)")
    until(page, "!frameAsked")
    assert page.locator("#decision-score").inner_text() == "1.00"
    assert page.evaluate("codeAt(50, 12345)") == FULL_SCALE
