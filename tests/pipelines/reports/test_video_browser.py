"""Videos in a report in a real headless Chromium: as they are, as a copy, inside the page, and gone."""

import shutil

import pytest

from tests.support.browser import GREYS, SECONDS, click_at, report_on, seconds, until, wait_for_picture, write_greys

pytestmark = pytest.mark.long  # a page in a browser: `make test` opens those of rules, ways, index and labels


@pytest.mark.parametrize(("name", "codec"), [("old.avi", "mpeg4"), ("old.mp4", "mpeg4"), ("new.mp4", "libx265")])
def test_what_browsers_cannot_play_plays_as_a_copy(show, tmp_path, name, codec):
    write_greys(tmp_path / name, codec)
    page = show(report_on(tmp_path / name, tmp_path / "report.html"))
    until(page, "watchable")
    assert page.evaluate("video.duration") == pytest.approx(SECONDS, abs=0.05)
    assert "report.lstr-proxy.mp4, a small H.264 copy" in page.locator("#run").inner_text()
    click_at(page, 5.1)
    wait_for_picture(page, GREYS[2])


@pytest.mark.parametrize("name", ["old.avi", "plain.mp4"])
def test_an_embedded_video_needs_no_other_file(show, tmp_path, name):
    write_greys(tmp_path / name, "mpeg4" if name == "old.avi" else "libx264")
    path = report_on(tmp_path / name, tmp_path / "report.html", embed=10**6)
    (tmp_path / name).unlink()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    page = show(path)
    until(page, "watchable")
    click_at(page, 5.1)
    wait_for_picture(page, GREYS[2])
    assert page.locator("#media").count() == 0


def test_pictures_that_begin_after_the_sound(show, tmp_path):
    """The clock of a player begins with the sound, that of the lanes with the pictures."""
    write_greys(tmp_path / "late.mp4", late=1)
    page = show(report_on(tmp_path / "late.mp4", tmp_path / "report.html"))
    until(page, "watchable")
    wait_for_picture(page, GREYS[0])
    click_at(page, 3.5)
    wait_for_picture(page, GREYS[1])
    assert page.evaluate("video.currentTime") == pytest.approx(4.5, abs=0.05)
    page.click("#play")
    until(page, "now > 3.8")
    page.click("#play")
    until(page, "video.paused && !playing")
    assert page.evaluate("video.currentTime - now") == pytest.approx(1, abs=0.05)


def test_a_video_that_is_gone_leaves_a_timeline_that_works(show, report, tmp_path):
    shutil.copy(report, tmp_path / "alone.html")
    page = show(tmp_path / "alone.html", missing="ERR_FILE_NOT_FOUND")
    page.locator("#no-video", has_text="cannot play live").wait_for()
    page.click("#play")
    until(page, "now > 0.1")
    page.click("#play")
    click_at(page, 2.5)
    assert seconds(page) == pytest.approx(2.5, abs=0.05)
    assert page.locator("#decision").inner_text() == "kick"
