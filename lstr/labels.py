"""Annotations of a data set, and the per-chunk targets they give."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.config import FEATURES_PER_SECOND
from lstr.errors import LabelsError

BACKGROUND = "Background"
AMBIGUOUS = "Ambiguous"

THUMOS_CLASSES = (
    BACKGROUND, "BaseballPitch", "BasketballDunk", "Billiards", "CleanAndJerk", "CliffDiving", "CricketBowling",
    "CricketShot", "Diving", "FrisbeeCatch", "GolfSwing", "HammerThrow", "HighJump", "JavelinThrow", "LongJump",
    "PoleVault", "Shotput", "SoccerPenalty", "TennisSwing", "ThrowDiscus", "VolleyballSpiking", AMBIGUOUS,
)  # fmt: skip
"""Columns of the published THUMOS'14 model."""

TOLERANCE = 1e-6
"""Chunks. A time this near a chunk's edge is on it: 0.1 + 0.2 s is 0.3 s, and must not label one chunk more."""

Segment = tuple[str, float, float]


@dataclass(frozen=True)
class VideoLabels:
    """One video: its subset, its duration in seconds (None if not given), and (label, start, end) in seconds."""

    subset: str
    duration: float | None
    segments: tuple[Segment, ...]
    n_chunks: int | None = None
    """Rows of the per-chunk targets it was read from; None where segments in seconds are what was given."""


@dataclass(frozen=True)
class Labels:
    """A data set. `classes` begins with "Background"; its order is that of the score columns."""

    classes: tuple[str, ...]
    videos: dict[str, VideoLabels]


