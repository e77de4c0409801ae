"""Labels, detections and scores for the tests of metrics."""

import numpy as np
from hypothesis import strategies as st

from lstr.labels.segment import Segment

CLASSES = ("Background", "hug", "point", "Ambiguous")
LETTERS = ".AB?"
"""Classes of scores and targets in texts with a letter per chunk: background, A, B, ambiguous"""

quarters = st.integers(0, 24).map(lambda k: k / 4)


def drawn_segments(*labels: str, least: float = 0.0):
    """Segments with times in quarters of a second that last at least `least` seconds."""
    times = st.tuples(quarters, quarters).map(sorted)
    return st.builds(lambda t, label: Segment(t[0], t[1] + least, label), times, st.sampled_from(labels))


def cut(*spans: tuple[float, float], label: str = "hug") -> list[Segment]:
    return [Segment(start, end, label) for start, end in spans]


def plain_iou(a: Segment, b: Segment) -> float:
    shared = max(0.0, min(a.end, b.end) - max(a.start, b.start))
    union = (a.end - a.start) + (b.end - b.start) - shared
    return shared / union if union else 0.0


def scores_of(text: str, score: float = 0.7, letters: str = LETTERS) -> np.ndarray:
    """Return scores (L, C): `score` for the class of each chunk's letter, 0.1 for the others."""
    return 0.1 + (score - 0.1) * targets_of(text, letters)


def targets_of(text: str, letters: str = LETTERS) -> np.ndarray:
    return np.eye(len(letters), dtype=int)[[letters.index(letter) for letter in text]].reshape(-1, len(letters))
