"""The badge on a picture: what is on, in its colour, legible, and never before it was announced."""

import numpy as np
import pytest

from lstr.pipelines.reports.overlay import Lanes, badges_at, draw_badges, readable_on
from lstr.pipelines.reports.palette import CLASSES, colours_of, rgb_of

LABELS = ("Background", "wave", "hug", "kick", "point")
EVENTS = [
    {"event": "started", "label": "wave", "time": 1.0, "start": 0.5, "score": 0.9},
    {"event": "expected", "label": "kick", "time": 1.25, "start": 2.0, "score": 0.6},
    {"event": "started", "label": "hug", "time": 1.5, "start": 1.25, "score": 0.7},
    {"event": "ended", "label": "wave", "time": 2.0, "start": 0.5, "end": 1.75, "score": 0.8},
]
GREY = np.full((360, 640, 3), 128, np.uint8)


def test_what_is_on_comes_first_and_what_has_ended_stays_for_a_second():
    assert badges_at(EVENTS, 0.99) == []
    assert badges_at(EVENTS, 1.25) == [("wave", True)]
    assert badges_at(EVENTS, 1.5) == [("hug", True), ("wave", True)]
    assert badges_at(EVENTS, 2.9) == [("hug", True), ("wave", False)]
    assert badges_at(EVENTS, 3.0) == [("hug", True)]


def test_a_badge_has_its_class_colour_and_the_rest_stays_the_video():
    drawn = draw_badges(GREY, Lanes(LABELS, EVENTS), 1.0)
    changed = (drawn != GREY).any(-1)
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    assert rows.max() < 90 and columns.max() < 200, "a corner"
    assert rows.max() - rows.min() > 360 / 13, "letters of a thirteenth of the height"
    inside = drawn[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].reshape(-1, 3)
    colours, counts = np.unique(inside, axis=0, return_counts=True)
    assert tuple(colours[counts.argmax()]) == rgb_of(colours_of(LABELS)["wave"])
    assert (GREY == 128).all(), "the picture itself is another"
    assert draw_badges(GREY, Lanes(LABELS, EVENTS), 0.9) is GREY


def test_a_hollow_badge_is_told_from_a_filled_one():
    ended = draw_badges(GREY, Lanes(LABELS, [EVENTS[0], EVENTS[3]]), 2.5)
    filled = draw_badges(GREY, Lanes(LABELS, EVENTS[:1]), 2.5)
    colour = np.array(rgb_of(colours_of(LABELS)["wave"]))
    n_filled, n_hollow = ((np.abs(one.astype(int) - colour).max(-1) < 8).sum() for one in (filled, ended))
    assert n_hollow < n_filled / 4


@pytest.mark.parametrize("colour", CLASSES)
def test_letters_are_legible_on_every_colour(colour):
    def luminance(rgb) -> float:
        value = np.array(rgb) / 255
        return float(
            np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
        )

    ink = readable_on(np.array(rgb_of(colour), np.float32))
    low, high = sorted((luminance(ink), luminance(rgb_of(colour))))
    assert (high + 0.05) / (low + 0.05) > 4.3


@pytest.mark.parametrize("size", [(96, 480), (120, 60), (16, 640)])
def test_pictures_of_any_size(size):
    image = np.zeros((*size, 3), np.uint8)
    events = [{"event": "started", "label": label, "time": k / 4, "start": 0.0} for k, label in enumerate(LABELS[1:])]
    drawn = draw_badges(image, Lanes(LABELS, events), 2.0)
    assert drawn.shape == image.shape and drawn.dtype == np.uint8
