"""What a label file holds, in numbers."""

from collections import Counter
from pathlib import Path
from typing import Any

from lstr.labels.balance import actions_of
from lstr.labels.check import SEVERITIES, check
from lstr.labels.label_set import Labels
from lstr.pipelines.annotations.label_file import read_label_file


def describe_labels(path: Path) -> dict[str, Any]:
    """Videos by subset, durations, segments and seconds per class, and how much `lstr labels check` finds.

    Wrong segments are counted as the file has them. Raises LabelsError.
    """
    labels = read_label_file(path, lenient=True, skip_missing=True)
    found = Counter(finding.severity for finding in check(labels))
    return {
        "kind": "label file",
        **counts_of(labels),
        "subsets": dict(Counter(video.subset or "none" for video in labels.videos.values())),
        "has_subsets": labels.has_subsets,
        "durations": _durations(labels),
        "per_class": _per_class(labels),
        "findings": {f"{severity}s": found[severity] for severity in SEVERITIES},
    }


def counts_of(labels: Labels) -> dict[str, int]:
    """Videos, segments, and classes but for background and ambiguous stretches."""
    segments = sum(len(video.segments) for video in labels.videos.values())
    return {"videos": len(labels.videos), "segments": segments, "classes": len(actions_of(labels))}


def _durations(labels: Labels) -> dict[str, float | int]:
    seconds = [video.duration for video in labels.videos.values() if video.duration is not None]
    if not seconds:
        return {"stated": 0}
    return {"stated": len(seconds), "seconds": sum(seconds), "shortest": min(seconds), "longest": max(seconds)}


def _per_class(labels: Labels) -> dict[str, dict[str, float]]:
    """Segments, their seconds, and the videos that show the class."""
    every = [(name, segment) for name, video in labels.videos.items() for segment in video.segments]
    classes = dict.fromkeys([*actions_of(labels), *(segment.label for _, segment in every)])
    summary = {}
    for label in classes:
        own = [(name, segment) for name, segment in every if segment.label == label]
        seconds = round(sum(max(0.0, segment.end - segment.start) for _, segment in own), 3)
        summary[label] = {"segments": len(own), "seconds": seconds, "videos": len({name for name, _ in own})}
    return summary
