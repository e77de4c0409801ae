"""What the page of an evaluation knows of its videos: verdicts, curves, and where the pictures are."""

import base64
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lstr.pipelines.evaluation import watching
from lstr.pipelines.evaluation.analysis import Findings
from lstr.pipelines.evaluation.tables import OF_FALSE_ALARMS, OF_LABELS
from lstr.pipelines.evaluation.watching import describe_watching, encode_curve
from tests.support.browser import write_greys
from tests.support.scored import make_evaluation


def test_each_error_has_the_kind_that_the_tables_count():
    entry = make_evaluation()
    kinds = entry.document["events"]["together"]["kinds"]
    videos = describe_watching(Findings([entry]), Path("/"))["models"][0]["videos"]
    missed = Counter(one[4] for video in videos for one in video["labels"] if one[3] == "missed")
    false = Counter(one[6] for video in videos for one in video["detections"] if one[3] == "false")
    for words, found, counted in (
        (OF_LABELS, missed, kinds["missed"]),
        (OF_FALSE_ALARMS, false, kinds["false_alarms"]),
    ):
        shown = {kind: found[word] for kind, word in words.items() if kind != "edges"}
        shown["edges"] = found["late"] + found["early"] + found["edge off"]
        assert {kind: n for kind, n in counted.items() if kind in shown} == shown and sum(counted.values())


def test_a_curve_keeps_its_peaks_in_few_bytes(monkeypatch):
    curve = np.full(1000, 0.1)
    curve[777], curve[3] = 1.0, np.nan
    codes = np.frombuffer(base64.b64decode(encode_curve(curve, 100)), np.uint8)
    assert len(codes) == 100 and codes[77] == 254 and set(np.delete(codes, 77)) == {25}
    assert np.frombuffer(base64.b64decode(encode_curve(curve, 1000)), np.uint8)[3] == 255
    monkeypatch.setattr(watching, "ALL_POINTS", 0)
    monkeypatch.setattr(watching, "LEAST_POINTS", 10)
    video = describe_watching(Findings([make_evaluation()]), Path("/"))["models"][0]["videos"][0]
    assert [len(base64.b64decode(text)) for text in video["curves"].values()] == [10, 10]


@pytest.mark.parametrize("codec, shown", [("libx264", "../greys.mp4"), ("mpeg4", "videos/b.lstr-proxy.mp4")])
def test_pictures_are_those_of_the_features(tmp_path, monkeypatch, codec, shown):
    """A file that has changed since is another video, and one that browsers do not play is copied, within a bound."""
    video, folder = tmp_path / "greys.mp4", tmp_path / "report"
    folder.mkdir()
    write_greys(video, codec, late=1)

    def address() -> str | None:
        first = describe_watching(Findings([make_evaluation({"b": video})]), folder)["models"][0]["videos"][0]
        assert first["ahead"] == pytest.approx(0.0 if "proxy" in first["video"] else 1.0, abs=0.13), "after the sound"
        return first["video"]

    assert address() == shown
    assert (folder / "videos" / "b.lstr-proxy.mp4").exists() == (codec == "mpeg4")
    monkeypatch.setattr(watching, "COPIED_SECONDS", 0)
    assert address() == "../greys.mp4"
    entry = make_evaluation({"b": video})
    video.write_bytes(video.read_bytes() + b"more")
    assert describe_watching(Findings([entry]), folder)["models"][0]["videos"][0]["video"] is None


@pytest.mark.parametrize(
    "record", [{}, {"source": "s3://bucket/b.mp4", "bytes": 3}, {"source": "x" * 5000, "bytes": 0}]
)
def test_a_record_may_name_no_file(record):
    entry = make_evaluation()
    entry.split.folder.read_record = lambda _: record
    assert describe_watching(Findings([entry]), Path("/"))["models"][0]["videos"][0]["video"] is None
