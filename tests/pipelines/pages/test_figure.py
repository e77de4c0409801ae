"""The still picture."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from lstr.labels.segment import Segment
from lstr.pipelines.pages.figure import MOST_LANES, lanes_of, write_figure
from tests.support.annotated import AWKWARD, CLASSES

TIMELINE = {
    "source": AWKWARD.media,
    "duration": AWKWARD.duration,
    "classes": ["Background", *CLASSES],
    "seconds_per_chunk": 0.25,
    "chunks": 14801,
    "segments": [segment.to_dict() for segment in AWKWARD.segments],
    "gaps": [],
    "recipe": None,
    "warnings": ["random $weights$"],
}


@pytest.fixture
def scores() -> np.ndarray:
    return np.random.default_rng(0).random((TIMELINE["chunks"], 1 + len(CLASSES)), dtype=np.float32)


def test_svg_is_small_and_keeps_labels_as_text(tmp_path, scores):
    """An hour with scores, not an element a chunk; a class named <script> and dollars are text."""
    write_figure(tmp_path / "a.svg", TIMELINE, scores)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert len(text) < 1_500_000
    root = ET.fromstring(text.encode())
    shown = {"".join(element.itertext()).strip() for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {*CLASSES, "a b.mp4", "random $weights$"} <= shown
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_timelines_without_scores_or_without_anything_are_drawn(tmp_path):
    write_figure(tmp_path / "a.png", TIMELINE, None, [Segment(0, 9, "wave")])
    assert np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).std() > 10
    empty = {**TIMELINE, "classes": ["Background"], "segments": [], "chunks": 0, "duration": None}
    write_figure(tmp_path / "a.png", empty, np.zeros((0, 1), np.float32))
    assert Image.open(tmp_path / "a.png").size[0] > 100


def test_of_many_classes_those_that_happen_are_shown():
    classes = ["Background", *(f"c{i}" for i in range(100)), "Ambiguous"]
    timeline = {"classes": classes, "segments": [{"label": "c99", "start": 0, "end": 1}]}
    scores = np.zeros((1, 102), np.float32)
    scores[0, 51] = 1
    lanes = lanes_of(timeline, scores, [Segment(0, 1, "c70")])
    assert (
        len(lanes) == MOST_LANES and {"c99", "c70", "c50"} <= set(lanes) and lanes == sorted(lanes, key=classes.index)
    )
