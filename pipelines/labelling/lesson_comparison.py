"""What became better and worse from the learning before to this one, on videos that neither has learnt from."""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lstr.errors import LstrError
from lstr.extractors.errors import ExtractorError, MissingPathError
from lstr.extractors.video.inputs import VIDEO_SUFFIXES
from lstr.labels.label_set import read_labels
from lstr.pipelines.comparison.differences import find_differences
from lstr.pipelines.comparison.job import unseen
from lstr.pipelines.detection.checkpoint import load_checkpoint
from lstr.pipelines.detection.events import Decided
from lstr.pipelines.detection.job import DetectOptions, detect_sources
from lstr.pipelines.detection.sources import VideoSource
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.evaluation.held_out import HeldOut, read_held_out
from lstr.pipelines.evaluation.scoring import Scores
from lstr.pipelines.files.videos import find_sources
from lstr.pipelines.labelling.lesson import LessonFiles
from lstr.pipelines.labelling.scored_chunks import ScoredChunks
from lstr.pipelines.learning.workspace import Workspace
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.thresholds.choice import choose_thresholds


def compared(
    before: LessonFiles, files: LessonFiles, names: tuple[str, str], videos: Sequence[str]
) -> dict[str, Any] | None:
    """What became better and worse since the learning before; None where there is nothing to compare with.

    The model before also scores what this one was measured on and it has never seen, as videos labelled since. names:
    of the one before and of this one. videos: as the command line has them.
    """
    with suppress(MissingPathError):
        old, new = (read_held_out(Workspace(one.model).held_out) for one in (before, files))
        found = find_sources(videos, VIDEO_SUFFIXES)
        more = {i: path for i, path in found.items() if i in new.scores and i not in old.scores}
        with suppress(LstrError, ExtractorError):  # of a broken file: the new model counts all the same
            old = with_scores(old, before.model, {i: path for i, path in more.items() if isinstance(path, Path)})
        now = files.action_names()
        renamed = {name: now[key] for key, name in before.action_names().items() if key in now}
        differences = find_differences(names, old, new, read_labels(files.labels), renamed)
        return {**differences.to_dict(), "old": before.number} if differences else None
    return None


def with_scores(held_out: HeldOut, model: Path, videos: dict[str, Path]) -> HeldOut:
    """What a model file was measured on, and those of the videos {id: path} that it has not seen and that can be read.

    Raises SeenError where it has seen all, CheckpointError or MissingPathError where the file cannot be read.
    """
    left = unseen(videos, [open_model(model)])
    loaded = load_checkpoint(model)
    chunks = {video: ScoredChunks() for video in left}
    sources = [VideoSource(video, str(path)) for video, path in left.items()]
    with closing(detect_sources(sources, DetectOptions(loaded, at_once=1))) as events:
        for event in events:
            if isinstance(event, Decided):
                chunks[event.id].take(event.decision.time, event.decision.scores)
    scores: dict[str, Scores] = {i: np.asarray(one.rows(), np.float32) for i, one in chunks.items() if one}
    rules = choose_thresholds(loaded)
    found = {i: tuple(detect_events(rows, loaded.classes, rules).detections) for i, rows in scores.items()}
    return replace(held_out, scores={**held_out.scores, **scores}, detections={**held_out.detections, **found})
