"""What a person is told of the labels with which a project begins."""

from collections.abc import Collection, Iterator

from lstr.errors import few
from lstr.labels.label_set import Labels
from lstr.labels.video_ids import mismatch_of

UNTOLD = ("no subsets", "id with ending")
"""Kinds of notes on what is as it should be"""


def remarks(begin: Labels, videos: Collection[str]) -> Iterator[str]:
    """Sentences on how labels were taken for a project of these videos, and on what of them it does not show."""
    yield from (note.sentence for note in begin.notes if note.kind not in UNTOLD)
    if sentence := without_length(begin):
        yield sentence
    missing = sorted(name for name in begin.videos if name not in videos)
    if sentence := mismatch_of(begin.videos, videos):
        yield sentence
    elif missing:
        yield f"{len(missing)} of {len(begin.videos)} labelled videos are not open here: {few(missing)}"


def without_length(begin: Labels) -> str:
    """A sentence where labels last no time, for which a project has no place; else empty."""
    segments = [segment for video in begin.videos.values() for segment in video.segments]
    points = [segment.label for segment in segments if segment.end <= segment.start]
    if not points:
        return ""
    names = few(sorted(set(points)))
    return f"{len(points)} of {len(segments)} labels last no time, such as point events, and are left out: {names}"
