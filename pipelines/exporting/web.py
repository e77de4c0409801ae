"""The web export job: a model file to a folder that runs the model in a browser."""

import os
import shutil
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lstr.errors import CheckpointError
from lstr.exported.description import StepDescription
from lstr.extractors.errors import OutputError, RecipeError
from lstr.pipelines.exporting.web_page import web_files
from lstr.pipelines.exporting.web_runtime import web_runtime
from lstr.pipelines.files.atomic import check_writable, unwritable
from lstr.pipelines.model_files.model_file import ModelFile, open_model
from lstr.pipelines.progress import Finished, Progress

if TYPE_CHECKING:
    from lstr.pipelines.exporting.side_by_side import Alike

MARK = "browser-worker.js"
"""A script that only such a folder has: it may be written again"""
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class WebOptions:
    """What is made a page of, and what it is compared on."""

    model: str | Path
    output: str | Path
    """The folder"""
    videos: tuple[str | Path, ...] = ()
    runtime: str | Path | None = None
    """The package of ONNX Runtime Web; None fetches it where it is not kept."""
    flow_threads: int | None = None
    flow_backend: str = "auto"


@dataclass(frozen=True)
class WebFolder:
    """The folder that was written, how large its parts are, and how far the graphs are from torch."""

    path: Path
    sizes: Mapping[str, int]
    """Bytes by the folder within it, and `page` for the files beside these"""
    alike: "Alike | None"
    """None where the model was exported before, and compared then"""


def export_web(options: WebOptions) -> Generator[Any, None, None]:
    """Write the folder of a model file, or of one that was exported, which needs no torch.

    Yields Progress, and last Finished with WebFolder. Raises RecipeError for a recipe with optical flow,
    NetworkRuntimeError where ONNX Runtime Web cannot be had, OutputError where the folder is another's, and what
    `export` does.
    """
    model, output = open_model(options.model), Path(options.output)
    if "flow" in model.recipe.streams:
        raise RecipeError(
            f"{options.model} sees optical flow, which no browser computes fast enough.",
            "learn a model of a recipe without it: `lstr learn VIDEOS LABELS --recipe pretrained -o MODEL.lstr`.",
        )
    _check_free(output)
    runtime = yield from _fetched(options.runtime)
    alike = None
    with TemporaryDirectory(prefix="lstr-web-") as folder:
        if model.exported is None:
            alike, model = yield from _exported(options, Path(folder) / "run.lstr")
        step = StepDescription.from_dict((model.exported or {})["step"])
        if step.streams != 1:
            raise CheckpointError(
                f"{options.model} was exported for {step.streams} streams at once, and a page has one.",
                "give the model file that it was exported from.",
            )
        files = [*web_files(model, step), *((f"onnxruntime/{name}", content) for name, content in runtime.items())]
    _write(output, files)
    sizes: dict[str, int] = {}
    for name, content in files:
        part = name.partition("/")[0] if "/" in name else "page"
        sizes[part] = sizes.get(part, 0) + len(content)
    yield Finished(WebFolder(output, sizes, alike))


def _exported(options: WebOptions, path: Path) -> Generator[Any, None, "tuple[Alike, ModelFile]"]:
    """The model as graphs, in a file of their own, and how far they are from torch."""
    from lstr.pipelines.exporting.job import Exported, ExportOptions, export

    about = ExportOptions(options.model, path, options.videos)
    about = replace(about, flow_threads=options.flow_threads, flow_backend=options.flow_backend)
    result: Exported | None = None
    for event in export(about):
        if isinstance(event, Finished):
            result = event.result
        else:
            yield event
    assert result, "an export ends with what it wrote"
    return result.alike, result.model


def _fetched(given: str | Path | None) -> Generator[Progress, None, Mapping[str, bytes]]:
    """ONNX Runtime Web, while what has come of it is told."""
    told: SimpleQueue[Progress | None] = SimpleQueue()
    found: list[Mapping[str, bytes] | BaseException] = []

    def fetch() -> None:
        try:
            found.append(web_runtime(given, lambda what, done, total: told.put(Progress(what, done, total))))
        except BaseException as error:  # for the one who waits
            found.append(error)
        told.put(None)

    Thread(target=fetch, name="onnxruntime-web", daemon=True).start()
    while (event := told.get()) is not None:
        yield Progress(f"{event.what}, MB", event.done // MEGABYTE, max(event.total, event.done) // MEGABYTE)
    (result,) = found
    if isinstance(result, BaseException):
        raise result
    return result


def _check_free(output: Path) -> None:
    """Raise OutputError where the folder holds something else than such a page."""
    check_writable(output.absolute().parent)
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output} is a file, and a page is a folder.", "name a folder with -o FOLDER.")
    if output.is_dir() and any(output.iterdir()) and not (output / "scripts" / MARK).is_file():
        raise OutputError(f"{output} holds something else than a page.", "name a new folder with -o FOLDER.")


def _write(output: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write the folder beside its place, then let it take that, also that of an earlier one."""
    parent = output.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        made = parent / f".{output.name}.tmp-{uuid4().hex}"  # with the permissions of any new folder
        before = made.with_name(f"{made.name}-before")
        made.mkdir()
        try:
            for name, content in files:
                (made / name).parent.mkdir(exist_ok=True)
                (made / name).write_bytes(content)
            if output.exists():
                os.replace(output, before)
            os.replace(made, output)
            shutil.rmtree(before, ignore_errors=True)
        finally:
            shutil.rmtree(made, ignore_errors=True)
            if before.exists() and not output.exists():
                os.replace(before, output)
    except OSError as error:
        raise unwritable(parent, error) from error
