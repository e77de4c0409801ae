"""Scores and detections of videos by what has not learnt from them, kept so that a later model can be compared."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from lstr.extractors.errors import MissingPathError
from lstr.labels.segment import Segment
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.evaluation.scoring import Evaluation, Scores
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import to_json

ABOUT = "about"  # the array that names the others, as JSON


@dataclass(frozen=True)
class HeldOut:
    """What was scored and detected of each video, by id."""

    classes: tuple[str, ...]
    scores: Mapping[str, Scores]
    """(L, C)"""
    detections: Mapping[str, tuple[Segment, ...]]


def held_out_of(evaluation: Evaluation) -> HeldOut:
    """The scores of an evaluation, and what its thresholds make of them."""
    split, classes = evaluation.split, tuple(evaluation.split.labels.classes)
    scores = {video.id: rows for video, rows in zip(split.videos, evaluation.scores, strict=True)}
    found = {
        i: detect_events(rows, classes, evaluation.rules_of(i), clock=split.clock).detections
        for i, rows in scores.items()
    }
    return HeldOut(classes, scores, {i: tuple(segments) for i, segments in found.items()})


def write_held_out(path: Path, held_out: HeldOut) -> None:
    """Write it as one file of numpy. Raises OutputError."""
    detections = {i: [segment.to_dict() for segment in found] for i, found in held_out.detections.items()}
    about = {"classes": held_out.classes, "videos": [*held_out.scores], "detections": detections}
    arrays: dict[str, Any] = {str(at): np.asarray(rows, np.float32) for at, rows in enumerate(held_out.scores.values())}
    arrays[ABOUT] = np.frombuffer(to_json(about).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_held_out(path: Path) -> HeldOut:
    """What `write_held_out` has written. Raises MissingPathError where it is not there or cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(arrays[ABOUT].tobytes())
            scores = {i: arrays[str(at)] for at, i in enumerate(about["videos"])}
        detections = {i: tuple(map(Segment.from_dict, found)) for i, found in about["detections"].items()}
        return HeldOut(tuple(about["classes"]), scores, detections)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        hint = "learn again: `lstr learn` writes it beside its report."
        raise MissingPathError(f"{path} holds no scores of held-out videos ({error}).", hint) from error
