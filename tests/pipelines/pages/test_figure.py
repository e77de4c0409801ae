"""The figure of a timeline, and the colours of classes in figures, reports and the index."""

import re
import xml.etree.ElementTree as ET

import numpy as np
from PIL import Image

from lstr.labels.segment import Segment
from lstr.pipelines.pages.figure import write_figure
from lstr.pipelines.pages.page import write_index, write_report
from lstr.pipelines.pages.palette import CLASSES, NO_ACTION, colours_of
from tests.support import annotated
from tests.support.pages import Page, make_scores, make_timeline

SEGMENTS = [segment.to_dict() for segment in annotated.AWKWARD.segments]
ABOUT = {"source": annotated.AWKWARD.media, "recipe": None, "warnings": ["random $weights$"]}
TIMELINE = make_timeline(14801, ["Background", *annotated.CLASSES], segments=SEGMENTS, **ABOUT)
ACTIONS = ["wave", "kick", "hug", "wave & hug"]


def test_an_svg_is_small_and_keeps_labels_as_text(tmp_path):
    """Of an hour with scores; markup and dollars in names are text."""
    write_figure(tmp_path / "a.svg", TIMELINE, make_scores(14801, 1 + len(annotated.CLASSES)))
    content = (tmp_path / "a.svg").read_bytes()
    assert len(content) < 1_500_000
    root = ET.fromstring(content)
    texts = {"".join(element.itertext()).strip() for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {*annotated.CLASSES, "a b.mp4", "random $weights$"} <= texts
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_timelines_without_scores_or_without_chunks_are_drawn(tmp_path):
    path = tmp_path / "a.png"
    write_figure(path, TIMELINE, None, [Segment(0, 9, "wave")])
    assert np.asarray(Image.open(path).convert("RGB")).std() > 10
    empty = {**TIMELINE, "classes": ["Background"], "segments": [], "chunks": 0, "duration": None}
    write_figure(path, empty, np.zeros((0, 1), np.float32))
    assert Image.open(path).size[0] > 100


def test_a_class_has_the_same_colour_everywhere(tmp_path):
    labels = ["Background", *ACTIONS[:3], "Ambiguous", ACTIONS[3]]
    colour = colours_of(labels)["hug"]
    assert colour == CLASSES[2]
    timeline = make_timeline(8, labels, segments=[{"label": "hug", "start": 0.5, "end": 1.5, "score": 0.9}])
    write_report(tmp_path / "a.html", timeline, make_scores(8, len(labels)))
    assert Page(tmp_path / "a.html").data["colours"]["hug"] == colour
    index = Page(write_index(tmp_path, {"a": timeline}, truth={"a": [Segment(0, 1, "climb")]})).data
    assert index["colours"]["hug"] == colour != index["colours"]["climb"]

    write_figure(tmp_path / "a.svg", timeline)
    fills = set(re.findall(r"fill: (#[0-9a-f]{6})", (tmp_path / "a.svg").read_text()))
    assert fills & set(CLASSES) == {colour}

    grey = {"Background": NO_ACTION, "Ambiguous": NO_ACTION}
    assert colours_of(ACTIONS) | grey == colours_of(labels), "with and without background"
    assert [*colours_of([f"c{i}" for i in range(20)]).values()][8:16] == [*CLASSES]
