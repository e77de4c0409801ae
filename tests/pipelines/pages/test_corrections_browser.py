"""Thresholds that are tried and segments that are corrected on a report, in a real headless Chromium."""

import json

import numpy as np
import pytest

from lstr.labels.check import check
from lstr.labels.label_set import read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.annotations.subtitles import from_vtt
from lstr.pipelines.pages.timeline_page import write_report
from lstr.timeline import Thresholds, Timeline, segments_in
from tests.support.browser import click_at, ink, until

pytestmark = pytest.mark.long  # a page in a browser: `make test` opens those of rules, ways, index and labels

CLASSES = ["Background", "hug", 'kick, "high"']
HUG, KICK = CLASSES[1:]
CHUNKS = 40
SCORES = np.full((CHUNKS, 3), 0.1)
SCORES[8:16, 1], SCORES[20:24, 1], SCORES[28:30, 1], SCORES[30:34, 2] = 0.9, 0.4, 0.6, 0.7
TRUTH = [Segment(2.0, 4.0, HUG), Segment(5.0, 6.0, HUG), Segment(0.5, 1.0, KICK)]


def timeline_of(rules: Thresholds) -> dict:
    """What `lstr detect` writes for the scores."""
    timeline = Timeline(tuple(CLASSES), rules)
    events = [event for chunk, scores in enumerate(SCORES) for event in timeline.push((chunk + 1) * 0.25, scores)]
    segments = [segment.to_dict() for segment in segments_in(events + timeline.finish(CHUNKS * 0.25))]
    document = {"source": "clips/a.mp4", "duration": 10.0, "classes": CLASSES, "chunks": CHUNKS, "segments": segments}
    return document | {"id": "clips/a", "thresholds": timeline.describe()}


@pytest.fixture
def labelled(tmp_path):
    """A report beside labels: one found, one below the threshold, one never seen; two false alarms."""
    write_report(tmp_path / "a.html", timeline_of(Thresholds()), SCORES, truth=TRUTH)
    return tmp_path / "a.html"


@pytest.fixture
def unlabelled(tmp_path):
    write_report(tmp_path / "a.html", timeline_of(Thresholds()), SCORES)
    return tmp_path / "a.html"


def settled(page) -> None:
    until(page, "!redeciding && !frameAsked")


def try_on(page, on: float) -> None:
    """Move the slider of the threshold of all classes."""
    page.fill("#on", f"{on:g}")
    settled(page)


def now_segments(page) -> list[tuple]:
    return [tuple(entry) for entry in page.evaluate("segments.map(({ label, start, end }) => [label, start, end])")]


def facts(page) -> dict[str, str]:
    return dict(item.split("\n") for item in page.locator("#facts > div").all_inner_texts())


def saved(page, button: str) -> tuple[str, str]:
    """The name and the text of the file that a button downloads."""
    with page.expect_download() as started:
        page.click(button)
    return started.value.suggested_filename, started.value.path().read_text("utf-8")


def test_a_slider_decides_anew_and_back(show, labelled):
    page = show(labelled)
    assert now_segments(page) == [(HUG, 2, 4), (HUG, 7, 7.5), (KICK, 7.5, 8.5)]
    assert facts(page)["Labels found"] == "1 of 3" and facts(page)["False alarms"] == "2"
    before = ink(page, 0)
    try_on(page, 0.38)
    expected = timeline_of(Thresholds(0.38, 0.35))["segments"]
    assert sorted(now_segments(page)) == sorted((s["label"], s["start"], s["end"]) for s in expected)
    assert (HUG, 5, 6) in now_segments(page)
    assert facts(page)["Labels found"] == "2 of 3" and facts(page)["Segments"] == "4"
    assert page.locator("#count").inner_text() == "4 segments"
    assert page.locator("#verdict").inner_text().startswith("2 of 3 labels found")
    assert ink(page, 0) > before
    assert page.locator("#words").inner_text() == "--on 0.38 --off 0.35"
    try_on(page, 0.8)
    assert now_segments(page) == [(HUG, 2, 4)]
    page.click("#as-detected")
    settled(page)
    assert len(now_segments(page)) == 3 and page.locator("#words").inner_text() == "--on 0.5 --off 0.35"


def test_marks_become_labels_and_are_undone(show, unlabelled):
    page = show(unlabelled)
    page.focus("#rows")
    assert page.locator("#verdict").is_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("r")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("w")
    assert page.evaluate("[truth.length, wrongs.length]") == [1, 1]
    assert page.locator("#review-state").inner_text() == "1 label · 1 segment marked wrong · 1 not marked yet"
    assert page.locator("#verdict").inner_text() == "1 of 1 label found · 1 false alarm · 0.5 s detected outside labels"
    assert page.locator(".marks .on").count() == 2
    page.keyboard.press("r")
    assert page.evaluate("[truth.length, wrongs.length]") == [2, 0]
    page.keyboard.press("r")  # a second time takes it back
    assert page.evaluate("[truth.length, wrongs.length]") == [1, 0]
    for _ in range(3):
        page.keyboard.press("Control+z")
    assert page.evaluate("[truth.length, wrongs.length]") == [1, 0]
    page.keyboard.press("Control+z")
    assert page.evaluate("truth") is None and page.locator("#undo").is_disabled()
    page.click("#redo")
    assert page.evaluate("truth.length") == 1


