"""Per-chunk targets as the field's repositories read them: `target_perframe/ID.npy` and `data_info.json`."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, FEATURES_PER_SECOND, Clock
from lstr.errors import LabelsError
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, read_json, targets
from lstr.labels.perframe import SUBSETS, TARGETS, is_data_info, read_data_info
from lstr.labels.video_ids import check_match
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from lstr.pipelines.annotations.format import EVERYTHING, ConvertOptions, Format, Written
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json

INFO = "data_info.json"
MOST_TARGETS = 2**30  # of a video: three years of 3 classes
NO_CLASS = -100  # the published ignore_index of a data set without an ambiguous class


class PerFrame(Format):
    """A folder of targets with its data_info.json."""

    name = "perframe"
    holds = EVERYTHING - {"scores", "subjects"}
    detects = False
    is_folder = True

    def recognises_folder(self, folder: Path) -> bool:
        return (folder / INFO).exists()

    def read_folder(self, folder: Path, options: ConvertOptions) -> AnnotationSet:
        return read_perframe(folder)

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> Written:
        lengths, clock = None, CLOCK
        if options.features:  # which brings torch, that labels alone do not need
            from lstr.pipelines.features.folder import open_features

            opened = open_features(options.features)
            lengths, clock = opened.lengths(), opened.clock
        return Written([output / INFO], write_perframe(output, annotated, options.name, lengths, clock))


def chunk_targets(
    video: AnnotatedVideo, classes: tuple[str, ...], n_chunks: int | None = None, clock: Clock = CLOCK
) -> NDArray[np.float32]:
    """Targets (n_chunks, 1 + C) float32, background first, by the rule of `lstr.labels.label_set.targets`.

    Without `n_chunks` they are the whole chunks of the duration, or reach to the last segment's end.
    """
    if n_chunks is None:
        seconds = video.duration
        n_chunks = clock.end(video.end) if seconds is None else clock.first(seconds)
    if n_chunks * len(classes) > MOST_TARGETS:
        raise AnnotationError(
            f"A video of {clock.at(n_chunks):g} s is too long for a table of its chunks.",
            "check whether the times are seconds; --frames FPS says that they count frames.",
        )
    return targets(VideoLabels("", None, video.segments), (BACKGROUND, *classes), n_chunks, clock).astype(np.float32)


def write_perframe(
    folder: Path,
    annotated: AnnotationSet,
    name: str,
    lengths: Mapping[str, int] | None = None,
    clock: Clock = CLOCK,
) -> list[str]:
    """Write targets and data_info.json into a folder, which may be that of the features; returns the videos left out.

    `name` is the data set's in data_info.json; another one of the file is kept. `lengths` are chunks per video, as its
    features have, by their `clock`; videos it does not name are left out. Raises AnnotationError where a video has no
    subset, LabelsError where the features have none of the videos.
    """
    try:
        others = json.loads((folder / INFO).read_text(encoding="utf-8")) if (folder / INFO).exists() else {}
    except ValueError as error:
        raise AnnotationError(f"{folder / INFO} is not JSON ({error}).", "move it away.") from error
    if lengths is not None:
        check_match(annotated.videos, lengths)
    missing = []
    sessions: dict[str, list[str]] = {SUBSETS[subset]: [] for subset in ("training", "testing")}
    classes = (BACKGROUND, *annotated.classes)
    for video_id, video in annotated.videos.items():
        if video.subset not in SUBSETS:
            raise AnnotationError(
                f"The video {video_id!r} has the subset {video.subset}, and {INFO} lists videos by subset.",
                "name it with --subset training or testing.",
            )
        if lengths is not None and video_id not in lengths:
            missing.append(video_id)
            continue
        with replacing(folder / TARGETS / f"{video_id}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, chunk_targets(video, annotated.classes, (lengths or {}).get(video_id), clock))
        sessions.setdefault(SUBSETS[video.subset], []).append(video_id)
    entry = {
        "data_root": str(folder),
        "class_names": list(classes),
        "num_classes": len(classes),
        "ignore_index": classes.index(AMBIGUOUS) if AMBIGUOUS in classes else NO_CLASS,
        "metrics": "AP",
        "fps": FEATURES_PER_SECOND if clock == CLOCK else float(clock.rate),
        **sessions,
    }
    write_json(folder / INFO, {**others, name: entry})
    return missing


def read_perframe(folder: Path, name: str | None = None) -> AnnotationSet:
    """The segments that a folder's targets are made of, on the grid of chunks. Raises AnnotationError.

    `name` is the data set's in data_info.json, its first without it.
    """
    try:
        content = read_json(folder / INFO)
        if not is_data_info(content):
            raise LabelsError(f"{folder / INFO} names no data set.", "")
        read = read_data_info(folder / INFO, content, [folder], name or next(iter(content)), any_rate=True)
    except LabelsError as error:
        raise AnnotationError(
            f"{folder} holds no per-chunk targets: {error}", f"give a folder with {INFO} and {TARGETS}/."
        ) from error
    videos = {
        video_id: AnnotatedVideo(video.segments, video.subset, video.duration)
        for video_id, video in read.videos.items()
    }
    return AnnotationSet(videos, read.classes)
