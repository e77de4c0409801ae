"""A report and the index of reports in headless Chromium, and the rules of their script against Python's."""

import base64
import shutil
from collections import Counter
from dataclasses import asdict
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from lstr.chunk import CLOCK, Clock
from lstr.labels.segment import Segment
from lstr.pipelines.pages.page import FULL_SCALE, NO_SCORE, encode_scores, write_index, write_report
from lstr.timeline import Thresholds, Timeline, changed, segments_in
from tests.support.annotated import parse
from tests.support.browser import (
    CLASSES,
    GREYS,
    HOSTILE,
    SECONDS,
    SEGMENTS,
    ink,
    report_on,
    seconds,
    segment,
    wait_for,
    wait_for_picture,
    write_greys,
)
from tests.support.pages import make_scores, make_timeline


def click_at(page, time: float, element: str = "#surface") -> None:
    box = page.locator(element).bounding_box()
    page.mouse.click(box["x"] + box["width"] * time / SECONDS, box["y"] + 10)


LABELS = ["Background", "hug", 'kick, "high"']
HUG, KICK = LABELS[1:]
CHUNKS = 40
SCORES = np.full((CHUNKS, 3), 0.1)
SCORES[8:16, 1], SCORES[20:24, 1], SCORES[28:30, 1], SCORES[30:34, 2] = 0.9, 0.4, 0.6, 0.7


def timeline_of(rules: Thresholds) -> dict:
    """Return the timeline that `lstr detect` writes for SCORES."""
    timeline = Timeline(tuple(LABELS), rules)
    events = [event for chunk, scores in enumerate(SCORES) for event in timeline.push((chunk + 1) * 0.25, scores)]
    segments = [segment.to_dict() for segment in segments_in(events + timeline.finish(CHUNKS * 0.25))]
    document = {"source": "clips/a.mp4", "duration": 10.0, "classes": LABELS, "chunks": CHUNKS, "segments": segments}
    return document | {"id": "clips/a", "thresholds": timeline.describe()}


def facts(page) -> dict[str, str]:
    return dict(item.split("\n") for item in page.locator("#facts > div").all_inner_texts())


def download(page, button: str) -> str:
    """Click a button; return the text of the file that it downloads."""
    with page.expect_download() as started:
        page.click(button)
    return started.value.path().read_text("utf-8")


@pytest.mark.long
def test_a_report_with_its_video(show, report):
    page = show(report)
    assert page.locator("#warnings").inner_text() == HOSTILE and page.locator("script").count() == 2
    assert "hunter2" not in report.read_text() and "rtsp://camera/live" in page.locator("#run").inner_text()
    assert "1 of 3" in page.locator("#verdict").inner_text() and "+1.25 s" in page.locator("#verdict").inner_text()
    rows = [row.split("\n") for row in page.locator("#rows .row").all_inner_texts()]
    assert [row[0] for row in rows] == [HOSTILE, "kick", "hug", HOSTILE, "wave"]
    assert rows[1][4:] == ["+0.50 s", "+1.25 s", "0.90"]
    errors = []
    for key in ("x", "x", "x", "x", "x", "Shift+X"):
        page.keyboard.press(key)
        errors.append((page.locator("#error").text_content(), seconds(page)))
    assert [start for _, start in errors] == [0, 5, 6, 8, 8, 6]
    assert "hug" in errors[1][0] and "0:05.00" in errors[1][0] and errors[5] == errors[2]
    for key in ("p", "p", "n"):  # the keys of errors and of segments move one selection
        page.keyboard.press(key)
        assert page.evaluate("entries[chosen].start") == seconds(page)
    wait_for(page, "watchable")
    click_at(page, 1.7)
    page.click("#play")
    wait_for(page, "playing")  # the browser tells the page of it later than the click returns
    wait_for(page, "now > 2.1")
    page.evaluate("$('video').pause()")
    wait_for(page, "!playing && !frameAsked")
    time = page.evaluate("$('video').currentTime")
    assert seconds(page) == pytest.approx(time, abs=0.1)
    wait_for_picture(page, GREYS[min(4, int(time / 2))])
    click_at(page, 9.6)
    page.select_option("#rate", "8")
    page.click("#play")
    wait_for(page, "$('video').ended && !playing && !frameAsked")
    position = page.evaluate("new DOMMatrix(getComputedStyle($('cursor')).transform).e / $('surface').clientWidth")
    assert position == pytest.approx(1, abs=0.02)


