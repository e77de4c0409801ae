"""Annotations for the tests of label formats: one set, and strategies of Hypothesis for others."""

from pathlib import Path

import pytest
from hypothesis import strategies as st

from lstr.errors import LabelsError
from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, File, format_named

CLASSES = ("wave", "<script>", "Zürich & co", "100 % {odd}, \\N; yes", "東京", "--> x", "idle")
AWKWARD = VideoLabels(
    segments=(
        Segment(0.0, 1.25, "wave", 0.875),
        Segment(0.5, 2.0, "wave", 0.25),  # overlaps its own class
        Segment(1.0, 2.75, "<script>", 0.5),
        Segment(1.0, 2.75, "Zürich & co", 1.0),
        Segment(2.5, 4.0, "100 % {odd}, \\N; yes", 0.75),
        Segment(3599.75, 3661.5, "東京", 0.125),
        Segment(3661.5, 3662.0, "--> x", 0.0625),
    ),
    subset="training",
    duration=3700.25,
    media="videos/a b.mp4",
)
ANNOTATED = AnnotationSet({"a b": AWKWARD}, CLASSES)


def parse(form: str, content, video_id: str = "x", options=DEFAULTS, rates=None) -> AnnotationSet:
    """Read the text, or the JSON content, of a file in a format."""
    file = File(Path("memory"), rates)
    setattr(file, "json" if form in ("activitynet", "boris", "json", "labelstudio") else "text", content)
    return format_named(form).read(file, video_id, options)


def read_error(form: str, content, value: str = "", options=DEFAULTS, rates=None) -> LabelsError:
    """Return the error of a file that cannot be read; its message contains `value`."""
    with pytest.raises(LabelsError) as caught:
        parse(form, content, "x", options, rates)
    assert value in str(caught.value)
    return caught.value


def write(form: str, annotated: AnnotationSet) -> str:
    """Return the text of a file in a format."""
    return format_named(form).text(annotated, DEFAULTS)


LETTERS = st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp", "Zs"), blacklist_characters="\ufeff")
LABELS = st.text(LETTERS, min_size=1, max_size=8).filter(lambda text: text != "Background")


def videos(score: st.SearchStrategy) -> st.SearchStrategy[list[VideoLabels]]:
    """One to three videos with subsets and durations, and with segments in whole milliseconds."""
    segment = st.builds(
        lambda start, length, label, score: Segment(start / 1000, (start + length) / 1000, label, score),
        *(st.integers(0, 20_000_000), st.integers(1, 90_000), LABELS, score),
    )
    subset, found = st.sampled_from(["training", "validation", "testing"]), st.lists(segment, max_size=6)
    video = st.builds(lambda subset, found: VideoLabels(subset, 30_000.0, tuple(found)), subset, found)
    return st.lists(video, min_size=1, max_size=3)


def segments(video: VideoLabels, digits: int = 9) -> list[tuple]:
    """Return times and labels, which every format has."""
    return sorted((round(a.start, digits), round(a.end, digits), a.label) for a in video.segments)


def scored(video: VideoLabels) -> list[tuple]:
    return sorted((a.start, a.end, a.label, a.score or 0) for a in video.segments)
