"""The index of several reports in a real headless Chromium."""

import shutil

from lstr.labels.segment import Segment
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.annotations.subtitles import from_vtt
from lstr.pipelines.pages.timeline_page import write_index
from tests.support.browser import CLASSES, HOSTILE, SEGMENTS, ink


def test_the_index_leads_to_each_report(show, report, tmp_path):
    timeline = {"duration": 10.0, "classes": CLASSES, "segments": SEGMENTS, "warnings": [HOSTILE]}
    shutil.copy(report, tmp_path / "a clip #2.html")
    timelines = {"a clip #2": timeline, "a clip #10": timeline | {"segments": SEGMENTS[:1], "duration": 20.0}}
    page = show(write_index(tmp_path, timelines, failed=["c.mp4 is empty (0 bytes)."]), missing="NOT_FOUND")
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


def test_it_tells_what_was_found_and_hands_out_files(show, tmp_path):
    """By overlap or onset: the kick from 0 to 10 s is not found by a detection of two seconds."""
    timeline = {"duration": 10.0, "classes": CLASSES, "segments": SEGMENTS}
    timelines = {"deep/a": timeline, "b": timeline | {"segments": SEGMENTS[:1]}, "c": timeline}
    truth = {"deep/a": [Segment(0, 10, "kick"), Segment(5, 6, "hug")], "b": [Segment(2.5, 4, "kick")], "c": None}
    page = show(write_index(tmp_path, timelines, truth=truth))
    facts = dict(item.split("\n") for item in page.locator("#facts > div").all_inner_texts())
    assert facts["Labels found"] == "2 of 3" and facts["False alarms"] == "2"
    page.click("button[data-key=found]")
    page.click("button[data-key=found]")
    assert page.locator("td a").all_inner_texts() == ["b", "deep/a", "c"]
    assert page.locator("td.found").all_inner_texts() == ["1 of 1", "0", "1 of 2", "2", "–", "–"]
    detected = tuple(Segment.from_dict(entry) for entry in SEGMENTS)
    with page.expect_download() as started:
        page.locator("tr", has_text="deep/a").get_by_text("VTT").click()
    assert started.value.suggested_filename == "a.vtt"
    found = from_vtt(started.value.path().read_text("utf-8")).segments
    assert [(s.start, s.end, s.score) for s in found] == [(s.start, s.end, s.score) for s in detected]
    page.fill("#find", "b")
    with page.expect_download() as started:
        page.click("#all-csv")
    assert from_csv(started.value.path().read_text("utf-8"), "").videos["b"].segments == detected[:1]