@pytest.mark.long
def test_the_clock_of_a_camera(show, tmp_path):
    """The seconds of a report are behind the clock after a gap; times of the day are shown."""
    gap = {"start": 2, "end": 3, "start_at": "2026-11-25T23:59:55.250+01:00"}
    gap["end_at"] = "2026-11-26T00:00:01.000+01:00"
    action = {"label": "kick", "score": 0.9, "start": 4, "end": 5.5, "start_at": "2026-11-26T00:00:02.000+01:00"}
    timeline = make_timeline(CHUNKS, ["Background", "kick"], name="hall", source="rtsp://camera/die", gaps=[gap])
    timeline |= {"segments": [action], "live": {"began": "2026-11-25T23:59:53.250+01:00"}}
    write_report(tmp_path / "hall.html", timeline, make_scores(CHUNKS, 2))
    page = show(tmp_path / "hall.html")
    assert "hall" in page.title() and page.locator("#title").inner_text() == "hall"
    start = page.locator("#rows .row .from")
    assert start.inner_text() == "00:00:02" and start.get_attribute("title") == "0:04.00"
    assert page.evaluate("[0, 1, 2.5, 3].map(wall)") == ["23:59:53", "23:59:54", "23:59:55", "00:00:01"]


@pytest.mark.long
def test_two_hours_of_fifty_classes(show, tmp_path):
    """Only visible lanes are drawn, and only visible rows are elements."""
    chunks, classes = 28_800, ["Background", *(f"action {c}" for c in range(1, 51))]
    scores = np.random.default_rng(0).random((chunks, 51), np.float32)
    segments = [segment(classes[1 + i % 50], i * 3.0, i * 3.0 + 2, 0.75) for i in range(2400)]
    timeline = {"source": "day.mp4", "duration": 7200.0, "classes": classes, "chunks": chunks, "segments": segments}
    write_report(tmp_path / "big.html", timeline, scores)
    page = show(tmp_path / "big.html")
    drawn = "lanesShown().map((lane, index) => (lane.dirty ? -1 : index)).filter((index) => index >= 0)"
    wait_for(page, f"{drawn}.length > 5")
    assert max(page.evaluate(drawn)) < 45 and page.locator("#rows .row").count() < 40
    page.locator(".lane").nth(49).scroll_into_view_if_needed()
    assert ink(page, 49) > 2000
    page.focus("#rows")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("now") == 2399 * 3


@pytest.mark.long
def test_sliders(show, tmp_path):
    """With a detected label, one below the threshold, one that is never detected, and two false alarms."""
    truth = [Segment(2.0, 4.0, HUG), Segment(5.0, 6.0, HUG), Segment(0.5, 1.0, KICK)]
    write_report(tmp_path / "a.html", timeline_of(Thresholds()), SCORES, truth=truth)
    page = show(tmp_path / "a.html")

    def segments() -> list[tuple]:
        wait_for(page, "!redeciding && !frameAsked")
        return [tuple(span) for span in page.evaluate("segments.map(({ label, start, end }) => [label, start, end])")]

    assert segments() == [(HUG, 2, 4), (HUG, 7, 7.5), (KICK, 7.5, 8.5)]
    assert (facts(page)["Labels found"], facts(page)["False alarms"]) == ("1 of 3", "2")
    detected = tuple(Segment.from_dict(s) for s in timeline_of(Thresholds())["segments"])
    assert parse("csv", download(page, "#segments-csv"), "").videos["clips/a"].segments == detected
    before = ink(page, 0)
    page.fill("#on", "0.38")
    expected = timeline_of(Thresholds(0.38, 0.35))["segments"]
    assert sorted(segments()) == sorted((s["label"], s["start"], s["end"]) for s in expected)
    assert (facts(page)["Labels found"], facts(page)["Segments"]) == ("2 of 3", "4") and ink(page, 0) > before
    assert page.locator("#words").inner_text() == "--on 0.38 --off 0.35"
    page.fill("#on", "0.8")
    assert segments() == [(HUG, 2, 4)]
    page.click("#as-detected")
    assert len(segments()) == 3 and page.locator("#words").inner_text() == "--on 0.5 --off 0.35"
    # cells that a spreadsheet would run as formulas
    text = page.evaluate("toCsv([{id: '=a', duration: -0.5, segments: [{start: 1, end: 2, label: \"'@x\"}]}])")
    assert text.splitlines()[1] == "'=a,-0.5,1,2,''@x,"
    assert parse("csv", text, "").videos["=a"].segments == (Segment(1, 2, "'@x"),)


