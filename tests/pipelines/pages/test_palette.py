"""The palette: a class has one colour in everything that is drawn, and it can be told apart and seen."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from lstr.labels.segment import Segment
from lstr.pipelines.pages.figure import write_figure
from lstr.pipelines.pages.page import write_index, write_report
from lstr.pipelines.pages.palette import CLASSES, NEUTRALS, NO_ACTION, TRUTH, colours_of, rgb_of
from tests.support.pages import Page, make_scores, make_timeline

LABELS = ["Background", "wave", "kick", "hug", "Ambiguous", "wave & hug"]
ACTIONS = [label for label in LABELS if label not in ("Background", "Ambiguous")]


def test_a_class_has_one_colour_everywhere(tmp_path, label="hug"):
    colour = colours_of(LABELS)[label]
    assert colour == CLASSES[ACTIONS.index(label)]
    timeline = make_timeline(8, LABELS) | {"segments": [{"label": label, "start": 0.5, "end": 1.5, "score": 0.9}]}

    write_report(tmp_path / "a.html", timeline, make_scores(8, len(LABELS)))
    assert Page(tmp_path / "a.html").data["colours"][label] == colour
    index = Page(write_index(tmp_path, {"a": timeline}, truth={"a": [Segment(0, 1, "climb")]})).data
    assert index["colours"][label] == colour != index["colours"]["climb"]

    write_figure(tmp_path / "a.svg", timeline)
    fills = set(re.findall(r"fill: (#[0-9a-f]{6})", (tmp_path / "a.svg").read_text()))
    assert fills & set(CLASSES) == {colour}, "the only bar"
    assert ET.parse(tmp_path / "a.svg")

    write_figure(tmp_path / "a.png", timeline)
    pixels = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).reshape(-1, 3)
    drawn = {other: int((pixels == rgb_of(other)).all(1).sum()) for other in CLASSES}
    assert drawn[colour] > 500 and sum(drawn.values()) == drawn[colour]


def test_lists_with_and_without_background_agree():
    assert {**colours_of(ACTIONS), "Background": NO_ACTION, "Ambiguous": NO_ACTION} == colours_of(LABELS)
    many = [f"c{i}" for i in range(20)]
    assert [*colours_of(many).values()][8:16] == [*CLASSES]


def luminance(colour: str) -> float:
    value = np.array(rgb_of(colour)) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", [*CLASSES, TRUTH, NO_ACTION])
@pytest.mark.parametrize("paper", NEUTRALS["card"])
def test_colours_are_seen_on_white_and_on_dark(colour, paper):
    """By the contrast of WCAG 2, from 1 to 21."""
    low, high = sorted((luminance(colour), luminance(paper)))
    assert (high + 0.05) / (low + 0.05) > 2.3
