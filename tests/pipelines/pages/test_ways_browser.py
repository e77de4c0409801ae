"""From report to report by their index, and corrections that outlive a closed tab, in a real headless Chromium."""

import pytest

from lstr.labels.label_set import read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.pages.timeline_page import index_path, write_index, write_report
from lstr.timeline import Thresholds
from tests.pipelines.pages.test_corrections_browser import HUG, KICK, SCORES, saved, settled, timeline_of
from tests.support.browser import seconds, until

pytestmark = pytest.mark.long

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
        write_report(report, timelines[name], SCORES, truth=labels, subset="testing", index=index)
    return write_index(folder, timelines, truth=truth, subsets=dict.fromkeys(truth, "testing"))


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


def test_corrections_outlive_a_closed_tab(chromium, tmp_path):
    """They come back, are undone to what the labels were, and are then forgotten."""
    write_reports(tmp_path)
    context = chromium.new_context()
    page = context.new_page()
    page.goto((tmp_path / "a.html").as_uri())
    settled(page)
    page.locator("#rows .row.false .yes").click()
    page.select_option("#subset", "validation")
    page.click("#edit")
    page.fill("#label-name", "wave")
    page.keyboard.press("Enter")
    page.locator("#kept-state", has_text="Kept in this browser").wait_for()
    page.close()
    again = context.new_page()
    again.goto((tmp_path / "a.html").as_uri())
    settled(again)
    corrected = [[HUG, 2, 4], [HUG, 7, 7.5], ["wave", 7.5, 8.5]]
    labels = "truth.map(({ label, start, end }) => [label, start, end])"
    assert again.evaluate(labels) == corrected and again.locator("#subset").input_value() == "validation"
    assert again.locator("#kept-state").inner_text().startswith("As you left it, ")
    assert "wave" in again.locator(".lane:visible .cut").all_inner_texts()
    again.click("#undo")
    assert again.evaluate(labels) == corrected[:2]
    until(again, "!unsaved")
    assert again.evaluate("localStorage.length") == 0
    context.close()


def test_one_download_has_the_labels_of_all_videos(show, tmp_path):
    """Corrected ones as they were corrected, the others as they were labelled, each in its subset."""
    page = show(write_reports(tmp_path))
    assert page.locator("#labels").inner_text().startswith("Labels of 4 videos, 0 corrected")
    page.goto((tmp_path / "a.html").as_uri())
    settled(page)
    page.locator("#rows .row.false .yes").click()
    page.select_option("#subset", "training")
    page.click("#way-index")  # at once: nothing has been kept yet
    arrive(page, "/index.html")
    until(page, "$('corrected').textContent === '4 videos, 1 corrected'")  # the page before may keep it a moment later
    assert page.locator(".corrected:visible").count() == 1
    page.select_option("#which", "uncorrected")
    assert page.locator("td a:visible").all_inner_texts() == ["deep/b #1", "c", "d"]
    (tmp_path / "labels.json").write_text(saved(page, "#labels-json")[1], encoding="utf-8")
    videos = read_labels(tmp_path / "labels.json").videos
    subsets = {name: video.subset for name, video in videos.items()}
    assert subsets == {
        **dict.fromkeys(VIDEOS, "testing"),
        "a": "training",
    }
    assert videos["a"].segments == tuple(FOUND) and videos["c"].segments == tuple(VIDEOS["c"])
    table = from_csv(saved(page, "#labels-csv")[1], "").videos
    assert {name: sorted(video.segments, key=str) for name, video in table.items()} == {
        name: sorted(video.segments, key=str) for name, video in videos.items()
    }