@pytest.mark.long
def test_embedded_and_late_videos(show, tmp_path):
    """An embedded copy needs no other file; if frames start after the sound, the lanes start with the frames."""
    write_greys(tmp_path / "old.avi", "mpeg4")
    path = report_on(tmp_path / "old.avi", tmp_path / "report.html", embed=10**6)
    (tmp_path / "old.avi").unlink()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    write_greys(tmp_path / "late.mp4", late=1)
    for file, offset in ((path, 0.0), (report_on(tmp_path / "late.mp4", tmp_path / "late.html"), 1.0)):
        page = show(file)
        wait_for(page, "watchable")
        assert page.evaluate("$('video').duration") == pytest.approx(SECONDS + offset, abs=0.05)
        click_at(page, 5.1)
        wait_for_picture(page, GREYS[2])
        assert page.evaluate("$('video').currentTime") == pytest.approx(5.1 + offset, abs=0.05)


@pytest.mark.long
def test_the_index(show, report, tmp_path):
    """By overlap or onset: the kick from 0 to 10 s is not found by a detection of two seconds."""
    timeline = {"duration": 10.0, "classes": CLASSES, "segments": SEGMENTS, "warnings": [HOSTILE]}
    shutil.copy(report, tmp_path / "a #2.html")
    timelines = {"a #2": timeline, "a #10": timeline | {"segments": SEGMENTS[:1], "duration": 20.0}, "c": timeline}
    truth = {"a #2": [Segment(0, 10, "kick"), Segment(5, 6, "hug")], "a #10": [Segment(2.5, 4, "kick")], "c": None}
    page = show(write_index(tmp_path, timelines, truth=truth, failed=["d.mp4"]), expected=("NOT_FOUND",))

    def names() -> list[str]:
        return page.locator("td a").all_inner_texts()

    assert ink(page, 0) > ink(page, 1) > 0 and names() == ["a #2", "a #10", "c"]
    assert (facts(page)["Labels found"], facts(page)["False alarms"]) == ("2 of 3", "2")
    for _ in range(2):
        page.click("button[data-key=found]")
    assert names() == ["a #10", "a #2", "c"]
    page.click("button[data-key=id]")
    page.select_option("#class", label=HOSTILE)
    assert names() == ["a #2", "c"]
    page.select_option("#class", "")
    page.fill("#find", "A #1")
    detected = tuple(Segment.from_dict(entry) for entry in SEGMENTS[:1])
    assert parse("csv", download(page, "#all-csv"), "").videos["a #10"].segments == detected
    page.fill("#find", "")
    page.focus("td a")
    page.keyboard.press("Enter")
    page.locator("#title", has_text="live").wait_for()


RULES = [
    Thresholds(),
    Thresholds(0.6, 0.2, min_length=0.75, merge_gap=0.5),
    Thresholds(0.37, 0.37, min_length=0.3, merge_gap=1.0),
    Thresholds(0.8, 0.0, merge_gap=0.25),
    Thresholds(0.5, 0.49, min_length=2.0),
    Thresholds(0.5, 0.3, min_length=0.5, merge_gap=0.25, backdate=1.1),
    Thresholds(0.4, 0.2, merge_gap=0.5, highest=True),
    Thresholds(0.4, 0.2, merge_gap=0.5, highest=True, backdate=1.0),
    Thresholds(0.4, 0.2, min_length=0.5, merge_gap=0.5, highest=True, backdate=1.0),
]
CLOCKS = (CLOCK, Clock(Fraction(15, 2), Fraction(2, 5)))  # 7.5 features per second from 0.4 s on
DECIDE = """([codes, rule, fullScale, missing, step, begin]) => {
  const all = codes.flat(), chunks = codes[0].length, actions = codes.map((_, index) => index).slice(1);
  const decide = (index) => decideRuns(Uint16Array.from(codes[index]), { fullScale, missing, step, begin }, rule,
    rule.highest ? highestOf(all, chunks, index, actions) : undefined);
  return backdated(actions.map((index) => ({ rule, runs: decide(index) })), { step, begin }).flatMap((segments, at) =>
    segments.map((one) => [at + 1, one.start, one.end, one.announced, one.score]));
}"""


