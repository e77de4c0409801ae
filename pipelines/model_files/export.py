"""The export job: a model file to one of graphs, which is written when both have scored the same chunks alike."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from lstr import __version__, exported, streaming
from lstr.errors import CheckpointError, NetworkRuntimeError, WeightsError
from lstr.exported import MOST_STREAMS, ExportedStep, open_step
from lstr.exported_graphs import OPSET, describe, make_graph
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.networks.archive import GRAPH
from lstr.extractors.networks.graph_file import check_graph
from lstr.extractors.networks.onnx_runtime import make_network_graph
from lstr.extractors.networks.runtime import AUTO, LEAST_COSINE, exact_precision
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.recipe import INT8
from lstr.extractors.run import RunOptions, TwoStream
from lstr.extractors.stages import torch_threads
from lstr.extractors.twostream import build_as
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.reader import open_chunks
from lstr.files.atomic import check_writable
from lstr.loaded_checkpoint import Checkpoint
from lstr.models.kind import Model
from lstr.pipelines.model_files.model_file import STEP, ModelFile, open_model
from lstr.pipelines.model_files.packing import free_path, write_changed
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.scenes import SceneConfig, render_scenes

TOLERANCE = 1e-5  # in probability: the largest difference between torch and the graphs
BEYOND = 200  # steps that both run after the memory is full
STEPS_PER_PROGRESS = 20
# What writes and what runs graphs; either is installed with the extra `onnxruntime`.
PACKAGES = ("onnx", "onnxruntime")
DRAWN = SceneConfig(n_videos=1, n_testing=1)

Features = NDArray[np.float32]


@dataclass(frozen=True)
class ExportOptions:
    """What is exported, and what it is compared on."""

    model: str | Path
    output: str | Path
    videos: Sequence[str | Path] = ()
    """Videos whose chunks both run on; none for a drawn one."""
    streams: Annotated[int, Meta(ge=1, le=MOST_STREAMS)] = 1
    """Streams that one call of the step's graph takes; a file serves any number, so many at a time."""
    chunks: int = 36
    """Chunks of the videos that are looked at."""
    flow_threads: int | None = None
    flow_backend: str = "auto"


@dataclass(frozen=True)
class Alike:
    """The largest differences between torch and the graphs."""

    chunks: int
    """Real chunks, through networks and model"""
    scores: float
    """In probability, on those"""
    steps: int
    """Steps of the model in all, to 200 past the memory's end"""
    later_scores: float
    """In probability, on those after the real chunks"""
    cosine: float
    """The smallest, of a chunk's features by torch and by graphs"""
    whole: bool
    """Whether the graphs' own features were scored; those of int8 networks differ by steps, so torch's were"""

    def fault(self) -> str:
        """What is wrong with the graphs; nothing where they may be used."""
        worst = max(self.scores, self.later_scores)
        if not worst <= TOLERANCE:  # nan too
            at = f"on {self.chunks} chunks" if self.scores == worst else f"in {self.steps} steps"
            return f"their scores differ by {worst:.2g} {at}, and {TOLERANCE:g} is the most that is let through"
        if not self.cosine >= LEAST_COSINE:
            return f"the cosine of a chunk's features is {self.cosine:.3f}, and {LEAST_COSINE:g} is the least"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """It as model.json has it."""
        return {**asdict(self), "tolerance": TOLERANCE}


@dataclass(frozen=True)
class Exported:
    """The file that was written, and how much it differs from the model, as it says itself."""

    model: ModelFile
    alike: Alike


def export(options: ExportOptions) -> Generator[Any, None, None]:
    """Write a model file as graphs, which run without torch, once they have scored as it does.

    Yields Progress and Notice, and last Finished with Exported. Raises CheckpointError for a file that is exported
    already, is no model file, or whose graphs differ from it; WeightsError where it does not hold its networks,
    ConfigError for a kind whose step is no graph, NetworkRuntimeError without ONNX Runtime, VideoError, OutputError.
    """
    model = _exportable(options.model)
    output = free_path(options.output, model.path)
    check_writable(output.absolute().parent)
    loaded = model.checkpoint()
    step = describe(loaded.model, options.streams)
    if model.recipe.precision == "bf16":
        yield Notice(
            f"The networks of {model.path} compute in bfloat16, and in the exported file in float32: scores differ by "
            "what bfloat16 rounds."
        )
    yield Progress("graphs", 0, 1 + len(model.networks))
    graphs = {STEP: make_graph(loaded.model, step)}
    recipe = model.recipe.without_folds()
    # The graphs of networks have this precision: ONNX Runtime multiplies no bfloat16 on a processor.
    precision = INT8 if recipe.precision == INT8 else "float32"
    sources = replace(model.network_sources(), calibration=model.calibration(), calibrated_on=recipe.calibrated_on)
    exact = build_as(replace(recipe, precision=precision), sources, "cpu")
    for done, stream in enumerate(exact.recipe.streams, start=1):
        yield Progress("graphs", done, 1 + len(model.networks))
        graphs[stream] = make_network_graph(exact.job(stream))
    for name, graph in graphs.items():
        try:
            check_graph(graph, f"{name}{GRAPH}")
        except WeightsError as error:
            raise NetworkRuntimeError(
                f"{model.path} cannot be exported: {error}", "run it with torch; such a network has no graph of ours."
            ) from error
    sources = WeightSources(graphs={stream: partial(graphs.__getitem__, stream) for stream in recipe.streams})
    networks: dict[str, Any] = dict.fromkeys(recipe.streams)
    ours = TwoStream(networks, exact.recipe, "cpu", sources, RunOptions(AUTO))
    alike = yield from _side_by_side(options, loaded, (exact, ours), open_step(step, graphs[STEP]))
    if fault := alike.fault():
        raise CheckpointError(
            f"The graphs of {model.path} are not what torch computes: {fault}. No file was written.",
            "run the model with torch, or with another runtime: `lstr detect --set runtime=openvino`.",
        )
    about = {
        "step": step.to_dict(),
        "runs_on": PACKAGES[1],
        "opset": OPSET,
        "precision": {"step": "float32", "networks": exact_precision(exact.job(exact.recipe.streams[0]))},
        "alike": alike.to_dict(),
        "made_from": sha256_of(model.path),
        "made_by": {"lstr": __version__, **{name: version(name) for name in ("torch", *PACKAGES)}},
    }
    entries = {stream: {**entry, "from": "inside"} for stream, entry in model.about["networks"].items()}
    files = {f"{name}{GRAPH}": graph for name, graph in graphs.items()}
    yield Finished(Exported(write_changed(model, output, {"networks": entries, "exported": about}, files), alike))


