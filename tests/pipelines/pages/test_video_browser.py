"""Videos in a report in a real headless Chromium: a copy inside the page, and pictures that begin late."""

import pytest

from tests.support.browser import GREYS, SECONDS, click_at, report_on, until, wait_for_picture, write_greys

pytestmark = pytest.mark.long  # a page in a browser: `make test` opens those of rules, ways, index and labels


def test_an_embedded_copy_of_what_browsers_cannot_play_needs_no_other_file(show, tmp_path):
    write_greys(tmp_path / "old.avi", "mpeg4")
    path = report_on(tmp_path / "old.avi", tmp_path / "report.html", embed=10**6)
    (tmp_path / "old.avi").unlink()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    page = show(path)
    until(page, "watchable")
    assert page.evaluate("$('video').duration") == pytest.approx(SECONDS, abs=0.05)
    click_at(page, 5.1)
    wait_for_picture(page, GREYS[2])


def test_pictures_that_begin_after_the_sound(show, tmp_path):
    """The clock of a player begins with the sound, that of the lanes with the pictures."""
    write_greys(tmp_path / "late.mp4", late=1)
    page = show(report_on(tmp_path / "late.mp4", tmp_path / "report.html"))
    until(page, "watchable")
    wait_for_picture(page, GREYS[0])
    click_at(page, 3.5)
    wait_for_picture(page, GREYS[1])
    assert page.evaluate("$('video').currentTime") == pytest.approx(4.5, abs=0.05)
    page.click("#play")
    until(page, "now > 3.8")
    page.click("#play")
    until(page, "$('video').paused && !playing")
    assert page.evaluate("$('video').currentTime - now") == pytest.approx(1, abs=0.05)