def test_the_rules_of_a_page_equal_python(show, report):
    """Of twelve random walks below the background, without a score in a tenth of the chunks."""
    page, rng = show(report), np.random.default_rng(0)
    curves = 1 / (1 + np.exp(-np.cumsum(rng.normal(0, 0.8, (400, 13)), 0)))
    curves[:, 0] = 0.99
    curves[rng.random(400) < 0.1] = np.nan
    codes = np.frombuffer(base64.b64decode("".join(encode_scores(curves))), "<u2").reshape(13, 400)
    for rules, clock in product(RULES, CLOCKS):
        timeline, events = Timeline(("Background", *map(str, range(1, 13))), rules, clock), []
        for chunk in np.flatnonzero(codes[0] != NO_SCORE).tolist():
            events += timeline.push(clock.at(chunk + 1), codes[:, chunk] / FULL_SCALE)
        events += timeline.finish(clock.at(chunk + 1))
        announced = {(event.label, event.start): event.time for event in events if event.event == "started"}
        expected = [(int(s.label), s.start, s.end, announced[s.label, s.start], s.score) for s in segments_in(events)]
        arguments = [codes.tolist(), asdict(rules), FULL_SCALE, NO_SCORE, clock.seconds, float(clock.offset)]
        decided, expected = np.array(sorted(page.evaluate(DECIDE, arguments))), np.array(sorted(expected))
        np.testing.assert_allclose(decided[:, :4], expected[:, :4], rtol=0, atol=1e-9)
        np.testing.assert_allclose(decided[:, 4], expected[:, 4], rtol=0, atol=5.1e-5)
        assert len(decided) > 10

    stored = [{}, {"on": 0.7, "off": 0.6}, {"on": 0.2, "off": 0.1, "min_length": 1.0}]
    tried = [{}, {"on": 0.15}, {"off": 0.9}, {"on": 0.9, "off": 0.3}, {"on": None, "off": 0.05, "merge_gap": 0.5}]
    pairs = list(product(stored, tried))
    rules = page.evaluate("(pairs) => pairs.map(([stored, tried]) => changedRules(stored, tried))", pairs)
    assert rules == [asdict(changed(*pair)) for pair in pairs]
    assert page.evaluate("sharedRules(Object.fromEntries(classes.map((c, i) => [c, { on: i, off: 0 }])))") == {"off": 0}


def is_match(label: tuple[float, float], detection: tuple[float, float]) -> bool:
    """Return whether a detection can be a label's: by overlap or by onset."""
    common = max(0.0, min(label[1], detection[1]) - max(label[0], detection[0]))
    union = label[1] - label[0] + detection[1] - detection[0] - common
    return common / union >= 0.3 or abs(detection[0] - label[0]) <= 1.0


def test_a_page_finds_the_most_pairs_of_labels_and_detections(show, report):
    """Of crowded random spans, as many as SciPy's maximum matching."""
    page, rng = show(report), np.random.default_rng(1)
    for _ in range(60):
        starts = rng.integers(0, 400, (2, 25)) / 10
        ends = starts + rng.integers(1, 60, (2, 25)) / 10
        labels, detections = np.stack([starts, ends], axis=2).tolist()
        matrix = csr_array([[is_match(label, detection) for detection in detections] for label in labels])
        entries = [[{"label": "a", "start": s, "end": e} for s, e in spans] for spans in (labels, detections)]
        pairs = page.evaluate("([labels, detections]) => judge(labels, detections)", entries)
        assert len(pairs) == (maximum_bipartite_matching(matrix, perm_type="column") >= 0).sum()
        spans = [[(side["start"], side["end"]) for side in pair] for pair in pairs]
        assert all(is_match(*pair) for pair in spans)
        for side, drawn in ((0, labels), (1, detections)):  # each in at most one pair
            assert Counter(pair[side] for pair in spans) <= Counter(map(tuple, drawn))
