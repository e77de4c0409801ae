"""A report and the index of reports in a real headless Chromium."""

import shutil

import numpy as np
import pytest

from lstr.labels.segment import Segment
from lstr.pipelines.pages.page import write_index, write_report
from lstr.timeline import Thresholds, Timeline, segments_in
from tests.support.annotated import parse
from tests.support.browser import (
    CLASSES,
    GREYS,
    HOSTILE,
    SECONDS,
    SEGMENTS,
    click_at,
    ink,
    report_on,
    seconds,
    segment,
    wait_for,
    wait_for_picture,
    write_greys,
)
from tests.support.pages import make_scores, make_timeline

LABELS = ["Background", "hug", 'kick, "high"']
HUG, KICK = LABELS[1:]
CHUNKS = 40
SCORES = np.full((CHUNKS, 3), 0.1)
SCORES[8:16, 1], SCORES[20:24, 1], SCORES[28:30, 1], SCORES[30:34, 2] = 0.9, 0.4, 0.6, 0.7


def timeline_of(rules: Thresholds) -> dict:
    """What `lstr detect` writes for the scores."""
    timeline = Timeline(tuple(LABELS), rules)
    events = [event for chunk, scores in enumerate(SCORES) for event in timeline.push((chunk + 1) * 0.25, scores)]
    segments = [segment.to_dict() for segment in segments_in(events + timeline.finish(CHUNKS * 0.25))]
    document = {"source": "clips/a.mp4", "duration": 10.0, "classes": LABELS, "chunks": CHUNKS, "segments": segments}
    return document | {"id": "clips/a", "thresholds": timeline.describe()}


def facts(page) -> dict[str, str]:
    return dict(item.split("\n") for item in page.locator("#facts > div").all_inner_texts())


def saved(page, button: str) -> str:
    """The text of the file that a button downloads."""
    with page.expect_download() as started:
        page.click(button)
    return started.value.path().read_text("utf-8")


@pytest.mark.long
def test_report(show, report, tmp_path):
    """A report with its video, of a camera, of a long day, with sliders; and the index that leads to it."""
    play_a_report(show, report)
    read_the_clock_of_a_camera(show, tmp_path)
    scroll_two_hours_of_fifty_classes(show, tmp_path)
    move_the_sliders(show, tmp_path)
    (tmp_path / "videos").mkdir()
    play_embedded_and_late_videos(show, tmp_path / "videos")
    (tmp_path / "index").mkdir()
    follow_the_index(show, report, tmp_path / "index")


def play_a_report(show, report) -> None:
    page = show(report)
    assert page.locator("#warnings").inner_text() == HOSTILE and page.locator("script").count() == 2
    assert "hunter2" not in report.read_text() and "rtsp://camera/live" in page.locator("#run").inner_text()
    assert "1 of 3" in page.locator("#verdict").inner_text() and "+1.25 s" in page.locator("#verdict").inner_text()
    rows = [row.split("\n") for row in page.locator("#rows .row").all_inner_texts()]
    assert [row[0] for row in rows] == [HOSTILE, "kick", "hug", HOSTILE, "wave"]
    assert rows[1][4:] == ["+0.50 s", "+1.25 s", "0.90"]
    heard = []
    for key in ("x", "x", "x", "x", "x", "Shift+X"):
        page.keyboard.press(key)
        heard.append((page.locator("#error").text_content(), seconds(page)))
    assert [at for _, at in heard] == [0, 5, 6, 8, 8, 6]
    assert "hug" in heard[1][0] and "0:05.00" in heard[1][0] and heard[5] == heard[2]
    for key in ("p", "p", "n"):  # the keys of errors and of segments move one selection
        page.keyboard.press(key)
        assert page.evaluate("entries[chosen].start") == seconds(page)
    wait_for(page, "watchable")
    click_at(page, 1.7)
    page.click("#play")
    wait_for(page, "playing")  # the browser tells the page of it later than the click returns
    wait_for(page, "now > 2.1")
    page.evaluate("$('video').pause()")
    wait_for(page, "!playing && !frameAsked")
    at = page.evaluate("$('video').currentTime")
    assert seconds(page) == pytest.approx(at, abs=0.1)
    wait_for_picture(page, GREYS[min(4, int(at / 2))])
    click_at(page, 9.6)
    page.select_option("#rate", "8")
    page.click("#play")
    wait_for(page, "$('video').ended && !playing && !frameAsked")
    moved_to = page.evaluate("new DOMMatrix(getComputedStyle($('cursor')).transform).e / $('surface').clientWidth")
    assert moved_to == pytest.approx(1, abs=0.02)
    page.close()


