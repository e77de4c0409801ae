"""The page of an evaluation in a real headless Chromium: from error to error, through all videos."""

import pytest

from tests.support.browser import HOSTILE, ink, seconds, until, wait_for_picture, write_greys
from tests.support.scored import ERRORS, judged, page_of

pytestmark = pytest.mark.long  # a page in a browser: `make test` opens those of rules, ways, index and labels


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """An evaluation of three videos, of which the file of one is there."""
    folder = tmp_path_factory.mktemp("an evaluation #1")
    write_greys(folder / "greys.mp4")
    return page_of(folder / "report", judged({"b": folder / "greys.mp4"}))


def told(page) -> str:
    return page.locator("#error").inner_text()


def shown_video(page) -> str:
    return page.locator("#videos [aria-current] .cut").inner_text()


def test_it_opens_with_the_videos_and_folds_the_tables(show, evaluated):
    page = show(evaluated, 390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    tops = [page.locator(part).first.bounding_box()["y"] for part in ("#watching", ".needed", "figure", "details")]
    assert tops == sorted(tops) and tops[0] < 300
    assert page.locator("table:visible").count() == 0 and page.locator("figure:visible").count() == 4
    page.locator("summary", has_text="Actions found, by action").click()
    assert page.locator("table:visible").count() == 5
    assert ink(page, 0) > 0
    figures = dict(item.split("\n")[:2] for item in page.locator(".needed > div").all_inner_texts())
    assert figures["Actions found"] == "2 of 3" and figures["False alarms"] == "4"


def test_a_key_leads_to_each_error_and_back(show, evaluated):
    """Each is named for a screen reader, in the order of the page; after the last comes the first."""
    page = show(evaluated)
    assert page.locator("#error").get_attribute("role") == "status" and page.locator("kbd", has_text="x").count()
    seen = []
    for _ in ERRORS:
        page.keyboard.press("x")
        seen.append(told(page))
        video, kind, label, start = ERRORS[len(seen) - 1]
        assert seen[-1].startswith(f"Error {len(seen)} of {len(ERRORS)}: {kind}, {label}, 0:0{start:.2f} to ")
        assert seen[-1].endswith(f" in {video}") and shown_video(page) == video and seconds(page) == start
        button = page.locator("#errors [aria-current]")
        assert button.get_attribute("aria-label") == seen[-1].partition(": ")[2].rpartition(" in ")[0]
    page.keyboard.press("x")
    assert told(page) == seen[0] and shown_video(page) == "b"
    page.keyboard.press("Shift+X")
    assert told(page) == seen[-1]
    page.click("#error-before")
    assert told(page) == seen[-2]
    page.click("#error-after")
    assert told(page) == seen[-1]


def test_the_picture_is_that_of_the_error(show, evaluated):
    page = show(evaluated)
    until(page, "watchable")
    for _ in range(2):
        page.keyboard.press("x")
    wait_for_picture(page, 140)  # of the third two seconds
    page.keyboard.press("x")
    wait_for_picture(page, 190)
    page.keyboard.press("x")
    assert shown_video(page) == "a" and "not where it was" in page.locator("#no-video").inner_text()
    page.keyboard.press("Shift+X")
    wait_for_picture(page, 190)


def test_errors_and_videos_are_chosen_by_hand(show, evaluated):
    page = show(evaluated)
    page.select_option("#which", label="Missed (1)")
    page.keyboard.press("x")
    assert told(page).startswith("Error 1 of 1: missed, <script>") and shown_video(page) == "a"
    assert page.locator("#errors .kind").all_inner_texts() == ["missed: nothing"]
    page.select_option("#which", label=f"{HOSTILE} (3)")
    assert page.locator("#errors button").count() == 1
    page.select_option("#which", "")
    page.locator("#videos button", has_text="b").first.click()
    page.locator("#errors button").nth(1).focus()
    page.keyboard.press("Enter")
    assert told(page).startswith("Error 2 of 5: false alarm, <script>") and seconds(page) == 5.0
    box = page.locator("#surface").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + 5)
    assert told(page) == "" and 5.9 < seconds(page) < 6.1
    page.keyboard.press("x")
    assert told(page).startswith("Error 3 of 5"), "from the cursor on"
    page.locator("#videos button", has_text="c").click()
    assert page.locator("#nothing").is_visible() and page.locator("#of-errors").inner_text() == "No error in c"
    page.select_option("#which", "~nothing there")
    page.keyboard.press("x")
    assert "(nothing there)" in told(page)
