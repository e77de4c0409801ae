"""Labels, detections and scores for the tests of metrics: made by hand, and drawn by Hypothesis."""

import numpy as np
from hypothesis import strategies as st

from lstr.labels.segment import Segment

CLASSES = ("Background", "hug", "point", "Ambiguous")
LETTERS = ".AB?"
"""The classes of scores and targets that are written as text, a letter a chunk: none, A, B, ambiguous."""

quarters = st.integers(0, 24).map(lambda k: k / 4)


def drawn_segments(*labels: str, least: float = 0.0):
    """Segments of the labels, whose times are quarters of a second and that last at least so long."""
    times = st.tuples(quarters, quarters).map(sorted)
    return st.builds(lambda t, label: Segment(t[0], t[1] + least, label), times, st.sampled_from(labels))


def cut(*spans: tuple[float, float], label: str = "hug") -> list[Segment]:
    return [Segment(start, end, label) for start, end in spans]


def plain_iou(a: Segment, b: Segment) -> float:
    shared = max(0.0, min(a.end, b.end) - max(a.start, b.start))
    union = (a.end - a.start) + (b.end - b.start) - shared
    return shared / union if union else 0.0


def scores_of(said: str, sure: float = 0.7, letters: str = LETTERS) -> np.ndarray:
    """Scores (L, C) whose highest class of each chunk is its letter."""
    return 0.1 + (sure - 0.1) * targets_of(said, letters)


def targets_of(on: str, letters: str = LETTERS) -> np.ndarray:
    """Targets (L, C)."""
    return np.eye(len(letters), dtype=int)[[letters.index(letter) for letter in on]].reshape(len(on), len(letters))