def test_a_segment_is_moved_named_and_a_missed_one_added(show, unlabelled, tmp_path):
    page = show(unlabelled)
    page.locator("#rows .row").first.click()
    page.click("#edit")
    page.fill("#label-start", "1.5")
    page.keyboard.press("Tab")
    assert page.evaluate("truth.map(({ label, start, end }) => [label, start, end])") == [[HUG, 1.5, 4]]
    page.fill("#label-name", "wave")
    page.keyboard.press("Enter")
    assert page.locator(".lane:visible .cut").all_inner_texts() == [HUG, KICK, "wave"]
    colours = page.evaluate("names.slice(1).map(colourOf)")
    assert len(set(colours)) == 3
    page.keyboard.press("Escape")
    click_at(page, 5.0)
    page.keyboard.press("m")  # its name is in the field that has the focus
    assert page.evaluate("document.activeElement.id") == "label-name"
    page.keyboard.type(HUG)
    page.keyboard.press("Escape")
    click_at(page, 6.25)
    page.keyboard.press("]")
    assert page.evaluate("truth.map(({ label, start, end }) => [label, start, end])") == [
        ["wave", 1.5, 4],
        [HUG, 5, 6.25],
    ]
    page.uncheck("#take-rest")
    name, text = saved(page, "#labels-json")
    assert name == "a.labels.json"
    (tmp_path / name).write_text(text, encoding="utf-8")
    labels = read_labels(tmp_path / name)
    assert labels.classes == (*CLASSES, "wave") and list(labels.videos) == ["clips/a"]
    video = labels.videos["clips/a"]
    assert (video.subset, video.duration) == ("training", 10.0)
    assert video.segments == (Segment(1.5, 4, "wave"), Segment(5, 6.25, HUG))
    page.keyboard.press("Delete")
    assert page.evaluate("truth.length") == 1


def test_labels_of_a_file_stay_what_they_were(show, tmp_path):
    """A label that is marked wrong is gone, a false alarm that is right is new, the others keep every digit."""
    exact = Segment(2.0333333333333337, 4.1, HUG)
    write_report(tmp_path / "a.html", timeline_of(Thresholds()), SCORES, truth=[exact, TRUTH[2]])
    page = show(tmp_path / "a.html")
    assert page.locator("#rest").is_hidden()
    page.locator("#rows .row.missed").first.locator(".no").click()
    page.locator("#rows .row").nth(1).locator(".yes").click()
    page.select_option("#subset", "testing")
    name, text = saved(page, "#labels-csv")
    read = from_csv(text, "")
    assert (name, list(read.videos)) == ("a.labels.csv", ["clips/a"])
    assert read.videos["clips/a"].segments == (exact, Segment(7, 7.5, HUG))
    assert (read.videos["clips/a"].subset, read.videos["clips/a"].duration) == ("testing", 10.0)
    found = json.loads(saved(page, "#labels-json")[1])
    assert found["database"]["clips/a"]["annotations"][0]["segment"] == [exact.start, exact.end]


def test_no_cell_of_a_downloaded_table_is_a_formula(show, unlabelled):
    """A spreadsheet runs what begins so; it is read back as it was."""
    page = show(unlabelled)
    text = page.evaluate("toCsv([{id: '=a', duration: -0.5, segments: [{start: 1, end: 2, label: \"'@x\"}]}])")
    assert text.splitlines()[1] == "'=a,-0.5,1,2,''@x"
    assert from_csv(text, "").videos["=a"].segments == (Segment(1, 2, "'@x"),)


def test_what_was_downloaded_passes_the_check(show, unlabelled, tmp_path):
    """Those that nobody has marked are in the file as well; a file of segments alone keeps scores."""
    page = show(unlabelled)
    assert page.locator("#rest").inner_text().split() == ["with", "the", "3", "segments", "not", "marked"]
    page.locator("#rows .row").nth(1).locator(".no").click()
    (tmp_path / "labels.json").write_text(saved(page, "#labels-json")[1], encoding="utf-8")
    labels = read_labels(tmp_path / "labels.json")
    assert labels.videos["clips/a"].segments == (Segment(2, 4, HUG), Segment(7.5, 8.5, KICK))
    assert not [found for found in check(labels) if found.severity == "error"]
    detected = tuple(Segment.from_dict(s) for s in timeline_of(Thresholds())["segments"])
    assert from_csv(saved(page, "#segments-csv")[1], "").videos["clips/a"].segments == detected
    name, text = saved(page, "#segments-vtt")
    assert name == "a.vtt" and from_vtt(text).segments == detected
