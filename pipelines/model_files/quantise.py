"""The quantisation job: a model file and some of the user's videos to one whose feature networks compute in int8."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lstr.errors import RecipeError, VideoError
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.networks.fused import Ranges, fuse, scaled
from lstr.extractors.networks.runtime import AUTO, choose_runtime
from lstr.extractors.recipe import INT8, Recipe
from lstr.extractors.run import TwoStream
from lstr.extractors.runtime_choice import run_on
from lstr.extractors.stages import torch_threads
from lstr.extractors.twostream import build_as
from lstr.extractors.video.inputs import find_videos
from lstr.files.atomic import check_writable
from lstr.pipelines.model_files.model_file import ModelFile, open_model
from lstr.pipelines.model_files.packing import change_precision, free_path
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.sampled_inputs import sampled_inputs

CHUNKS = 400  # half of them for the ranges, half to compare on
BATCH = 8  # chunks at a time
DEVICE = "cpu"  # int8 is for processors

# Images of the sampled chunks by stream, each (segments, H, W, C).
Images = Mapping[str, Sequence[NDArray[np.uint8]]]


@dataclass(frozen=True)
class QuantiseOptions:
    """What is quantised, by which videos, and what is left of it."""

    model: str | Path
    output: str | Path
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
    int8 already, VideoError where no video can be read, WeightsError, OutputError or NetworkRuntimeError.
    """
    videos = find_videos(paths)
    model = open_model(options.model)
    output = free_path(options.output, model.path)
    choose_runtime(options.runtime, DEVICE)
    check_writable(output.absolute().parent)
    recipe = model.recipe.without_folds()
    if recipe.precision == INT8:
        raise RecipeError(f"{model.path} is in int8 already.", "give the model file that it was made from.")
    sources = replace(model.network_sources(), calibration=model.calibration(), calibrated_on=recipe.calibrated_on)
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
    recipe: Recipe = replace(exact.recipe, precision="int8", **parts)
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
