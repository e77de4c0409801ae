"""The palette: a class has one colour in everything that is drawn, and it can be told apart and seen."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from lstr.labels.segment import Segment
from lstr.pipelines.pages.figure import write_figure
from lstr.pipelines.pages.palette import CLASSES, NO_ACTION, TRUTH, colours_of, css_variables, dark, light, rgb_of
from lstr.pipelines.pages.timeline_page import write_index, write_report
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
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def linear(colour: str) -> np.ndarray:
    value = np.array(rgb_of(colour)) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [*CLASSES, TRUTH, NO_ACTION])
def test_colours_are_seen_on_white_and_on_dark(colour):
    assert min(contrast(colour, paper("card")) for paper in (light, dark)) > 2.3


# what protanopia and deuteranopia leave of linear RGB (Machado, Oliveira and Fernandes 2009)
VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}


def oklab(values: np.ndarray) -> np.ndarray:
    """Linear RGB in Ottosson's OKLab, in which distances are about as large as they look."""
    cones = [[0.41222, 0.53633, 0.05145], [0.2119, 0.6807, 0.1074], [0.0883, 0.28172, 0.62998]]
    opposed = [[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]]
    return np.array(opposed) @ np.cbrt(np.array(cones) @ values)


@pytest.mark.parametrize("vision", VISION)
def test_colours_stay_apart(vision):
    """Any two by a small step, neighbours in a list of classes by a large one."""
    seen = [oklab(np.clip(np.array(VISION[vision]) @ linear(colour), 0, 1)) for colour in (*CLASSES, TRUTH)]
    apart = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(range(len(seen)), 2)}
    assert min(apart.values()) > 0.035
    assert min(apart[i, i + 1] for i in range(len(CLASSES) - 1)) > 0.07


def test_pages_have_the_colours_as_custom_properties():
    text = css_variables()
    assert f"--truth: {TRUTH};" in text and f"--ink: light-dark({light('ink')}, {dark('ink')});" in text
