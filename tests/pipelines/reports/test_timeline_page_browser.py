"""The HTML report in a real headless Chromium: it draws, plays, seeks, filters, and takes two hours of 50 classes."""

import numpy as np
import pytest

from lstr.pipelines.reports.timeline_page import FULL_SCALE, write_report
from tests.support.browser import (
    CLASSES,
    GREYS,
    HOSTILE,
    SECONDS,
    click_at,
    ink,
    seconds,
    segment,
    until,
    wait_for_picture,
)
from tests.support.pages import make_scores, make_timeline

pytestmark = pytest.mark.long  # a page in a browser: `make test` opens those of rules, ways, index and labels


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_draws_at_both_widths_without_scrolling_sideways(show, report, width, scheme):
    page = show(report, width, color_scheme=scheme)
    assert [text for text in page.locator(".lane:visible .cut").all_inner_texts()] == [*CLASSES[1:], "wave"]
    page.locator("#lanes").scroll_into_view_if_needed()
    until(page, "lanes.slice(0, 3).every((lane) => lane.seen && !lane.dirty)")
    assert all(ink(page, lane) > 500 for lane in range(3))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(244, 246, 248)", "dark": "rgb(15, 19, 25)"}[scheme]


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


def test_it_seeks_on_click_and_the_picture_follows(show, report):
    page = show(report)
    until(page, "watchable")
    wait_for_picture(page, GREYS[0])
    click_at(page, 3.1)
    assert seconds(page) == pytest.approx(3.1, abs=0.05)
    wait_for_picture(page, GREYS[1])
    assert page.locator("#decision").inner_text() == "kick"
    assert page.locator("#labelled").inner_text() == "Labelled: kick"
    click_at(page, 9.5, "#overview")
    wait_for_picture(page, GREYS[4])
    page.locator("#rows .row", has_text=HOSTILE).last.click()
    wait_for_picture(page, GREYS[3])
    assert seconds(page) == 6


def test_it_plays_and_the_cursor_follows(show, report):
    page = show(report)
    until(page, "watchable")
    click_at(page, 1.7)
    page.click("#play")
    until(page, "playing")  # the browser tells the page of it later than the click returns
    assert page.get_attribute("#play", "aria-label") == "Pause"
    until(page, "now > 2.1")
    page.evaluate("video.pause()")
    until(page, "!playing && !frameAsked")
    at = page.evaluate("video.currentTime")
    assert seconds(page) == pytest.approx(at, abs=0.1)
    wait_for_picture(page, GREYS[min(4, int(at / 2))])
    click_at(page, 9.6)
    page.select_option("#rate", "8")
    page.click("#play")
    until(page, "video.ended && !playing")
    assert page.get_attribute("#play", "aria-label") == "Play"
    until(page, "!frameAsked")
    moved_to = page.evaluate("new DOMMatrix(getComputedStyle($('cursor')).transform).e / $('surface').clientWidth")
    assert moved_to == pytest.approx(1, abs=0.02)