def read_the_clock_of_a_camera(show, tmp_path) -> None:
    """Its seconds run behind that clock after a gap: its beginning and the edges of actions are known."""
    away = {
        "start": 2,
        "end": 3,
        "start_at": "2026-11-25T23:59:55.250+01:00",
        "end_at": "2026-11-26T00:00:01.000+01:00",
    }
    action = {"label": "kick", "score": 0.9, "start": 4, "end": 5.5, "start_at": "2026-11-26T00:00:02.000+01:00"}
    timeline = make_timeline(CHUNKS, ["Background", "kick"], name="hall", source="rtsp://camera/die", gaps=[away])
    timeline |= {"segments": [action], "live": {"began": "2026-11-25T23:59:53.250+01:00"}}
    write_report(tmp_path / "hall.html", timeline, make_scores(CHUNKS, 2))
    page = show(tmp_path / "hall.html")
    assert "hall" in page.title() and page.locator("#title").inner_text() == "hall"
    row = page.locator("#rows .row")
    assert row.locator(".from").inner_text() == "00:00:02" and row.locator(".from").get_attribute("title") == "0:04.00"
    assert page.evaluate("[0, 1, 2.5, 3].map(wall)") == ["23:59:53", "23:59:54", "23:59:55", "00:00:01"]


def scroll_two_hours_of_fifty_classes(show, tmp_path) -> None:
    """All of it is reachable, but only what is in sight is drawn or is an element."""
    chunks, classes = 28_800, ["Background", *(f"action {c}" for c in range(1, 51))]
    scores = np.random.default_rng(0).random((chunks, 51), np.float32)
    segments = [segment(classes[1 + i % 50], i * 3.0, i * 3.0 + 2, 0.75) for i in range(2400)]
    timeline = {"source": "day.mp4", "duration": 7200.0, "classes": classes, "chunks": chunks, "segments": segments}
    write_report(tmp_path / "big.html", timeline, scores)
    page = show(tmp_path / "big.html")
    drawn = "lanesShown().map((lane, index) => (lane.dirty ? -1 : index)).filter((index) => index >= 0)"
    wait_for(page, f"{drawn}.length > 5")
    assert max(page.evaluate(drawn)) < 45 and page.locator("#rows .row").count() < 40
    page.locator(".lane").nth(49).scroll_into_view_if_needed()
    assert ink(page, 49) > 2000
    page.focus("#rows")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("now") == 2399 * 3


