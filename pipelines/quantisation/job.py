"""The quantisation job: a model file and some of the user's videos to one whose feature networks compute in int8."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lstr.batch import predict
from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import LabelsError, few
from lstr.extractors.errors import RecipeError, VideoError
from lstr.extractors.flow.workers import FlowWorkers, flow_workers
from lstr.extractors.networks.runtimes.fused import fuse
from lstr.extractors.networks.runtimes.quantised import Ranges
from lstr.extractors.networks.runtimes.runtimes import AUTO, choose_runtime
from lstr.extractors.networks.runtimes.torch_runtime import scaled
from lstr.extractors.prefetch import torch_threads
from lstr.extractors.recipe import INT8, Recipe
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_as
from lstr.extractors.video.file_reader import open_chunks
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.probe import probe
from lstr.labels.label_set import VideoLabels, select, targets, with_ambiguous
from lstr.metrics import per_frame as metrics
from lstr.pipelines.annotations.label_file import read_label_file
from lstr.pipelines.datasets.dataset import subset_of
from lstr.pipelines.extraction.prepare import sampled_inputs
from lstr.pipelines.files.atomic import check_writable
from lstr.pipelines.model_files.model_file import ModelFile, open_model
from lstr.pipelines.model_files.packing import change_precision, free_path
from lstr.pipelines.networks.converted import run_on
from lstr.pipelines.progress import Finished, Notice, Progress

CHUNKS = 400  # half of them for the ranges, half to compare on
BATCH = 8  # chunks at a time
DEVICE = "cpu"  # int8 is for processors

Features = NDArray[np.float32]
Images = Mapping[str, Sequence[NDArray[np.uint8]]]
"""Images of the sampled chunks by stream, each (segments, H, W, C)."""


@dataclass(frozen=True)
class QuantiseOptions:
    """What is quantised, by which videos, and what is left of it."""

    model: str | Path
    output: str | Path
    labels: str | Path | None = None
    """Labels of the videos, in any form; with them the mAP of both is measured, over all of their length."""
    subset: str | None = None
    """Subset of the labels; None is testing, else validation, else all where they name no subsets."""
    chunks: int = CHUNKS
    """Spread evenly over the videos."""
    flow_threads: int | None = None
    flow_backend: str = "auto"
    runtime: str = AUTO


@dataclass(frozen=True)
class Quantised:
    """The model file that was written, and what int8 costs, as it says itself."""

    model: ModelFile
    measured: Mapping[str, Any]


def quantise(paths: Sequence[str | Path], options: QuantiseOptions) -> Generator[Any, None, None]:
    """Measure the ranges of a model's networks on videos, and write the model with them in int8.

    Yields Progress and Notice, and last Finished with Quantised. Half of the sampled chunks give the ranges; on the
    others the cosine to the float32 features is measured. Raises CheckpointError, RecipeError for a model that is in
    int8 already, VideoError where no video can be read, LabelsError, WeightsError, OutputError or NetworkRuntimeError.
    """
    videos = find_videos(paths)
    model = open_model(options.model)
    output = free_path(options.output, model.path)
    choose_runtime(options.runtime, DEVICE)
    check_writable(output.absolute().parent)
    recipe = model.recipe.without_folds()
    if recipe.precision == INT8:
        raise RecipeError(f"{model.path} is in int8 already.", "give the model file that it was made from.")
    truth = read_truth(options.labels, options.subset, videos, model.classes) if options.labels else {}
    calibration = model.calibration()
    sources = replace(model.network_sources(), calibration=calibration, calibrated_on=recipe.calibrated_on)
    exact = build_as(replace(recipe, precision="float32"), sources, DEVICE)
    with torch_threads(1), flow_workers(recipe.algorithm, options.flow_threads, options.flow_backend) as workers:
        images = yield from sampled_inputs(exact, videos, workers, options.chunks, "chunks")
        if min(map(len, images.values())) < 2:
            raise VideoError("The videos have a single chunk, and int8 needs some hundred.", "give more videos.")
        whole = yield from _in_int8(exact, {stream: part[::2] for stream, part in images.items()})
        exact, whole = run_on(exact, options.runtime), run_on(whole, options.runtime)
        cosines = yield from _cosines(exact, whole, {stream: part[1::2] for stream, part in images.items()})
        measured = {
            "made_from": model.recipe.id,
            "videos": sorted(videos),
            "chunks": len(next(iter(images.values()))),
            "cosine": cosines,
        }
        del images
        if truth:
            seen = sorted(truth.keys() & set(model.about["seen"]))
            if seen:
                some = few(seen)
                yield Notice(f"{model.path} was trained on {len(seen)} of these videos ({some}): both mAPs flatter it.")
            found = {name: videos[name] for name in truth}
            measured["mAP"] = yield from map_of_both(model.checkpoint(), exact, whole, found, truth, workers)
    for text in dict.fromkeys((*exact.warnings, *whole.warnings)):
        yield Notice(text)
    yield Finished(Quantised(change_precision(model.path, output, whole.recipe, measured), measured))


@torch.inference_mode()
def _in_int8(exact: TwoStream, images: Images) -> Generator[Progress, None, TwoStream]:
    """The same networks with the ranges of these images."""
    parts: dict[str, Any] = {}
    for stream, network in exact.networks.items():
        part = exact.recipe.parts[stream]
        fused = fuse(network, "float32", DEVICE, part.fuses)
        ranges = Ranges(fused, part)
        for start in range(0, len(images[stream]), BATCH):
            batch = np.concatenate(images[stream][start : start + BATCH])
            fused(scaled(torch.from_numpy(batch), part))
            yield Progress(f"{stream} ranges", min(start + BATCH, len(images[stream])), len(images[stream]))
        parts[stream] = replace(part, ranges=ranges.result())
    recipe: Recipe = replace(exact.recipe, precision=INT8, **parts)
    return exact.again(recipe)


def _cosines(exact: TwoStream, whole: TwoStream, images: Images) -> Generator[Progress, None, dict[str, Any]]:
    """Mean and least cosine of the features of chunks in int8 to those in float32, by stream."""
    cropped = []  # once, which is what the images are
    for twostream in (exact, whole):
        parts: dict[str, Any] = {stream: replace(part, crops=1) for stream, part in twostream.recipe.parts.items()}
        cropped.append(twostream.again(replace(twostream.recipe, **parts)))
        cropped[-1].warnings = twostream.warnings
    cosines = {}
    for stream, chunks in images.items():
        found = []
        for at, chunk in enumerate(chunks, start=1):
            a, b = (twostream.pooled(stream, chunk[None])[0] for twostream in cropped)
            found.append(float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-12)))
            yield Progress(f"{stream} in int8", at, len(chunks))
        cosines[stream] = {"mean": round(float(np.mean(found)), 6), "least": round(min(found), 6)}
    return cosines


def read_truth(
    labels: str | Path, subset: str | None, videos: Mapping[str, Path], classes: tuple[str, ...]
) -> dict[str, VideoLabels]:
    """The labels of those videos that are of a subset. Raises LabelsError where there is none, or of other classes."""
    read = read_label_file(labels, present=videos)
    unknown = sorted(set(read.classes) - set(with_ambiguous(classes, read.classes)))
    if unknown:
        raise LabelsError(f"{labels} has the class {unknown[0]!r}, which the model does not know.", "give its labels.")
    chosen = select(read, subset_of(read, subset)) if subset or read.has_subsets else read
    found = {name: video for name, video in chosen.videos.items() if name in videos}
    if not found:
        raise LabelsError(
            f"{labels} labels none of the {len(videos)} videos that mAP could be measured on.",
            "give the labelled videos too, or choose others of them with --subset.",
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
    shown = {segment.label for video in truth.values() for segment in video.segments}
    classes, n_known = with_ambiguous(loaded.classes, shown), len(loaded.classes)
    labels: list[NDArray[np.uint8]] = []
    scores: tuple[list[Features], ...] = ([], [])
    for video_id, path in videos.items():
        total, rows = probe(path).n_chunks, list[list[Features]]()
        for chunk in open_chunks(path, exact.recipe.long_side)[2]:
            flow = workers.submit(chunk.frames).result() if workers else None
            # of a frame that is decoded and flow that is computed once
            inputs = {stream: exact.inputs.cropped(stream, chunk.frames, flow) for stream in exact.recipe.streams}
            both = (
                [net.pooled(stream, images[None])[0] for stream, images in inputs.items()] for net in (exact, whole)
            )
            rows.append([np.concatenate(features) for features in both])
            yield Progress(f"mAP on {video_id}", len(rows), total)
        if not rows:
            raise VideoError(f"{path} is shorter than a chunk.", "leave it out.")
        labels.append(targets(truth[video_id], classes, len(rows)))
        for found, features in zip(scores, np.stack(rows, axis=1), strict=True):
            found.append(np.pad(predict(loaded.model, features).numpy(), ((0, 0), (0, len(classes) - n_known))))
    results = (metrics.per_frame(np.concatenate(found), np.concatenate(labels), classes) for found in scores)
    means = (round(float(result["mAP"]), 4) for result in results)
    return dict(zip(("float32", "int8"), means, strict=True)) | {"videos": len(videos)}
