"""The job of `lstr export`: convert a model file to graphs, after checking that both give the same scores."""

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
from numpy.typing import NDArray

from lstr import __version__, exported, streaming
from lstr.errors import CheckpointError, ConfigError, NetworkRuntimeError, WeightsError, install_hint
from lstr.exported import MAX_STREAMS, ExportedStep, open_step
from lstr.exported_graphs import OPSET, describe, make_graph
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.networks.archive import GRAPH
from lstr.extractors.networks.graph_file import check_graph
from lstr.extractors.networks.runtime import AUTO
from lstr.extractors.networks.torch_runtime import make_network_graph
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.run import RunOptions, TwoStream
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
from lstr.pipelines.scenes import SceneConfig, render_scenes

# Maximum difference in probability between torch and the graphs, the same as between streaming and batch computation
TOLERANCE = 1e-5
# Compared steps after the memory is full, so that the oldest chunks have been replaced in every slot
STEPS_AFTER_MEMORY = 200
STEPS_PER_PROGRESS = 20
# The packages that write and run graphs; the extra `onnxruntime` installs both.
PACKAGES = ("onnx", "onnxruntime")
DRAWN = SceneConfig(n_videos=1, n_testing=1)

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
    if not model.networks:
        raise CheckpointError(
            f"{model.path} was trained on features of another program, so it has no networks to export.",
            "use it with torch, or train a model on features that `lstr extract` made.",
        )
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
    exact = build_as(replace(recipe, precision="float32"), model.network_sources(), "cpu")
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
    alike = yield from _compare(videos, n_chunks, exact, converted, loaded.model, open_step(step, graphs[STEP]))
    difference = max(alike["scores"], alike["later_scores"])
    if not difference <= TOLERANCE:  # also for NaN
        raise CheckpointError(
            f"The scores of the graphs of {model.path} and of torch differ by {difference:.2g}, above {TOLERANCE:g}. "
            "No file was written.",
            "run the model with torch, or with another runtime: `lstr detect --set runtime=openvino`.",
        )
    about = {
        "step": msgspec.to_builtins(step),
        "runs_on": PACKAGES[1],
        "opset": OPSET,
        "precision": {"step": "float32", "networks": "float32"},
        "alike": {**alike, "tolerance": TOLERANCE},
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
) -> Generator[Progress, None, dict[str, Any]]:
    """Return how far the first chunks of the videos and steps after them differ between torch and graphs.

    `model` scores the features by torch, `step` those by graphs. The entries `scores` and `later_scores` are the
    largest differences in probability. Each of several streams has other chunks.
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
    B, config, n = step.description.streams, model.config, len(theirs)
    total = n + config.work_length + config.context + (config.long_length if config.n_long else 0) + STEPS_AFTER_MEMORY
    rng = np.random.default_rng(0)
    torch_state, state = streaming.create(model, B), exported.create(step, B)
    worst = [0.0, 0.0]
    for k in range(total):
        if k < n:
            pair = [np.stack([values[(k + stream) % n] for stream in range(B)]) for values in (theirs, ours)]
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
    return {"chunks": n, "scores": worst[0], "steps": total, "later_scores": worst[1]}
