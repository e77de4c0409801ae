"""The export job: a model file to one of graphs, which is written when both have scored the same chunks alike."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from msgspec import Meta

from lstr import __version__
from lstr.errors import CheckpointError, NetworkRuntimeError, WeightsError
from lstr.exported_description import MOST_STREAMS, StepDescription
from lstr.exported_graphs import OPSET, describe, make_graph
from lstr.exported_streaming import ExportedStep, open_step
from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.networks.archive import GRAPH
from lstr.extractors.networks.graph_file import check_graph
from lstr.extractors.networks.onnx_runtime import make_network_graph
from lstr.extractors.networks.runtime import AUTO, exact_precision
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.run import RunOptions, TwoStream
from lstr.extractors.stages import torch_threads
from lstr.extractors.twostream import build_as
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.reader import open_chunks
from lstr.files.atomic import check_writable
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.model_files.exported_file import STEP
from lstr.pipelines.model_files.model_file import ModelFile, open_model
from lstr.pipelines.model_files.packing import free_path, write_changed
from lstr.pipelines.model_files.side_by_side import Alike, compare_networks, compare_steps
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.scenes import SceneConfig, render_scenes

# What writes and what runs graphs; either is installed with the extra `onnxruntime`.
PACKAGES = ("onnx", "onnxruntime")
DRAWN = SceneConfig(n_videos=1, n_testing=1)


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
    exact = _by_torch(model)
    for done, stream in enumerate(exact.recipe.streams, start=1):
        yield Progress("graphs", done, 1 + len(model.networks))
        graphs[stream] = make_network_graph(exact.job(stream))
    for name, graph in graphs.items():
        _check(graph, name, model)
    recipe = model.recipe.without_folds()
    sources = WeightSources(graphs={stream: partial(graphs.__getitem__, stream) for stream in recipe.streams})
    networks: dict[str, Any] = dict.fromkeys(recipe.streams)
    ours = TwoStream(networks, exact.recipe, "cpu", sources, RunOptions(AUTO))
    alike = yield from _side_by_side(options, loaded, (exact, ours), open_step(step, graphs[STEP]))
    if fault := alike.fault():
        raise CheckpointError(
            f"The graphs of {model.path} are not what torch computes: {fault}. No file was written.",
            "run the model with torch, or with another runtime: `lstr detect --set runtime=openvino`.",
        )
    about = _about(model, step, alike, exact_precision(exact.job(exact.recipe.streams[0])))
    yield Finished(Exported(_written(model, output, graphs, about), alike))


def _exportable(path: str | Path) -> ModelFile:
    """A model file that can be exported."""
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


def _by_torch(model: ModelFile) -> TwoStream:
    """Its networks by torch, in the precision that the graphs have."""
    recipe = model.recipe.without_folds()
    precision = "int8" if recipe.precision == "int8" else "float32"
    sources = replace(model.network_sources(), calibration=model.calibration(), calibrated_on=recipe.calibrated_on)
    return build_as(replace(recipe, precision=precision), sources, "cpu")


def _check(graph: bytes, name: str, model: ModelFile) -> None:
    """Raise NetworkRuntimeError for a graph that readers would refuse."""
    try:
        check_graph(graph, f"{name}{GRAPH}")
    except WeightsError as error:
        raise NetworkRuntimeError(
            f"{model.path} cannot be exported: {error}", "run it with torch; such a network has no graph of ours."
        ) from error


def _side_by_side(
    options: ExportOptions, loaded: Checkpoint, networks: tuple[TwoStream, TwoStream], step: ExportedStep
) -> Generator[Progress, None, Alike]:
    """Torch and the graphs on real chunks, then the step past the end of the model's memory."""
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
        features = yield from compare_networks(networks, chunks, workers)
        return (yield from compare_steps(loaded.model, step, features, whole=recipe.precision != "int8"))


def _about(model: ModelFile, step: StepDescription, alike: Alike, precision: str) -> dict[str, Any]:
    """What model.json says of the graphs."""
    return {
        "step": step.to_dict(),
        "runs_on": PACKAGES[1],
        "opset": OPSET,
        "precision": {"step": "float32", "networks": precision},
        "alike": alike.to_dict(),
        "made_from": sha256_of(model.path),
        "made_by": {"lstr": __version__, **{name: version(name) for name in ("torch", *PACKAGES)}},
    }


def _written(model: ModelFile, output: Path, graphs: Mapping[str, bytes], about: Mapping[str, Any]) -> ModelFile:
    entries = {stream: {**entry, "from": "inside"} for stream, entry in model.about["networks"].items()}
    parts = {f"{name}{GRAPH}": graph for name, graph in graphs.items()}
    return write_changed(model, output, {"networks": entries, "exported": dict(about)}, parts)
