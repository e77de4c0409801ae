"""The index of several reports in a real headless Chromium."""

import shutil

import pytest

from pipelines.reports.index_page import write_index
from tests.support.browser import CLASSES, HOSTILE, SEGMENTS, ink


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
