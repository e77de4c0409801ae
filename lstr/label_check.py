"""What is wrong or odd in the labels of a data set, all of it, before anything is trained on them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from lstr.config import FEATURES_PER_SECOND
from lstr.labels import Labels, VideoLabels
from lstr.segment import Segment, mistake

TAIL = 1 / FEATURES_PER_SECOND
"""Seconds that a segment may reach past the last whole chunk: extraction drops a shorter tail."""

TARGETS_TOLERANCE = 4
"""Chunks by which per-chunk targets and features may differ: ends are rounded in more than one way."""

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Finding:
    """One thing found: an error stops training, a warning does not."""

    severity: str
    kind: str
    video: str
    detail: str


def check(
    labels: Labels, lengths: Mapping[str, int] | None = None, subsets: Collection[str] = (), skip_missing: bool = False
) -> list[Finding]:
    """Everything found in labels (read leniently), errors first, then by kind and video.

    lengths: chunks of each video that has features; None leaves features out of it. subsets: whose videos must have
    features; empty means all. skip_missing: a video without features is a warning.
    """
    findings = [finding for name, video in labels.videos.items() for finding in _video(labels, name, video, lengths)]
    if lengths is not None:
        severity = WARNING if skip_missing else ERROR
        wanted = (name for name, video in labels.videos.items() if not subsets or video.subset in subsets)
        findings += [Finding(severity, "no features", name, "labelled") for name in wanted if name not in lengths]
        findings += [
            Finding(WARNING, "no labels", name, f"{lengths[name]} chunks of features")
            for name in lengths
            if name not in labels.videos
        ]
    return sorted(findings, key=lambda found: (found.severity, found.kind, found.video))


def _video(labels: Labels, name: str, video: VideoLabels, lengths: Mapping[str, int] | None) -> Iterator[Finding]:
    length = (lengths or {}).get(name)
    seconds = video.duration if length is None else length / FEATURES_PER_SECOND
    sound = []
    for segment in video.segments:
        if wrong := mistake(segment, labels.classes):
            yield Finding(ERROR, wrong.kind, name, _written(segment))
            continue
        sound.append(segment)
        if segment.start == segment.end:
            yield Finding(WARNING, "zero length", name, _written(segment))
        if seconds is not None and segment.end > seconds + TAIL:
            yield Finding(WARNING, "past the end", name, f"{_written(segment)} of {seconds:g} s")
    for first, second in pairwise(sorted(sound, key=_order)):
        if first == second:
            yield Finding(WARNING, "duplicate", name, _written(second))
    by_class: dict[str, float] = {}
    for segment in sorted(set(sound), key=_order):
        last_end = by_class.get(segment.label, 0.0)
        if segment.start < last_end:
            yield Finding(WARNING, "overlap in one class", name, _written(segment))
        by_class[segment.label] = max(segment.end, last_end)
    if length is not None and video.n_chunks is not None and length != video.n_chunks:
        severity = ERROR if abs(length - video.n_chunks) > TARGETS_TOLERANCE else WARNING
        yield Finding(severity, "other length", name, f"{video.n_chunks} rows of targets, {length} of features")


def _order(segment: Segment) -> tuple[str, float, float]:
    return segment.label, segment.start, segment.end


def _written(segment: Segment) -> str:
    return f"{segment.label} {segment.start:g}–{segment.end:g} s"
