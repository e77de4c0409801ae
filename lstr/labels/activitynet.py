"""ActivityNet's JSON: a database of labelled videos, or the results of a detector."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from lstr.errors import LabelsError, brief
from lstr.labels.segment import Segment, clock_seconds, is_name, is_time


@dataclass(frozen=True)
class Entry:
    """One video: its segments in the order of the file, its subset and its duration in seconds, None if not stated."""

    segments: tuple[Segment, ...]
    subset: str | None
    duration: float | None


@dataclass(frozen=True)
class ActivityNet:
    """The videos of a file by id, and its classes in their order; None where it lists none."""

    videos: dict[str, Entry]
    classes: tuple[str, ...] | None


def read_activitynet(content: Any, where: str, with_results: bool = False) -> ActivityNet:
    """What the JSON `content` of the file `where` holds; segments may be wrong, as `segment.mistake` finds them.

    `with_results` takes the form of results too, and the scores of both forms; without it scores are left out.
    Raises LabelsError, naming the file, the video and what to fix.
    """
    entries = content.get("database") if isinstance(content, dict) else None
    if with_results and isinstance(content, dict) and isinstance(content.get("results"), dict):
        entries = {name: {"annotations": found} for name, found in content["results"].items()}
    if not isinstance(entries, dict):
        raise LabelsError(
            f'The label file {where} has no object "database".',
            'Use {"classes": [...], "database": {id: {"subset", "duration", "annotations"}}}.',
        )
    videos = {name: _entry(f"{where}, video {name!r}", entry, with_results) for name, entry in entries.items()}
    return ActivityNet(videos, _classes(where, content.get("classes")))


def _entry(where: str, entry: Any, with_scores: bool) -> Entry:
    if not isinstance(entry, dict):
        raise LabelsError(f"{where}: the entry is not an object.", 'Give it "subset", "duration" and "annotations".')
    subset, duration = entry.get("subset"), entry.get("duration")
    if subset and not is_name(subset):
        raise LabelsError(f"{where}: subset is {brief(subset)}.", 'Give "training", "validation" or "testing".')
    if duration is not None and not (is_time(duration) and duration >= 0):
        raise LabelsError(
            f"{where}: duration is {brief(duration)}.", "Give the video's seconds, or leave duration out."
        )
    annotations = entry.get("annotations", [])
    if not isinstance(annotations, list):
        raise LabelsError(f"{where}: annotations is not a list.", 'Give [{"label", "segment": [start, end]}, ...].')
    segments = tuple(_segment(f"{where}, annotation {i}", item, with_scores) for i, item in enumerate(annotations))
    return Entry(segments, subset, None if duration is None else float(duration))


def _segment(where: str, item: Any, with_score: bool) -> Segment:
    label = item.get("label") if isinstance(item, dict) else None
    if not is_name(label):
        wrong = f"is {brief(label)}, which no file can hold" if isinstance(label, str) and label else "is missing"
        raise LabelsError(f"{where}: the label {wrong}.", 'Write {"label": "Name", "segment": [start, end]}.')
    written = item.get("segment")
    times = [_seconds(value) for value in written] if isinstance(written, list) else []
    if len(times) != 2 or not all(is_time(value) for value in times):
        raise LabelsError(
            f"{where}: segment is {brief(written)}.", "Give [start, end] as two finite numbers of seconds."
        )
    score = item.get("score") if with_score else None
    if score is not None and not is_time(score):
        raise LabelsError(f"{where}: score is {brief(score)}.", "Give a finite number, or leave score out.")
    subject = item.get("subject")
    return Segment(float(times[0]), float(times[1]), label, score, subject if is_name(subject) else "")


def _seconds(value: Any) -> Any:
    """A time as it stands, or the seconds of "0:01:02.5"."""
    seconds = clock_seconds(value) if isinstance(value, str) else None
    return value if seconds is None else seconds


def _classes(where: str, names: Any) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not isinstance(names, list) or not all(map(is_name, names)):
        raise LabelsError(
            f"{where}: classes is {brief(names)}, no list of names.", 'Write "classes": ["Background", "Name", ...].'
        )
    if len(set(names)) != len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        raise LabelsError(f"{where}: classes holds {', '.join(twice)} more than once.", "Keep each name once.")
    return tuple(names)
