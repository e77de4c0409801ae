"""What int8 costs in mAP: one decoding of labelled videos, features and scores in both precisions."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.batch import predict
from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import LabelsError
from lstr.extractors.errors import VideoError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.run import TwoStream
from lstr.extractors.video.file_reader import open_chunks
from lstr.extractors.video.probe import probe
from lstr.labels.label_set import VideoLabels, select, targets
from lstr.metrics import per_frame as metrics
from lstr.pipelines.annotations.label_file import read_label_file
from lstr.pipelines.datasets.dataset import subset_of
from lstr.pipelines.progress import Progress

Features = NDArray[np.float32]


def read_truth(
    labels: str | Path, subset: str | None, videos: Mapping[str, Path], classes: tuple[str, ...]
) -> dict[str, VideoLabels]:
    """The labels of those videos that are of a subset. Raises LabelsError where there is none, or of other classes."""
    read = read_label_file(labels, present=videos)
    unknown = sorted(set(read.classes) - set(classes))
    if unknown:
        raise LabelsError(f"{labels} has the class {unknown[0]!r}, which the model does not know.", "give its labels.")
    chosen = select(read, subset_of(read, subset)) if subset or read.has_subsets else read
    found = {name: video for name, video in chosen.videos.items() if name in videos}
    if not found:
        raise LabelsError(
            f"{labels} labels none of the {len(videos)} videos that mAP could be measured on.",
            "give the labelled videos too, or choose others of them with [[subset]].",
        )
    return found


def map_of_both(
    loaded: Checkpoint,
    exact: TwoStream,
    whole: TwoStream,
    videos: Mapping[str, Path],
    truth: Mapping[str, VideoLabels],
    workers: FlowWorkers | None,
) -> Generator[Progress, None, dict[str, Any]]:
    """Per-frame mAP of a model with the features of two TwoStreams of the same images, and on how many videos.

    Raises VideoError for a video that cannot be read.
    """
    labels: list[NDArray[np.uint8]] = []
    scores: tuple[list[Features], ...] = ([], [])
    for video_id, path in videos.items():
        total, rows = probe(path).n_chunks, list[list[Features]]()
        for chunk in open_chunks(path, exact.recipe.long_side)[2]:
            inputs = {}  # of a frame that is decoded and flow that is computed once
            if exact.recipe.rgb:
                inputs["rgb"] = exact.rgb_input(chunk.frames)
            if exact.recipe.flow and workers:
                inputs["flow"] = exact.flow_input(workers.submit(chunk.frames).result())
            both = (
                [net.pooled(stream, images[None])[0] for stream, images in inputs.items()] for net in (exact, whole)
            )
            rows.append([np.concatenate(features) for features in both])
            yield Progress(f"mAP on {video_id}", len(rows), total)
        if not rows:
            raise VideoError(f"{path} is shorter than a chunk.", "leave it out.")
        labels.append(targets(truth[video_id], loaded.classes, len(rows)))
        for found, features in zip(scores, np.stack(rows, axis=1), strict=True):
            found.append(predict(loaded.model, features).numpy())
    results = (metrics.per_frame(np.concatenate(found), np.concatenate(labels), loaded.classes) for found in scores)
    means = (round(float(result["mAP"]), 4) for result in results)
    return dict(zip(("float32", "int8"), means, strict=True)) | {"videos": len(videos)}
