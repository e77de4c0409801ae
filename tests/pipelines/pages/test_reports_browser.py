"""The reports of several videos in a real headless Chromium: thresholds, errors from video to video, and downloads."""

import numpy as np
import pytest

from lstr.labels.segment import Segment
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.annotations.subtitles import from_vtt
from lstr.pipelines.pages.timeline_page import index_path, write_index, write_report
from lstr.timeline import Thresholds, Timeline, segments_in
from tests.support.browser import ink, seconds, until

pytestmark = pytest.mark.long

CLASSES = ["Background", "hug", 'kick, "high"']
HUG, KICK = CLASSES[1:]
CHUNKS = 40
SCORES = np.full((CHUNKS, 3), 0.1)
SCORES[8:16, 1], SCORES[20:24, 1], SCORES[28:30, 1], SCORES[30:34, 2] = 0.9, 0.4, 0.6, 0.7
TRUTH = [Segment(2.0, 4.0, HUG), Segment(5.0, 6.0, HUG), Segment(0.5, 1.0, KICK)]


def timeline_of(rules: Thresholds) -> dict:
    """What `lstr detect` writes for the scores."""
    timeline = Timeline(tuple(CLASSES), rules)
    events = [event for chunk, scores in enumerate(SCORES) for event in timeline.push((chunk + 1) * 0.25, scores)]
    segments = [segment.to_dict() for segment in segments_in(events + timeline.finish(CHUNKS * 0.25))]
    document = {"source": "clips/a.mp4", "duration": 10.0, "classes": CLASSES, "chunks": CHUNKS, "segments": segments}
    return document | {"id": "clips/a", "thresholds": timeline.describe()}


def settled(page) -> None:
    until(page, "!redeciding && !frameAsked")


def try_on(page, on: float) -> None:
    """Move the slider of the threshold of all classes."""
    page.fill("#on", f"{on:g}")
    settled(page)


def now_segments(page) -> list[tuple]:
    return [tuple(entry) for entry in page.evaluate("segments.map(({ label, start, end }) => [label, start, end])")]


def facts(page) -> dict[str, str]:
    return dict(item.split("\n") for item in page.locator("#facts > div").all_inner_texts())


def saved(page, button: str) -> tuple[str, str]:
    """The name and the text of the file that a button downloads."""
    with page.expect_download() as started:
        page.click(button)
    return started.value.suggested_filename, started.value.path().read_text("utf-8")


def test_a_slider_decides_again_and_back(show, tmp_path):
    """With labels: one found, one below the threshold, one never seen; and two false alarms."""
    write_report(tmp_path / "a.html", timeline_of(Thresholds()), SCORES, truth=TRUTH)
    page = show(tmp_path / "a.html")
    assert now_segments(page) == [(HUG, 2, 4), (HUG, 7, 7.5), (KICK, 7.5, 8.5)]
    assert facts(page)["Labels found"] == "1 of 3" and facts(page)["False alarms"] == "2"
    before = ink(page, 0)
    try_on(page, 0.38)
    expected = timeline_of(Thresholds(0.38, 0.35))["segments"]
    assert sorted(now_segments(page)) == sorted((s["label"], s["start"], s["end"]) for s in expected)
    assert (HUG, 5, 6) in now_segments(page)
    assert facts(page)["Labels found"] == "2 of 3" and facts(page)["Segments"] == "4"
    assert page.locator("#count").inner_text() == "4 segments"
    assert page.locator("#verdict").inner_text().startswith("2 of 3 labels found")
    assert ink(page, 0) > before
    assert page.locator("#words").inner_text() == "--on 0.38 --off 0.35"
    try_on(page, 0.8)
    assert now_segments(page) == [(HUG, 2, 4)]
    page.click("#as-detected")
    settled(page)
    assert len(now_segments(page)) == 3 and page.locator("#words").inner_text() == "--on 0.5 --off 0.35"


FOUND = [Segment(2, 4, HUG), Segment(7, 7.5, HUG), Segment(7.5, 8.5, KICK)]
"""Labels of which every one is found, and nothing else"""
VIDEOS = {"a": FOUND[:2], "deep/b #1": FOUND, "c": [*FOUND, Segment(0.25, 1, KICK)], "d": FOUND}
"""The last segment of a is a false alarm, the first label of c is missed"""


def write_reports(folder, truth=VIDEOS):
    """Four reports and their index, as `lstr detect` leaves them."""
    index = index_path(folder, truth)
    timelines = {}
    for name, labels in truth.items():
        timelines[name] = timeline_of(Thresholds()) | {"id": name}
        report = folder / f"{name}.html"
        write_report(report, timelines[name], SCORES, truth=labels, index=index)
    return write_index(folder, timelines, truth=truth)


def arrive(page, name: str) -> None:
    """Wait until the report of a video, or the index, has come."""
    page.wait_for_url(lambda url: url.partition("#")[0].endswith(name), timeout=20_000)
    until(page, "document.readyState === 'complete' && (typeof frameAsked === 'undefined' || !frameAsked)")


def test_a_key_leads_through_the_errors_of_all_videos(show, tmp_path):
    """Videos without an error are passed over, forth and back; after the last one the index says so."""
    page = show(write_reports(tmp_path))
    page.keyboard.press("x")
    arrive(page, "/a.html")
    assert seconds(page) == 7.5 and page.locator("#error").text_content().startswith("Error 1 of 1: kick")
    page.keyboard.press("x")
    arrive(page, "/c.html")
    assert seconds(page) == 0.25 and "missed" in page.locator("#error").text_content()
    page.keyboard.press("Shift+X")
    arrive(page, "/a.html")
    assert seconds(page) == 7.5
    page.click("#error-after")
    arrive(page, "/c.html")
    page.keyboard.press("x")
    arrive(page, "/index.html")
    assert page.locator("#told").inner_text() == "No other error after c."


def test_downloads_are_read_back(show, tmp_path):
    """No cell of a table is a formula that a spreadsheet runs."""
    write_report(tmp_path / "a.html", timeline_of(Thresholds()), SCORES)
    page = show(tmp_path / "a.html")
    assert page.locator("#verdict").is_hidden()
    text = page.evaluate("toCsv([{id: '=a', duration: -0.5, segments: [{start: 1, end: 2, label: \"'@x\"}]}])")
    assert text.splitlines()[1] == "'=a,-0.5,1,2,''@x,"
    assert from_csv(text, "").videos["=a"].segments == (Segment(1, 2, "'@x"),)
    detected = tuple(Segment.from_dict(s) for s in timeline_of(Thresholds())["segments"])
    assert from_csv(saved(page, "#segments-csv")[1], "").videos["clips/a"].segments == detected
    name, text = saved(page, "#segments-vtt")
    assert name == "a.vtt" and from_vtt(text).segments == detected
