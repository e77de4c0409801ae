"""The HTML report in a real headless Chromium: it draws, plays, seeks, filters, and takes two hours of 50 classes."""

import numpy as np
import pytest

from lstr.pipelines.pages.timeline_page import FULL_SCALE, write_report
from tests.support.browser import (
    GREYS,
    HOSTILE,
    click_at,
    ink,
    seconds,
    segment,
    until,
    wait_for_picture,
)
from tests.support.pages import make_scores, make_timeline

pytestmark = pytest.mark.long  # a page in a browser: `make test` opens those of rules, ways, index and labels


def test_markup_in_a_label_is_text_and_the_password_is_nowhere(show, report):
    page = show(report)
    assert page.locator("#warnings").inner_text() == HOSTILE
    assert page.locator("script").count() == 2
    assert "hunter2" not in report.read_text()
    assert page.locator("#run").inner_text().splitlines()[1] == "rtsp://camera/live"


def test_a_camera_has_its_name_and_the_clock_of_the_wall(show, tmp_path):
    """Its seconds run behind that clock where it was away: what is known are its beginning and the edges of actions."""
    away = {
        "start": 2,
        "end": 3,
        "start_at": "2026-11-25T23:59:55.250+01:00",
        "end_at": "2026-11-26T00:00:01.000+01:00",
    }
    action = {"label": "kick", "score": 0.9, "start": 4, "end": 5.5, "start_at": "2026-11-26T00:00:02.000+01:00"}
    timeline = make_timeline(40, ["Background", "kick"], name="hall", source="rtsp://camera/die", gaps=[away])
    timeline |= {"segments": [action], "live": {"began": "2026-11-25T23:59:53.250+01:00"}}
    write_report(tmp_path / "hall.html", timeline, make_scores(40, 2))
    page = show(tmp_path / "hall.html")
    assert page.title().startswith("hall – ") and page.locator("#title").inner_text() == "hall"
    row = page.locator("#rows .row")
    assert row.locator(".from").inner_text() == "00:00:02" and row.locator(".from").get_attribute("title") == "0:04.00"
    assert row.locator(".to").inner_text() == "00:00:03"
    assert page.evaluate("[0, 1, 2.5, 3].map(wall)") == ["23:59:53", "23:59:54", "23:59:55", "00:00:01"]
    assert "made at 0:00.25 (23:59:53)" in page.locator("#chunk").inner_text()


def test_it_plays_and_the_cursor_follows(show, report):
    page = show(report)
    until(page, "watchable")
    click_at(page, 1.7)
    page.click("#play")
    until(page, "playing")  # the browser tells the page of it later than the click returns
    assert page.get_attribute("#play", "aria-label") == "Pause"
    until(page, "now > 2.1")
    page.evaluate("$('video').pause()")
    until(page, "!playing && !frameAsked")
    at = page.evaluate("$('video').currentTime")
    assert seconds(page) == pytest.approx(at, abs=0.1)
    wait_for_picture(page, GREYS[min(4, int(at / 2))])
    click_at(page, 9.6)
    page.select_option("#rate", "8")
    page.click("#play")
    until(page, "$('video').ended && !playing")
    assert page.get_attribute("#play", "aria-label") == "Play"
    until(page, "!frameAsked")
    moved_to = page.evaluate("new DOMMatrix(getComputedStyle($('cursor')).transform).e / $('surface').clientWidth")
    assert moved_to == pytest.approx(1, abs=0.02)


def test_delays_are_told_against_the_labels(show, report):
    page = show(report)
    assert page.locator("#verdict").inner_text() == (
        "1 of 3 labels found, announced +1.25 s from their start (median) · 2 false alarms"
    )
    rows = [row.split("\n") for row in page.locator("#rows .row").all_inner_texts()]
    assert [row[0] for row in rows] == [HOSTILE, "kick", "hug", HOSTILE, "wave"]
    assert rows[1][4:] == ["+0.50 s", "+1.25 s", "0.90"]
    assert [rows[i][5] for i in (0, 2, 3, 4)] == ["missed", "false alarm", "false alarm", "missed"]
    spoken = page.locator("#rows .row").nth(1).get_attribute("aria-label")
    assert spoken == (
        "kick, 0:02.00 to 0:04.00, score 0.90, announced 0.50 seconds after its start, "
        "+1.25 seconds from the label's start"
    )


def test_a_key_leads_to_each_error(show, report):
    """Missed labels and false alarms by time, named for a screen reader; none of them has a tick."""
    page = show(report)
    seen = []
    for key in ("x", "x", "x", "x", "x", "Shift+X"):
        page.keyboard.press(key)
        seen.append((page.locator("#error").text_content(), seconds(page)))
    assert [at for _, at in seen] == [0, 5, 6, 8, 8, 6]
    texts = [text for text, _ in seen]
    assert texts[1].startswith("Error 2 of 4: hug, 0:05.00 to 0:05.50") and texts[1].endswith("false alarm")
    assert texts[3] == "Error 4 of 4: wave, 0:08.00 to 0:09.00, labelled, missed"
    assert texts[4] == "No other error" and texts[5] == texts[2]
    looks = page.locator("#rows .row .spot").evaluate_all("(spots) => spots.map(({ className }) => className)")
    assert looks == ["spot hollow", "spot", "spot hatched", "spot hatched", "spot hollow"]
    assert page.locator("#rows .missed .on").count() == 0 and page.locator("#rows .missed .yes:visible").count() == 0
    assert page.locator("#legend-false").is_visible()


def test_two_hours_of_fifty_classes(show, tmp_path):
    """All of it is reachable, but only what is in sight is drawn or is an element."""
    chunks, classes = 28_800, ["Background", *(f"action {c}" for c in range(1, 51))]
    scores = np.random.default_rng(0).random((chunks, 51), np.float32)
    scores[12_345, 50] = 1.0
    segments = [segment(classes[1 + i % 50], i * 3.0, i * 3.0 + 2, 0.75) for i in range(2400)]
    timeline = {"source": "day.mp4", "duration": 7200.0, "classes": classes, "chunks": chunks, "segments": segments}
    write_report(tmp_path / "big.html", timeline, scores)
    page = show(tmp_path / "big.html")
    drawn = "lanesShown().map((lane, index) => (lane.dirty ? -1 : index)).filter((index) => index >= 0)"
    until(page, f"{drawn}.length > 5")
    assert max(page.evaluate(drawn)) < 45
    assert page.locator("#rows .row").count() < 40
    page.locator(".lane").nth(49).scroll_into_view_if_needed()
    until(page, "!lanesShown()[49].dirty")
    assert ink(page, 49) > 2000
    page.focus("#rows")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("now") == 2399 * 3
    assert page.locator("#rows .row").last.get_attribute("aria-posinset") == "2400"
    page.evaluate("seek(12345.5 * step); look(now - 4, 8)")
    until(page, "!frameAsked")
    assert page.locator("#decision-score").inner_text() == "1.00"
    assert page.evaluate("codeAt(50, 12345)") == FULL_SCALE
