"""The videos of an evaluation: their errors, curves and files, and their page in headless Chromium."""

import base64
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lstr.pipelines.evaluation import report
from lstr.pipelines.evaluation.analysis import Findings
from lstr.pipelines.evaluation.report import describe_watching, encode_curve, write_evaluation
from lstr.pipelines.evaluation.tables import OF_FALSE_ALARMS, OF_LABELS
from tests.support.browser import HOSTILE, ink, seconds, wait_for, wait_for_picture, write_greys
from tests.support.scored import make_evaluation

ERRORS = [
    ("b", "false alarm", "kick", 0.0),
    ("b", "false alarm", HOSTILE, 5.0),
    ("b", "false alarm", HOSTILE, 6.5),
    ("a", "false alarm", "kick", 4.0),
    ("a", "missed", HOSTILE, 5.0),
]
"""In the order of the page: the video with the most errors first"""


def videos_of(entry, folder: Path = Path("/")) -> list[dict]:
    return describe_watching(Findings([entry]), folder)["models"][0]["videos"]


def test_error_types_have_the_counts_of_the_tables():
    entry = make_evaluation()
    kinds = entry.document["events"]["together"]["kinds"]
    missed, false = Counter(), Counter()
    for video in videos_of(entry):
        missed.update(label[4] for label in video["labels"] if label[3] == "missed")
        false.update(detection[6] for detection in video["detections"] if detection[3] == "false")
    for names, counts, expected in (
        (OF_LABELS, missed, kinds["missed"]),
        (OF_FALSE_ALARMS, false, kinds["false_alarms"]),
    ):
        by_kind = {kind: counts[name] for kind, name in names.items()}
        by_kind["edges"] += counts["late"] + counts["early"]
        assert by_kind == {kind: expected[kind] for kind in by_kind} and sum(expected.values())


def test_a_curve_keeps_its_peaks_in_few_bytes(monkeypatch):
    curve = np.full(1000, 0.1)
    curve[777], curve[3] = 1.0, np.nan
    codes = np.frombuffer(base64.b64decode(encode_curve(curve, 100)), np.uint8)
    assert len(codes) == 100 and codes[77] == 254 and set(np.delete(codes, 77)) == {25}
    assert np.frombuffer(base64.b64decode(encode_curve(curve, 1000)), np.uint8)[3] == 255
    monkeypatch.setattr(report, "ALL_POINTS", 0)
    monkeypatch.setattr(report, "LEAST_POINTS", 10)
    assert [len(base64.b64decode(text)) for text in videos_of(make_evaluation())[0]["curves"].values()] == [10, 10]


@pytest.mark.parametrize("codec, address", [("libx264", "../greys.mp4"), ("mpeg4", "videos/b.lstr-proxy.mp4")])
def test_the_page_links_the_video_of_the_features(tmp_path, monkeypatch, codec, address):
    """Or a copy that browsers play, for a limited duration; but not a file that has changed since."""
    video, folder = tmp_path / "greys.mp4", tmp_path / "report"
    folder.mkdir()
    write_greys(video, codec, late=1)
    entry = make_evaluation({"b": video})
    for limit, expected in ((report.COPIED_SECONDS, address), (0, "../greys.mp4")):
        monkeypatch.setattr(report, "COPIED_SECONDS", limit)
        first = videos_of(entry, folder)[0]
        assert first["video"] == expected
        assert first["ahead"] == pytest.approx(0.0 if "proxy" in expected else 1.0, abs=0.13), "frames start late"
        assert (folder / "videos" / "b.lstr-proxy.mp4").exists() == (codec == "mpeg4")
    video.write_bytes(video.read_bytes() + b"more")
    assert videos_of(entry, folder)[0]["video"] is None


def test_a_record_without_a_valid_file_has_no_video():
    entry = make_evaluation()
    for record in ({}, {"source": "s3://bucket/b.mp4", "bytes": 3}, {"source": "x" * 5000, "bytes": 0}):
        entry.split.folder.read_record = {"b": record}.get
        assert videos_of(entry)[0]["video"] is None, record


@pytest.mark.long
def test_evaluation(show, tmp_path):
    """By keys, with the frames of the errors, and by mouse."""
    write_greys(tmp_path / "greys.mp4")
    entry = make_evaluation({"b": tmp_path / "greys.mp4"})
    page = show(write_evaluation(tmp_path / "report", Findings([entry])))

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
