"""The jobs that convert a model file: to graphs, after checking that both give the same scores, or to int8 networks."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from lstr import __version__, exported, streaming
from lstr.errors import (
    CheckpointError,
    ConfigError,
    NetworkRuntimeError,
    RecipeError,
    VideoError,
    WeightsError,
    install_hint,
)
from lstr.exported import MAX_STREAMS, ExportedStep, open_step
from lstr.exported_graphs import OPSET, describe, make_graph
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.networks.archive import GRAPH
from lstr.extractors.networks.graph_file import check_graph
from lstr.extractors.networks.runtime import AUTO, MIN_COSINE, choose_runtime
from lstr.extractors.networks.torch_runtime import Ranges, Scale, fuse, make_network_graph
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.recipe import INT8
from lstr.extractors.run import RunOptions, TwoStream, run_on
from lstr.extractors.stages import torch_threads
from lstr.extractors.twostream import build_as
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.reader import open_chunks
from lstr.files.atomic import check_writable
from lstr.models.kind import Model
from lstr.pipelines.model_files.model_file import STEP, open_model
from lstr.pipelines.model_files.packing import change_model, free_path
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.sampled_inputs import sampled_inputs
from lstr.pipelines.scenes import SceneConfig, render_scenes

# Maximum difference in probability between torch and the graphs, the same as between streaming and batch computation
TOLERANCE = 1e-5
# Compared steps after the memory is full, so that the oldest chunks have been replaced in every slot
STEPS_AFTER_MEMORY = 200
STEPS_PER_PROGRESS = 20
# The packages that write and run graphs; the extra `onnxruntime` installs both.
PACKAGES = ("onnx", "onnxruntime")
DRAWN = SceneConfig(n_videos=1, n_testing=1)
QUANTISE_CHUNKS = 400  # half for measuring the ranges of int8, half for the comparison
QUANTISE_BATCH = 8  # chunks at a time

Features = NDArray[np.float32]


def export(
    model_path: str | Path, output: str | Path, videos: Sequence[str | Path] = (), streams: int = 1, n_chunks: int = 36
) -> Generator[Any, None, None]:
    """Write a model file as graphs, which run without torch, after comparing their scores with torch's.

    Args:
        model_path: The model file.
        output: The file to write.
        videos: Videos to compare on; by default one is drawn.
        streams: Streams of one call of the step's graph; a file serves any number, in groups of this size.
        n_chunks: Chunks of the videos to compare on.

    Yields:
        Progress and Notice, and at the end Finished with the ModelFile; `exported["alike"]` is the difference of
        scores.

    Raises:
        CheckpointError: It is not a model file, is exported already, or the scores of the graphs differ.
        WeightsError: It does not contain its networks.
        ConfigError: The kind of model cannot be exported.
        NetworkRuntimeError: ONNX Runtime is not installed.
        VideoError, OutputError: A video cannot be read, or the output cannot be written.
    """
    if not 1 <= streams <= MAX_STREAMS:
        raise ConfigError(
            f"streams must be between 1 and {MAX_STREAMS}, not {streams}.", "use another number with --set streams=N."
        )
    model = open_model(model_path)
    if model.exported is not None:
        raise CheckpointError(f"{model.path} is already exported.", "use the model file that it was exported from.")
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        message = f"`lstr export` needs the package {missing[0]}, which is not installed."
        raise NetworkRuntimeError(message, install_hint("onnxruntime"))
    if fetched := [stream for stream, where in model.networks.items() if where == "published"]:
        raise WeightsError(
            f"{model.path} does not contain its {fetched[0]} network, which its authors publish separately.",
            "pack them into it first, if their licence permits: `lstr pack RUN --weights FILE`.",
        )
    output = free_path(output, model.path)
    check_writable(output.absolute().parent)
    loaded = model.checkpoint()
    step = describe(loaded.model, streams)
    recipe = model.recipe.without_folds()
    if recipe.precision == "bf16":
        yield Notice(
            f"The networks of {model.path} compute in bfloat16, and in the exported file in float32: scores differ by "
            "what bfloat16 rounds."
        )
    yield Progress("graphs", 0, 1 + len(model.networks))
    graphs = {STEP: make_graph(loaded.model, step)}
    # ONNX Runtime does not support bfloat16 on a CPU.
    precision = INT8 if recipe.precision == INT8 else "float32"
    exact = build_as(replace(recipe, precision=precision), model.network_sources(), "cpu")
    for done, stream in enumerate(exact.recipe.streams, start=1):
        yield Progress("graphs", done, 1 + len(model.networks))
        graphs[stream] = make_network_graph(exact.job(stream))
    # Check graphs as on loading, so that `lstr detect` will accept the file.
    for name, graph in graphs.items():
        try:
            check_graph(graph, f"{name}{GRAPH}")
        except WeightsError as error:
            raise NetworkRuntimeError(f"{model.path} cannot be exported: {error}", "run it with torch.") from error
    sources = WeightSources(graphs={stream: partial(graphs.__getitem__, stream) for stream in recipe.streams})
    networks: dict[str, Any] = dict.fromkeys(recipe.streams)
    converted = TwoStream(networks, exact.recipe, "cpu", sources, RunOptions(AUTO))
    # Values of int8 networks between two steps may round differently, so both score torch's features.
    whole = precision != INT8
    runner = open_step(step, graphs[STEP])
    alike = yield from _compare(videos, n_chunks, exact, converted, loaded.model, runner, whole)
    first, later, cosine = alike["scores"], alike["later_scores"], alike["cosine"]
    fault = ""
    if not max(first, later) <= TOLERANCE:  # also for NaN
        fault = f"their scores differ by {max(first, later):.2g}, more than {TOLERANCE:g}"
    elif not cosine >= MIN_COSINE:
        fault = f"the cosine of a chunk's features is {cosine:.3f}, less than {MIN_COSINE:g}"
    if fault:
        raise CheckpointError(
            f"The graphs of {model.path} and torch compute different results: {fault}. No file was written.",
            "run the model with torch, or with another runtime: `lstr detect --set runtime=openvino`.",
        )
    about = {
        "step": msgspec.to_builtins(step),
        "runs_on": PACKAGES[1],
        "opset": OPSET,
        "precision": {"step": "float32", "networks": exact.job(exact.recipe.streams[0]).exact_precision},
        "alike": {**alike, "cosine": round(cosine, 6), "whole": whole, "tolerance": TOLERANCE},
        "made_from": sha256_of(model.path),
        "made_by": {"lstr": __version__, **{name: version(name) for name in ("torch", *PACKAGES)}},
    }
    entries = {stream: {**entry, "from": "inside"} for stream, entry in model.about["networks"].items()}
    files = {f"{name}{GRAPH}": graph for name, graph in graphs.items()}
    yield Finished(change_model(model, output, {"networks": entries, "exported": about}, files))


def _compare(
    videos: Sequence[str | Path],
    n_chunks: int,
    exact: TwoStream,
    converted: TwoStream,
    model: Model,
    step: ExportedStep,
    whole: bool,
) -> Generator[Progress, None, dict[str, Any]]:
    """Return how far the first chunks of the videos and steps after them differ between torch and graphs.

    `model` scores the features by torch, `step` those by graphs if `whole`. The entries `scores` and `later_scores` are
    the largest differences in probability, `cosine` is the lowest. Each of several streams has other chunks.
    """
    with ExitStack() as stack:
        if not videos:
            yield Progress("drawing", 0, 1)
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="lstr-export-")))
            videos = [render_scenes(folder, DRAWN).parent / "videos"]
        stack.enter_context(torch_threads(1))
        workers = stack.enter_context(flow_workers(exact.recipe.algorithm))
        chunks: list[Chunk] = []
        for path in find_videos(videos).values():
            chunks += islice(open_chunks(path, exact.recipe.long_side)[2], n_chunks - len(chunks))
        features: list[Features] = []  # (n, D) of both
        for name, twostream in (("features by torch", exact), ("features by graphs", converted)):
            rows = []
            for row in twostream.rows(iter(chunks), workers):
                rows.append(np.concatenate(list(row.features.values())))
                yield Progress(name, len(rows), len(chunks))
            features.append(np.stack(rows))
    theirs, ours = features
    lengths = np.linalg.norm(theirs, axis=1) * np.linalg.norm(ours, axis=1)
    cosine = float(((theirs * ours).sum(1) / np.maximum(lengths, 1e-12)).min())
    B, config, n = step.description.streams, model.config, len(theirs)
    total = n + config.work_length + config.context + (config.long_length if config.n_long else 0) + STEPS_AFTER_MEMORY
    rng = np.random.default_rng(0)
    torch_state, state = streaming.create(model, B), exported.create(step, B)
    worst = [0.0, 0.0]
    for k in range(total):
        if k < n:
            both = theirs, ours if whole else theirs
            pair = [np.stack([values[(k + stream) % n] for stream in range(B)]) for values in both]
        else:
            # Features like those of chunks: each is between two of them.
            before, after = theirs[rng.integers(n, size=(2, B))]
            share = rng.random((B, 1), dtype=np.float32)
            pair = [(share * before + (1 - share) * after).astype(np.float32)] * 2
        inputs = [(values[:, : config.rgb_dim], values[:, config.rgb_dim :]) for values in pair]
        expected = streaming.step_streams(model, torch_state, range(B), *inputs[0]).numpy()
        difference = float(np.abs(exported.step_streams(step, state, range(B), *inputs[1]) - expected).max())
        if not difference <= worst[k >= n]:  # also for NaN
            worst[k >= n] = difference
        if k % STEPS_PER_PROGRESS == 0 or k == total - 1:
            yield Progress("steps side by side", k + 1, total)
    return {"chunks": n, "scores": worst[0], "steps": total, "later_scores": worst[1], "cosine": cosine}


def quantise(
    paths: Sequence[str | Path],
    model_path: str | Path,
    output: str | Path,
    n_chunks: int = QUANTISE_CHUNKS,
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
    choose_runtime(runtime, "cpu")
    check_writable(output.absolute().parent)
    recipe = model.recipe.without_folds()
    if recipe.precision == INT8:
        raise RecipeError(f"{model.path} is already in int8.", "use the model file that it was made from.")
    exact = build_as(replace(recipe, precision="float32"), model.network_sources(), "cpu")
    with torch_threads(1), flow_workers(recipe.algorithm) as workers:
        images = yield from sampled_inputs(exact, videos, workers, n_chunks, "chunks")
        if min(map(len, images.values())) < 2:
            raise VideoError("The videos have a single chunk; int8 needs a few hundred.", "use more videos.")
        parts: dict[str, Any] = {}
        for stream, network in exact.networks.items():
            part, chosen = exact.recipe.parts[stream], images[stream][::2]
            fused = fuse(network, "float32", "cpu", part.fuses)
            ranges = Ranges(fused, part)
            for start in range(0, len(chosen), QUANTISE_BATCH):
                with torch.inference_mode():
                    fused(Scale(part)(torch.from_numpy(np.stack(chosen[start : start + QUANTISE_BATCH]))))
                yield Progress(f"{stream} ranges", min(start + QUANTISE_BATCH, len(chosen)), len(chosen))
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