def move_the_sliders(show, tmp_path) -> None:
    """With labels: one found, one below the threshold, one never detected; and two false alarms."""
    truth = [Segment(2.0, 4.0, HUG), Segment(5.0, 6.0, HUG), Segment(0.5, 1.0, KICK)]
    write_report(tmp_path / "a.html", timeline_of(Thresholds()), SCORES, truth=truth)
    page = show(tmp_path / "a.html")

    def segments() -> list[tuple]:
        wait_for(page, "!redeciding && !frameAsked")
        return [tuple(one) for one in page.evaluate("segments.map(({ label, start, end }) => [label, start, end])")]

    assert segments() == [(HUG, 2, 4), (HUG, 7, 7.5), (KICK, 7.5, 8.5)]
    assert (facts(page)["Labels found"], facts(page)["False alarms"]) == ("1 of 3", "2")
    detected = tuple(Segment.from_dict(s) for s in timeline_of(Thresholds())["segments"])
    assert parse("csv", saved(page, "#segments-csv"), "").videos["clips/a"].segments == detected
    before = ink(page, 0)
    page.fill("#on", "0.38")
    expected = timeline_of(Thresholds(0.38, 0.35))["segments"]
    assert sorted(segments()) == sorted((s["label"], s["start"], s["end"]) for s in expected)
    assert (facts(page)["Labels found"], facts(page)["Segments"]) == ("2 of 3", "4") and ink(page, 0) > before
    assert page.locator("#words").inner_text() == "--on 0.38 --off 0.35"
    page.fill("#on", "0.8")
    assert segments() == [(HUG, 2, 4)]
    page.click("#as-detected")
    assert len(segments()) == 3 and page.locator("#words").inner_text() == "--on 0.5 --off 0.35"
    # no cell of a table is a formula that a spreadsheet runs
    text = page.evaluate("toCsv([{id: '=a', duration: -0.5, segments: [{start: 1, end: 2, label: \"'@x\"}]}])")
    assert text.splitlines()[1] == "'=a,-0.5,1,2,''@x,"
    assert parse("csv", text, "").videos["=a"].segments == (Segment(1, 2, "'@x"),)


def play_embedded_and_late_videos(show, tmp_path) -> None:
    """An embedded copy needs no other file; where frames begin after the sound, the lanes begin with the frames."""
    write_greys(tmp_path / "old.avi", "mpeg4")
    path = report_on(tmp_path / "old.avi", tmp_path / "report.html", embed=10**6)
    (tmp_path / "old.avi").unlink()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    page = show(path)
    wait_for(page, "watchable")
    assert page.evaluate("$('video').duration") == pytest.approx(SECONDS, abs=0.05)
    click_at(page, 5.1)
    wait_for_picture(page, GREYS[2])
    write_greys(tmp_path / "late.mp4", late=1)
    page = show(report_on(tmp_path / "late.mp4", tmp_path / "late.html"))
    wait_for(page, "watchable")
    click_at(page, 3.5)
    wait_for_picture(page, GREYS[1])
    assert page.evaluate("$('video').currentTime") == pytest.approx(4.5, abs=0.05)


def follow_the_index(show, report, folder) -> None:
    """By overlap or onset: the kick from 0 to 10 s is not found by a detection of two seconds."""
    timeline = {"duration": 10.0, "classes": CLASSES, "segments": SEGMENTS, "warnings": [HOSTILE]}
    shutil.copy(report, folder / "a #2.html")
    timelines = {"a #2": timeline, "a #10": timeline | {"segments": SEGMENTS[:1], "duration": 20.0}, "c": timeline}
    truth = {"a #2": [Segment(0, 10, "kick"), Segment(5, 6, "hug")], "a #10": [Segment(2.5, 4, "kick")], "c": None}
    page = show(write_index(folder, timelines, truth=truth, failed=["d.mp4"]), expected=("NOT_FOUND",))

    def names() -> list[str]:
        return page.locator("td a").all_inner_texts()

    assert ink(page, 0) > ink(page, 1) > 0 and names() == ["a #2", "a #10", "c"]
    assert (facts(page)["Labels found"], facts(page)["False alarms"]) == ("2 of 3", "2")
    for _ in range(2):
        page.click("button[data-key=found]")
    assert names() == ["a #10", "a #2", "c"]
    page.click("button[data-key=id]")
    page.select_option("#class", label=HOSTILE)
    assert names() == ["a #2", "c"]
    page.select_option("#class", "")
    page.fill("#find", "A #1")
    detected = tuple(Segment.from_dict(entry) for entry in SEGMENTS[:1])
    assert parse("csv", saved(page, "#all-csv"), "").videos["a #10"].segments == detected
    page.fill("#find", "")
    page.focus("td a")
    page.keyboard.press("Enter")
    page.locator("#title", has_text="live").wait_for()