def test_the_keyboard_does_everything(show, report):
    page = show(report)
    page.focus("#surface")
    for key, expected in (
        ("ArrowRight", 0.25), ("Shift+ArrowRight", 1.25), ("ArrowLeft", 1), ("n", 2), ("n", 5), ("p", 2),
        ("End", 10), ("Home", 0), ("PageUp", 10),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert seconds(page) == expected, key
    page.keyboard.press("+")
    assert page.evaluate("view[1] - view[0]") == SECONDS / 2
    page.keyboard.press("0")
    assert page.evaluate("view") == [0, SECONDS]
    page.focus("#rows")
    page.keyboard.press("End")
    assert page.get_attribute("#rows", "aria-activedescendant") == "row-4"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert seconds(page) == 6
    page.locator(".lane > button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert seconds(page) == 2


def test_tab_reaches_each_control_once_and_shows_where_it_is(show, report):
    page = show(report)
    names = []
    for _ in range(40):
        page.keyboard.press("Tab")
        at = page.evaluate(
            """() => {
              const at = document.activeElement, outlined = getComputedStyle(at).outlineStyle !== "none";
              return [at.id || at.tagName, outlined, at.getAttribute("aria-label") || at.textContent];
            }"""
        )
        if at[0] == "BODY":
            break
        names.append(at[0])
        assert at[1] and at[2].strip(), at
    first = ["theme", "warnings", "play", "sound", "rate", "SUMMARY", "in", "surface", "BUTTON"]
    review = [
        "which",
        "error-before",
        "error-after",
        "segments-csv",
        "segments-vtt",
        "mark-right",
        "mark-wrong",
        "add",
        "edit",
        "subset",
        "labels-json",
        "labels-csv",
    ]
    assert names == [*first, *review, *["BUTTON"] * 7, "rows", "SUMMARY"]


def test_delays_are_told_against_the_labels(show, report):
    page = show(report)
    assert page.locator("#verdict").inner_text() == (
        "1 of 3 labels found, announced +1.25 s from their start (median) · 2 false alarms "
        "· 2.5 s detected outside labels"
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


def test_filters_by_class_and_by_score(show, report):
    page = show(report)
    before = ink(page, 2)
    page.click("#class-menu summary")
    page.fill("#least", "0.7")
    assert page.locator("#count").inner_text() == "2 of 3 segments"
    until(page, "!frameAsked")
    assert 0 < ink(page, 2) < before  # hug lost its bar, not its curve
    page.fill("#find-class", "KI")
    assert page.locator("#class-list label:visible").all_inner_texts() == ["kick\n1"]
    page.click("#pick-none")
    assert page.locator("#nothing").is_visible()
    page.locator("#class-list label:visible input").check()
    page.keyboard.press("Escape")
    assert page.locator(".lane:visible .cut").all_inner_texts() == ["kick"]
    assert page.locator("#class-menu summary").inner_text() == "1 of 4 classes, from 0.70"
    assert page.locator("#count").inner_text() == "1 of 3 segments"
    assert page.locator("#verdict").inner_text().startswith("1 of 1 label found")


def test_the_theme_can_be_turned(show, report):
    page = show(report, color_scheme="light")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 25)"
    assert page.evaluate("theme.card") == "rgb(23, 28, 36)"


def test_a_tap_seeks_and_two_fingers_zoom(show, report):
    page = show(report, 400, has_touch=True)
    page.locator("#surface").scroll_into_view_if_needed()
    box = page.locator("#surface").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.3, box["y"] + 20)
    assert seconds(page) == pytest.approx(3, abs=0.1)
    page.evaluate(
        """() => {
          const box = $("surface").getBoundingClientRect(), y = box.top + 20;
          const send = (kind, pointerId, part) => $("surface").dispatchEvent(new PointerEvent(
            kind, { pointerId, pointerType: "touch", clientX: box.left + box.width * part, clientY: y }));
          $("surface").setPointerCapture = () => {};
          send("pointerdown", 1, 0.4); send("pointerdown", 2, 0.6);
          send("pointermove", 1, 0.3); send("pointermove", 2, 0.7);
        }"""
    )
    start, end = page.evaluate("view")
    assert (start, end) == (pytest.approx(2.5, abs=0.2), pytest.approx(7.5, abs=0.2))
    assert seconds(page) == pytest.approx(3, abs=0.1)


def test_thresholds_and_what_a_model_expects_are_drawn(show, tmp_path):
    timeline = {"source": "a.mp4", "duration": 10.0, "classes": ["Background", "hug", "kick"], "chunks": 40}
    timeline |= {"segments": [], "thresholds": {"on": 0.5, "off": 0.35, "min_length": 0.5, "merge_gap": 0.0}}
    timeline["expected"] = [{"label": "kick", "time": 2.0, "start": 4.0, "score": 0.6}]
    origins = {"grey": "a.pth", "difference": "a.pth", "change": "a.pth", "flow": "b.pth"}
    write_report(tmp_path / "r.html", timeline, np.full((40, 3), 0.1), origins=origins)
    page = show(tmp_path / "r.html")
    assert ink(page, 1) > ink(page, 0) > 0
    assert page.locator("#legend span:visible").all_inner_texts() == ["score", "threshold", "detected", "expected"]
    run = page.locator("#run").inner_text()
    assert "on at 0.5, off below 0.35" in run and "Shortest action\n0.5 s" in run and "One at a time" not in run
    assert "Its grey, difference and change networks began with\na.pth" in run
    assert "Its flow network began with\nb.pth" in run
    timeline["thresholds"]["highest"] = True
    write_report(tmp_path / "r.html", timeline, np.full((40, 3), 0.1))
    assert "One at a time" in show(tmp_path / "r.html").locator("#run").inner_text()
    assert page.locator("#none").is_visible()


def test_two_hours_of_fifty_classes(show, tmp_path):
    """All of it is reachable, but only what is in sight is drawn or is an element."""
    chunks, classes = 28_800, ["Background", *(f"action {c}" for c in range(1, 51))]
    scores = np.random.default_rng(0).random((chunks, 51), np.float32)
    scores[12_345, 50] = 1.0
    segments = [segment(classes[1 + i % 50], i * 3.0, i * 3.0 + 2, 0.75) for i in range(2400)]
    timeline = {"source": "day.mp4", "duration": 7200.0, "classes": classes, "chunks": chunks, "segments": segments}
    write_report(tmp_path / "big.html", timeline, scores)
    page = show(tmp_path / "big.html")
    drawn = "lanes.map((lane, index) => (lane.dirty ? -1 : index)).filter((index) => index >= 0)"
    until(page, f"{drawn}.length > 5")
    assert max(page.evaluate(drawn)) < 45
    assert page.locator("#rows .row").count() < 40
    page.locator(".lane").nth(49).scroll_into_view_if_needed()
    until(page, "!lanes[49].dirty")
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
