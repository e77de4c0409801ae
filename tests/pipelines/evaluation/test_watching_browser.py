"""The page of an evaluation in a real headless Chromium: from error to error, through all videos."""

import pytest

from tests.support.browser import HOSTILE, ink, seconds, wait_for, wait_for_picture, write_greys
from tests.support.scored import ERRORS, make_evaluation, page_of


def told(page) -> str:
    return page.locator("#error").inner_text()


def shown_video(page) -> str:
    return page.locator("#videos [aria-current] .cut").inner_text()


@pytest.mark.long
def test_evaluation(show, tmp_path):
    """By keys, with the pictures of the errors, and chosen by hand."""
    write_greys(tmp_path / "greys.mp4")
    page = show(page_of(tmp_path / "report", make_evaluation({"b": tmp_path / "greys.mp4"})))
    assert page.locator("table:visible").count() == 0 and page.locator("figure:visible").count() == 4
    page.locator("summary").first.click()
    assert page.locator("table:visible").count() and ink(page, 0) > 0
    figures = dict(item.split("\n")[:2] for item in page.locator(".needed > div").all_inner_texts())
    assert "2 of 3" in figures.values() and "4" in figures.values()
    wait_for(page, "watchable")
    for at, (video, kind, label, start) in enumerate(ERRORS):
        page.keyboard.press("x")
        assert all(part in told(page) for part in (f"{at + 1} of {len(ERRORS)}", kind, label, f"0:0{start:.2f}"))
        assert shown_video(page) == video and seconds(page) == start
        if video == "b" and start:
            wait_for_picture(page, {5.0: 140, 6.5: 190}[start])
    assert page.locator("#no-video").is_visible(), "the file of that video is not there"
    page.keyboard.press("x")
    assert seconds(page) == ERRORS[0][3] and shown_video(page) == "b", "after the last comes the first"
    page.keyboard.press("Shift+X")
    assert seconds(page) == ERRORS[-1][3]
    page.click("#error-before")
    assert seconds(page) == ERRORS[-2][3]

    page.select_option("#which", label="Missed (1)")
    page.keyboard.press("x")
    assert "1 of 1" in told(page) and shown_video(page) == "a"
    page.select_option("#which", label=f"{HOSTILE} (3)")
    assert page.locator("#errors button").count() == 1
    page.select_option("#which", "")
    page.locator("#videos button", has_text="b").first.click()
    page.locator("#errors button").nth(1).focus()
    page.keyboard.press("Enter")
    assert seconds(page) == 5.0
    box = page.locator("#surface").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + 5)
    page.keyboard.press("x")
    assert "3 of 5" in told(page), "from the cursor on"
    page.locator("#videos button", has_text="c").click()
    assert page.locator("#nothing").is_visible()
