"""BORIS's projects, written: an observation a video, with an ethogram whose keys are letters of the classes."""

import string
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet, layers_of
from lstr.pipelines.annotations.footage import footage_at, has_sound

VERSION = "7.0"
"""The version of the layout, which BORIS reads since its seventh."""
KEYS = string.ascii_lowercase + string.digits + string.ascii_uppercase
PLAYERS = 8
STATE, POINT = "State event", "Point event"
AT_ONCE, OF = "the same behaviour at the same time", ", of "
"""Description of a further subject, which is none of its own"""
VARIABLE = "subset"
"""The independent variable that holds a video's subset."""


def to_boris(annotated: AnnotationSet) -> dict[str, Any]:
    """A project with an observation a video, called by its id; times in milliseconds.

    A class whose segments have no length is a point event, any other a state. Segments of a class and a subject that
    overlap, which one subject cannot do, are of further subjects, whose description says of whom.
    """
    kinds = _kinds(annotated)
    named = {a.subject for video in annotated.videos.values() for a in video.segments if a.subject}
    subjects = dict.fromkeys(sorted(named), "")
    events = {
        video_id: _events(video, annotated.classes, kinds, subjects) for video_id, video in annotated.videos.items()
    }
    now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    has_subsets = "subsets" in annotated.held()
    return {
        "time_format": "hh:mm:ss",
        "project_date": now,
        "project_name": "lstr",
        "project_description": "",
        "project_format_version": VERSION,
        "subjects_conf": {
            str(i): {"key": "", "name": name, "description": description}
            for i, (name, description) in enumerate(subjects.items())
        },
        "behaviors_conf": {
            str(i): _behaviour(label, key, kinds[label])
            for i, (label, key) in enumerate(zip(annotated.classes, _keys(annotated.classes), strict=True))
        },
        "observations": {
            video_id: _observation(video_id, video, events[video_id], now, has_subsets)
            for video_id, video in annotated.videos.items()
        },
        "behavioral_categories": [],
        "behavioral_categories_config": {},
        "independent_variables": {"0": _variable()} if has_subsets else {},
        "coding_map": {},
        "behaviors_coding_map": [],
        "converters": {},
    }


def _kinds(annotated: AnnotationSet) -> dict[str, str]:
    """What each class is, by whether its segments last."""
    kinds = dict.fromkeys(annotated.classes, STATE)
    lasting: dict[str, bool] = {}
    for video in annotated.videos.values():
        for a in video.segments:
            lasting[a.label] = lasting.get(a.label, False) or a.end > a.start
    return kinds | {label: STATE if lasts else POINT for label, lasts in lasting.items()}


def _keys(classes: Sequence[str]) -> list[str]:
    """A key of each class: its first letter that is free, else the first key that is; none where all are taken."""
    taken: set[str] = set()
    keys = []
    for label in classes:
        key = next((key for key in (*label.casefold(), *KEYS) if key in KEYS and key not in taken), "")
        taken.add(key)
        keys.append(key)
    return keys


def _behaviour(label: str, key: str, kind: str) -> dict[str, Any]:
    rest = {"description": "", "color": "", "category": "", "modifiers": {}, "excluded": "", "coding map": ""}
    return {"type": kind, "key": key, "code": label, **rest}


def _variable() -> dict[str, str]:
    return {
        "label": VARIABLE,
        "description": "training, validation or testing",
        "type": "text",
        "default value": "",
        "possible values": "",
    }


def _events(
    video: AnnotatedVideo, classes: Iterable[str], kinds: dict[str, str], subjects: dict[str, str]
) -> list[list[Any]]:
    """Rows of time, subject, code, modifiers and comment, by time; further subjects are added."""
    order = {label: at for at, label in enumerate(classes)}
    together: dict[tuple[str, str], list[Segment]] = {}
    for a in sorted(video.segments, key=lambda a: order[a.label]):
        together.setdefault((a.label, a.subject), []).append(a)
    rows: list[list[Any]] = []
    for (label, of), segments in together.items():
        for number, layer in enumerate(layers_of(segments), 1):
            subject = of if number == 1 else _further(of, number, subjects)
            for a in layer:
                times = (a.start,) if kinds[label] == POINT else (a.start, a.end)
                rows += [[round(time, 3), subject, label, "", ""] for time in times]
    return sorted(rows, key=lambda row: row[:3])


def _further(of: str, number: int, subjects: dict[str, str]) -> str:
    """The name of a subject that does what another one does already; it is added where it is not there yet."""
    description = f"{AT_ONCE}{OF}{of}" if of else AT_ONCE
    name = f"{of} {number}".strip()
    while subjects.get(name, description) != description:
        name += "*"  # a subject is called so
    subjects[name] = description
    return name


def _observation(
    video_id: str, video: AnnotatedVideo, events: list[list[Any]], now: str, has_subsets: bool
) -> dict[str, Any]:
    path = Path(video.media) if video.media else None
    file = path.absolute().as_posix() if path and path.is_file() else video.media or video_id
    footage = footage_at(path) if path and path.is_file() else None
    length = footage.seconds if footage else video.duration
    rate = footage.rate if footage else video.fps
    known = {"length": length, "fps": rate, "hasVideo": True, "hasAudio": has_sound(path) if footage and path else None}
    return {
        "file": {str(player): [file] if player == 1 else [] for player in range(1, PLAYERS + 1)},
        "type": "MEDIA",
        "date": now,
        "description": "",
        "time offset": 0.0,
        "observation time interval": [0, 0],
        "independent_variables": {VARIABLE: video.subset or ""} if has_subsets else {},
        "visualize_spectrogram": False,
        "visualize_waveform": False,
        "media_creation_date_as_offset": False,
        "media_scan_sampling_duration": 0,
        "image_display_duration": 1,
        "close_behaviors_between_videos": False,
        "media_info": {
            **{what: {} if value is None else {file: value} for what, value in known.items()},
            "offset": {"1": 0.0},
        },
        "events": events,
    }