def _exportable(path: str | Path) -> ModelFile:
    """Open a model file that can be exported."""
    model = open_model(path)
    if model.exported is not None:
        raise CheckpointError(f"{path} is exported already.", "give the model file that it was exported from.")
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        hint = 'pip install "lstr-video[onnxruntime]"'
        raise NetworkRuntimeError(f"The package {missing[0]} is not installed, which an export needs.", hint)
    for stream, where in model.networks.items():
        if where == "published":
            raise WeightsError(
                f"{path} does not hold its {stream} network: its weights are published ones, which are their authors'.",
                "pack them into it first, where their licence lets you: `lstr pack RUN --weights FILE`.",
            )
    return model


def _side_by_side(
    options: ExportOptions, loaded: Checkpoint, networks: tuple[TwoStream, TwoStream], step: ExportedStep
) -> Generator[Progress, None, Alike]:
    """Compare torch and the graphs on real chunks, then the step past the end of the model's memory."""
    recipe = networks[0].recipe
    with ExitStack() as stack:
        paths: list[Path]
        if options.videos:
            paths = [*find_videos(options.videos).values()]
        else:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="lstr-export-")))
            yield Progress("drawing", 0, 1)
            paths = [*find_videos([render_scenes(folder, DRAWN).parent / "videos"]).values()]
        stack.enter_context(torch_threads(1))
        workers = stack.enter_context(flow_workers(recipe.algorithm, options.flow_threads, options.flow_backend))
        chunks: list[Chunk] = []
        for path in paths:
            chunks += islice(open_chunks(path, recipe.long_side)[2], options.chunks - len(chunks))
        features: list[Features] = []
        for name, twostream in zip(("features by torch", "features by graphs"), networks, strict=True):
            rows = []
            for row in twostream.rows(iter(chunks), workers):
                rows.append(np.concatenate([part for part in (row.rgb, row.flow) if part is not None]))
                yield Progress(name, len(rows), len(chunks))
            features.append(np.stack(rows))
        return (
            yield from compare_steps(loaded.model, step, (features[0], features[1]), whole=recipe.precision != "int8")
        )


def compare_steps(
    model: Model, step: ExportedStep, features: tuple[Features, Features], whole: bool
) -> Generator[Progress, None, Alike]:
    """Compare the scores of a model and of its step as a graph, on real features and then past the memory's end.

    features (n, D) by torch and by graphs; `whole` scores each by its own. Each of several streams has other chunks.
    """
    theirs, ours = features
    B, config, n = step.description.streams, model.config, len(theirs)

    def parts(rows: Features) -> tuple[Features | None, Features | None]:
        rgb, flow = rows[:, : config.rgb_dim], rows[:, config.rgb_dim :]
        return rgb if rgb.shape[1] else None, flow if flow.shape[1] else None

    total = n + config.work_length + config.context + (config.long_length if config.n_long else 0) + BEYOND
    ours_seen = ours if whole else theirs
    rng = np.random.default_rng(0)
    torch_state, state = streaming.create(model, B), exported.create(step, B)
    worst = [0.0, 0.0]  # on real chunks, and after those
    for k in range(total):
        if k < n:
            rows = [np.stack([seen[(k + stream) % n] for stream in range(B)]) for seen in (theirs, ours_seen)]
        else:
            # Invented features like those of chunks: each is between two of them.
            first, second = theirs[rng.integers(n, size=(2, B))]
            share = rng.random((B, 1), dtype=np.float32)
            rows = [(share * first + (1 - share) * second).astype(np.float32)] * 2
        expected = streaming.step_ahead(model, torch_state, *parts(rows[0])).numpy()
        found = exported.step_ahead(step, state, *parts(rows[1]))
        difference = float(np.abs(found - expected).max())
        worst[k >= n] = difference if not difference <= worst[k >= n] else worst[k >= n]
        if k % STEPS_PER_PROGRESS == 0 or k == total - 1:
            yield Progress("steps side by side", k + 1, total)
    lengths = np.linalg.norm(theirs, axis=1) * np.linalg.norm(ours, axis=1)
    cosine = float(((theirs * ours).sum(1) / np.maximum(lengths, 1e-12)).min())
    return Alike(n, worst[0], total, worst[1], round(cosine, 6), whole)
