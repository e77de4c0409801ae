"""The quantisation job: convert the feature networks of a model file to int8, with ranges measured on videos."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lstr.errors import RecipeError, VideoError
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.networks.runtime import AUTO, choose_runtime
from lstr.extractors.networks.torch_runtime import Ranges, Scale, fuse
from lstr.extractors.recipe import INT8
from lstr.extractors.run import run_on
from lstr.extractors.stages import torch_threads
from lstr.extractors.twostream import build_as
from lstr.extractors.video.inputs import find_videos
from lstr.files.atomic import check_writable
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.packing import change_model, free_path
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.sampled_inputs import sampled_inputs

CHUNKS = 400  # half for measuring ranges, half for the comparison
BATCH = 8  # chunks at a time
DEVICE = "cpu"  # int8 networks run on CPUs


def quantise(
    paths: Sequence[str | Path],
    model_path: str | Path,
    output: str | Path,
    n_chunks: int = CHUNKS,
    runtime: str = AUTO,
) -> Generator[Any, None, None]:
    """Measure the ranges of a model's networks on videos, and write the model with int8 networks.

    `n_chunks` chunks are sampled evenly from the videos. One half gives the ranges; on the other half the cosine
    between int8 and float32 features is measured.

    Yields:
        Progress and Notice, and at the end Finished with the ModelFile; its entry `int8` has the cosines.

    Raises:
        RecipeError: The model is in int8 already.
        VideoError: No video can be read.
        CheckpointError, WeightsError, OutputError, NetworkRuntimeError: A file or runtime cannot be used.
    """
    videos = find_videos(paths)
    model = open_model(model_path)
    output = free_path(output, model.path)
    choose_runtime(runtime, DEVICE)
    check_writable(output.absolute().parent)
    recipe = model.recipe.without_folds()
    if recipe.precision == INT8:
        raise RecipeError(f"{model.path} is already in int8.", "use the model file that it was made from.")
    exact = build_as(replace(recipe, precision="float32"), model.network_sources(), DEVICE)
    with torch_threads(1), flow_workers(recipe.algorithm) as workers:
        images = yield from sampled_inputs(exact, videos, workers, n_chunks, "chunks")
        if min(map(len, images.values())) < 2:
            raise VideoError("The videos have a single chunk; int8 needs a few hundred.", "use more videos.")
        parts: dict[str, Any] = {}
        for stream, network in exact.networks.items():
            part, chosen = exact.recipe.parts[stream], images[stream][::2]
            fused = fuse(network, "float32", DEVICE, part.fuses)
            ranges = Ranges(fused, part)
            for start in range(0, len(chosen), BATCH):
                with torch.inference_mode():
                    fused(Scale(part)(torch.from_numpy(np.stack(chosen[start : start + BATCH]))))
                yield Progress(f"{stream} ranges", min(start + BATCH, len(chosen)), len(chosen))
            parts[stream] = replace(part, ranges=ranges.result())
        both = [exact, exact.copy(replace(exact.recipe, precision=INT8, **parts))]
        both = [run_on(twostream, runtime) for twostream in both]
        cropped = []  # the sampled images are crops already, so networks take them whole
        for twostream in both:
            parts = {stream: replace(part, crops=1) for stream, part in twostream.recipe.parts.items()}
            cropped.append(twostream.copy(replace(twostream.recipe, **parts)))
            cropped[-1].warnings = twostream.warnings
        cosines = {}
        for stream, chunks in images.items():
            found = []
            for at, chunk in enumerate(chunks[1::2], start=1):
                a, b = (twostream.pooled(stream, chunk[None, None])[0] for twostream in cropped)
                found.append(float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-12)))
                yield Progress(f"{stream} in int8", at, len(chunks) // 2)
            cosines[stream] = {"mean": round(float(np.mean(found)), 6), "least": round(min(found), 6)}
    measured = {
        "made_from": model.recipe.id,
        "videos": sorted(videos),
        "chunks": len(next(iter(images.values()))),
        "cosine": cosines,
    }
    for text in dict.fromkeys(warning for twostream in both for warning in twostream.warnings):
        yield Notice(text)
    quantised = both[1].recipe
    yield Finished(change_model(model, output, {"recipe": quantised.to_dict(), quantised.precision: measured}))
