"""The page of an evaluation in headless Chromium: the errors in all videos, one after another."""

import pytest

from tests.support.browser import HOSTILE, ink, seconds, wait_for, wait_for_picture, write_greys
from tests.support.scored import ERRORS, make_evaluation, page_of


@pytest.mark.long
def test_evaluation(show, tmp_path):
    """By keys, with the frames of the errors, and by mouse."""
    write_greys(tmp_path / "greys.mp4")
    page = show(page_of(tmp_path / "report", make_evaluation({"b": tmp_path / "greys.mp4"})))

    def current() -> tuple[str, str, float]:
        """Return the text about the current error, its video and the position of the cursor."""
        video = page.locator("#videos [aria-current] .cut").inner_text()
        return page.locator("#error").inner_text(), video, seconds(page)

    assert page.locator("table:visible").count() == 0 and page.locator("figure:visible").count() == 4
    page.locator("summary").first.click()
    assert page.locator("table:visible").count() and ink(page, 0) > 0
    figures = dict(item.split("\n")[:2] for item in page.locator(".needed > div").all_inner_texts())
    assert "2 of 3" in figures.values() and "4" in figures.values()
    wait_for(page, "watchable")
    for number, (video, kind, label, start) in enumerate(ERRORS, start=1):
        page.keyboard.press("x")
        text, *place = current()
        assert all(part in text for part in (f"{number} of {len(ERRORS)}", kind, label, f"0:0{start:.2f}"))
        assert place == [video, start]
        if video == "b" and start:
            wait_for_picture(page, {5.0: 140, 6.5: 190}[start])
    assert page.locator("#no-video").is_visible(), "the file of the last video is missing"
    page.keyboard.press("x")
    assert current()[1:] == ("b", ERRORS[0][3]), "starts over"
    page.keyboard.press("Shift+X")
    assert seconds(page) == ERRORS[-1][3]
    page.click("#error-before")
    assert seconds(page) == ERRORS[-2][3]

    page.select_option("#which", label="Missed (1)")
    page.keyboard.press("x")
    assert "1 of 1" in current()[0] and current()[1] == "a"
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
    assert "3 of 5" in current()[0], "the next error after the cursor"
    page.locator("#videos button", has_text="c").click()
    assert page.locator("#nothing").is_visible()