def read_labels(path: str | Path, lenient: bool = False) -> Labels:
    """Labels from an ActivityNet JSON file.

    Without `classes` they are the sorted labels of the annotations. "Background" is put first in any case.
    Raises LabelsError, naming the file, the video and what to fix; `lenient` leaves wrong segments in, for
    `lstr.label_check.check` to name them all.
    """
    path = Path(path)
    content = read_json(path)
    database = content.get("database") if isinstance(content, dict) else None
    if not isinstance(database, dict):
        raise LabelsError(
            f'The label file {path} has no object "database".',
            'Use {"classes": [...], "database": {id: {"subset", "duration", "annotations"}}}.',
        )
    videos = {name: _video(path, name, entry) for name, entry in database.items()}
    labels = Labels(_classes(path, content.get("classes"), videos), videos)
    for name, video in videos.items() if not lenient else ():
        for i, segment in enumerate(video.segments):
            if wrong := mistake(segment, labels.classes):
                raise LabelsError(f"{path}, video {name!r}, annotation {i}: {wrong.sentence}", wrong.hint)
    return labels


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises LabelsError when it is missing, unreadable, no JSON, or says a name twice."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise LabelsError(f"There is no label file {path}.", "Check the path given to --labels.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise LabelsError(
            f"The label file {path} cannot be read ({error}).", "Give a readable UTF-8 JSON file."
        ) from error
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _object(path, pairs))
    except (ValueError, RecursionError) as error:
        raise LabelsError(
            f"The label file {path} is not JSON ({error}).", "Convert other forms with: lstr labels convert"
        ) from error


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a segment: its kind, a sentence with the values, and what to do."""

    kind: str
    sentence: str
    hint: str


def mistake(segment: Segment, classes: tuple[str, ...]) -> Mistake | None:
    """What makes a segment unusable in any video; None when it is sound."""
    label, start, end = segment
    if label not in classes:
        known = f"Add it to classes, or use one of: {', '.join(classes)}."
        return Mistake("unknown class", f"the label {label!r} is not in classes.", known)
    if start < 0:
        return Mistake("before the start", f"the segment starts at {start} s.", "Let it start at 0 or later.")
    if end < start:
        sentence = f"the segment ends at {end} s, before its start {start} s."
        return Mistake("negative length", sentence, "Swap the two.")
    return None


def select(labels: Labels, subset: str) -> Labels:
    """The videos of one subset, with all classes. Raises LabelsError when there is none."""
    videos = {name: video for name, video in labels.videos.items() if video.subset == subset}
    if not videos:
        known = sorted({video.subset for video in labels.videos.values()})
        raise LabelsError(
            f"No video is in the subset {subset!r}.", f"Subsets in the labels: {', '.join(known) or 'none'}."
        )
    return replace(labels, videos=videos)


def targets(video: VideoLabels, classes: tuple[str, ...], n_chunks: int) -> NDArray[np.uint8]:
    """Multi-hot targets (n_chunks, C) of 0 and 1.

    A class is on in chunk k when floor(4 start) <= k < ceil(4 end) (rule of the authors of the published code);
    background is on where no other class is, "Ambiguous" counting as one. Raises LabelsError on an unknown class.
    """
    result = np.zeros((n_chunks, len(classes)), dtype=np.uint8)
    column = {name: index for index, name in enumerate(classes)}
    for label, start, end in video.segments:
        if label not in column:
            raise LabelsError(f"The label {label!r} is not among the classes.", f"Known: {', '.join(classes)}.")
        if label != BACKGROUND:
            result[first_chunk(start) : end_chunk(end), column[label]] = 1
    if BACKGROUND in column:
        result[~result.any(axis=1), column[BACKGROUND]] = 1
    return result


def first_chunk(seconds: float) -> int:
    """Chunk that an action starting at `seconds` begins in: floor(4 seconds), up to float noise."""
    chunks = seconds * FEATURES_PER_SECOND
    return round(chunks) if _on_edge(chunks) else math.floor(chunks)


def end_chunk(seconds: float) -> int:
    """Chunk after the last one of an action ending at `seconds`: ceil(4 seconds), up to float noise."""
    chunks = seconds * FEATURES_PER_SECOND
    return round(chunks) if _on_edge(chunks) else math.ceil(chunks)


def _on_edge(chunks: float) -> bool:
    return abs(chunks - round(chunks)) < TOLERANCE


def _video(path: Path, name: str, entry: Any) -> VideoLabels:
    where = f"{path}, video {name!r}"
    if not isinstance(entry, dict):
        raise LabelsError(f"{where}: the entry is not an object.", 'Give it "subset", "duration" and "annotations".')
    subset, duration = entry.get("subset"), entry.get("duration")
    if not isinstance(subset, str):
        raise LabelsError(f"{where}: subset is {subset!r}.", 'Give "training", "validation" or "testing".')
    if duration is not None and not (_is_number(duration) and duration >= 0):
        raise LabelsError(f"{where}: duration is {duration!r}.", "Give the video's seconds, or leave duration out.")
    annotations = entry.get("annotations", [])
    if not isinstance(annotations, list):
        raise LabelsError(f"{where}: annotations is not a list.", 'Give [{"label", "segment": [start, end]}, ...].')
    segments = tuple(_segment(f"{where}, annotation {i}", item) for i, item in enumerate(annotations))
    return VideoLabels(subset, None if duration is None else float(duration), segments)


def _segment(where: str, item: Any) -> Segment:
    label = item.get("label") if isinstance(item, dict) else None
    if not isinstance(label, str) or not label:
        raise LabelsError(f"{where}: there is no label.", 'Write {"label": "Name", "segment": [start, end]}.')
    segment = item.get("segment")
    if not isinstance(segment, list) or len(segment) != 2 or not all(_is_number(value) for value in segment):
        raise LabelsError(f"{where}: segment is {segment!r}.", "Give [start, end] as two finite numbers of seconds.")
    return label, float(segment[0]), float(segment[1])


def _object(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; the usual reader would keep the last of two entries of one name and lose the first."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise LabelsError(f"The label file {path} says {twice!r} twice in one object.", "Join the two entries.")
    return content


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _classes(path: Path, given: Any, videos: dict[str, VideoLabels]) -> tuple[str, ...]:
    if given is None:
        given = sorted({label for video in videos.values() for label, _, _ in video.segments})
    elif not isinstance(given, list) or not all(isinstance(name, str) and name for name in given):
        raise LabelsError(f"{path}: classes is not a list of names.", 'Write "classes": ["Background", "Name", ...].')
    elif len(set(given)) != len(given):
        twice = sorted({name for name in given if given.count(name) > 1})
        raise LabelsError(f"{path}: classes holds {', '.join(twice)} more than once.", "Keep each name once.")
    classes = (BACKGROUND, *(name for name in given if name != BACKGROUND))
    return classes
