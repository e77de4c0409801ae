"""From report to report by their index, and corrections that outlive a closed tab, in a real headless Chromium."""

import pytest

from lstr.labels.label_set import read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.tables import from_csv
from lstr.pipelines.reports.timeline_page import index_path, write_index, write_report
from lstr.timeline import Thresholds
from tests.pipelines.reports.test_corrections_browser import HUG, KICK, SCORES, saved, settled, timeline_of
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


def test_a_filter_holds_from_video_to_video(show, tmp_path):
    """Who looks for missed labels alone is led past the false alarm."""
    page = show(write_reports(tmp_path))
    page.select_option("#which", "missed")
    assert page.locator("td a:visible").all_inner_texts() == ["c"]
    page.select_option("#which", "errors")
    assert page.locator("td a:visible").all_inner_texts() == ["a", "c"]
    page.goto((tmp_path / "a.html").as_uri())
    settled(page)
    page.select_option("#which", "missed")
    assert page.locator("#rows .row").count() == 0
    page.keyboard.press("Escape")
    page.click("#error-after")
    arrive(page, "/c.html")
    assert page.locator("#which").input_value() == "missed" and page.locator("#rows .row").count() == 1


def test_links_lead_to_the_index_and_to_the_videos_beside(show, tmp_path):
    page = show(write_reports(tmp_path))
    page.goto((tmp_path / "a.html").as_uri())
    settled(page)
    page.click("#way-after")
    arrive(page, "/deep/b%20%231.html")
    page.keyboard.press("Shift+N")
    arrive(page, "/c.html")
    page.click("#way-before")
    arrive(page, "/deep/b%20%231.html")
    page.click("#way-index")
    arrive(page, "/index.html")
    page.goto((tmp_path / "a.html").as_uri())
    settled(page)
    page.keyboard.press("Shift+P")
    arrive(page, "/index.html")
    assert page.locator("#told").inner_text() == "a is the first video."


def test_a_report_that_is_alone_has_no_links(show, tmp_path):
    write_report(tmp_path / "a.html", timeline_of(Thresholds()), SCORES, truth=VIDEOS["a"])
    page = show(tmp_path / "a.html")
    assert page.locator("#ways").is_hidden()
    for _ in range(2):
        page.keyboard.press("x")
    assert page.locator("#error").text_content() == "No other error"


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


def test_what_is_kept_of_other_labels_is_not_shown(show, tmp_path):
    write_reports(tmp_path)
    page = show(tmp_path / "a.html")
    page.locator("#rows .row.false .yes").click()
    page.locator("#kept-state", has_text="Kept in this browser").wait_for()
    write_reports(tmp_path, {**VIDEOS, "a": FOUND[:1]})
    page.reload()
    settled(page)
    assert page.evaluate("truth.length") == 1 and page.locator("#undo").is_disabled()


def test_a_browser_that_keeps_nothing_is_told_of(show, tmp_path):
    write_reports(tmp_path)
    page = show(tmp_path / "a.html")
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }")
    page.locator("#rows .row.false .yes").click()
    page.locator("#kept-state", has_text="Not kept: download the labels").wait_for()
    assert page.evaluate("!dispatchEvent(new Event('beforeunload', { cancelable: true }))"), "it asks before it closes"
    page.click("#undo")
    until(page, "!unsaved")


@pytest.mark.parametrize("text", ["{", "null", '{"truth": [1], "wrongs": [], "labels": {"segments": []}}', "[]"])
def test_what_stands_in_the_store_may_be_anything(show, tmp_path, text):
    write_reports(tmp_path)
    page = show(tmp_path / "a.html")
    page.evaluate("(text) => localStorage.setItem(keptName(location.href, report.given), text)", text)
    page.reload()
    settled(page)
    assert page.evaluate("truth.length") == 2 and page.locator("#undo").is_disabled()


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


def test_videos_that_nobody_has_labelled_are_in_no_labels(show, tmp_path):
    page = show(write_reports(tmp_path, dict.fromkeys("ab")))
    assert page.locator("#labels").is_hidden() and page.locator("#error").is_hidden()
    page.goto((tmp_path / "a.html").as_uri())
    settled(page)
    page.focus("#rows")
    page.keyboard.press("r")
    page.uncheck("#take-rest")
    page.click("#way-index")
    arrive(page, "/index.html")
    until(page, "$('corrected').textContent === '1 video, 1 corrected'")  # the page before may keep it a moment later
    assert list(from_csv(saved(page, "#labels-csv")[1], "").videos) == ["a"]


@pytest.mark.parametrize("width", [390, 820])
def test_the_picture_stays_in_sight_on_a_phone(show, report, width):
    page = show(report, width)
    page.locator("#rows").scroll_into_view_if_needed()
    page.mouse.wheel(0, 300)
    until(page, "scrollY > 300")
    box, height = page.locator(".screen").bounding_box(), page.viewport_size["height"]
    assert box["y"] >= -1 and box["y"] + box["height"] <= height / 2
    over = page.evaluate("document.elementFromPoint(innerWidth / 2, 40).closest('.screen, .transport') !== null")
    assert over, "nothing is drawn over it"


def test_figures_of_engineers_are_folded(show, report):
    page = show(report)
    facts = page.locator("#facts").inner_text()
    assert "Real time" not in facts and "False alarms" in facts
    assert page.locator("#speed").is_hidden() and "8f3ac01d" not in page.locator("footer").inner_text()
    page.click("#details summary")
    assert (
        "8f3ac01d" in page.locator("#speed").inner_text() and "Times real time" in page.locator("#speed").inner_text()
    )
