"""The output folder of an extraction, local or at an fsspec URL.

A video's record is written last. Files may be incomplete or outdated, so a video is done only if its record names this
source and this recipe, and its arrays have the recorded length and rows.
"""

import io
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lstr.errors import CheckpointError, OutputError, RecipeError, VideoError
from lstr.extractors.recipe import Recipe, differences
from lstr.extractors.streams import STREAMS
from lstr.files.arrays import HEADER_BYTES, ZIP, open_array, read_header, signature, signature_of
from lstr.files.atomic import check_exists, scratch, unwritable, write_bytes, write_text
from lstr.files.content import read_jsonl, read_object, write_jsonl
from lstr.files.remote import Place, content_of
from lstr.pipelines.features.feature_files import ids_below

LOOKS = 32  # videos checked in parallel, because each check of a remote folder waits for several requests
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class OutputFolder:
    """A feature folder for writing, and its recipe."""

    path: Place
    recipe: Recipe

    def array(self, stream: str, video_id: str) -> Any:
        return self.path.joinpath(self.recipe.parts[stream].folder(stream), f"{video_id}.npy")

    def record(self, video_id: str) -> Any:
        return self.path.joinpath("records", f"{video_id}.json")

    def find_record(self, video_id: str, source: Place) -> dict[str, Any] | None:
        """Return the record of a video if its arrays are complete and the source has not changed (by size and time).

        At a URL this takes eleven small requests. Raises MissingPathError if the URL cannot be reached.
        """
        record = read_object(self.record(video_id))
        # In doubt the video is extracted again, which is safe; a wrong "done" would not be.
        try:
            stat = source.stat()
            if not record or (record["bytes"], record["mtime"]) != (stat.st_size, stat.st_mtime):
                return None
            for stream in self.recipe.streams:
                array = self.array(stream, video_id)
                if isinstance(array, Path):
                    mapped = open_array(array)
                    found = len(mapped), signature(mapped)
                else:
                    shape, _, dtype = read_header(io.BytesIO(*array.ranges((0, HEADER_BYTES))))
                    row = shape[1] * dtype.itemsize  # bytes
                    first, middle, last = (HEADER_BYTES + row * k for k in (0, shape[0] // 2, shape[0] - 1))
                    # read one byte after the last row, to detect a longer file
                    rows = array.ranges((first, first + row), (middle, middle + row), (last, last + row + 1))
                    found = shape[0], signature_of(dtype, shape, len(rows[2]) - row, b"".join(rows))
                if found != (record["chunks"], record["arrays"][stream]["signature"]):
                    return None
            return record if record["recipe"] == self.recipe.id else None
        except (OSError, TypeError, ValueError, AttributeError, LookupError, RecipeError, VideoError):
            return None

    @contextmanager
    def staged(self, video_id: str) -> Iterator["OutputFolder"]:
        """Yield a local folder for one video's arrays and record: this folder, or a temporary one that is uploaded.

        The old record is removed first, so that a killed run does not leave it with a mix of old and new arrays. Raises
        OutputError, also if the folder was deleted.
        """
        if isinstance(self.path, Path):
            check_exists(self.path / "recipe.json")
            try:
                self.record(video_id).unlink(missing_ok=True)
            except OSError as error:
                raise unwritable(self.path, error) from error
            yield self
            check_exists(self.path / "recipe.json")
            return
        self.record(video_id).unlink()
        with scratch() as folder:
            local = OutputFolder(folder, self.recipe)
            yield local
            for stream in self.recipe.streams:
                self.array(stream, video_id).put(local.array(stream, video_id))
            self.record(video_id).put(local.record(video_id))

    def compile(self) -> None:
        """Write `videos.jsonl` from all readable records, only if it changes: a finished folder may be read-only."""
        videos = []
        if isinstance(self.path, Path):
            for video_id in sorted(ids_below(self.path / "records", ".json")):
                is_whole = all(self.array(stream, video_id).exists() for stream in self.recipe.streams)
                if is_whole and (record := read_object(self.record(video_id))):
                    videos.append(record)
        else:  # checking the arrays would take requests for each video
            for _, content in sorted(self.path.joinpath("records").contents().items()):
                with suppress(ValueError):
                    videos.append(json.loads(content))
        if videos != read_jsonl(self.path.joinpath("videos.jsonl")):
            write_jsonl(self.path.joinpath("videos.jsonl"), videos)


def map_in_threads(look: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the result of `look`, in order; runs in many threads, because the calls mostly wait."""
    items = list(items)
    pool = ThreadPoolExecutor(LOOKS, "looks")
    try:
        yield from zip(items, pool.map(look, items), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


def open_output(path: Place) -> OutputFolder | None:
    """Open the feature folder of an extraction; None if it is missing. Raises RecipeError."""
    place = path.joinpath("recipe.json")
    content = content_of(place)
    if content is None:
        return None
    try:
        return OutputFolder(path, Recipe.from_dict(json.loads(content), place))
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{place} is not JSON.", "extract into a new folder.") from error


def create_output(path: Place, recipe: Recipe, calibration: Mapping[str, Any]) -> OutputFolder:
    """Open a local or remote feature folder for writing, and create it if it does not exist.

    Raises OutputError, and RecipeError, with the difference, if it contains features of another recipe.
    """
    if isinstance(path, Path) and path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file, not a folder.", "name a folder with -o.")
    begun = open_output(path)
    if begun and begun.recipe != recipe:
        raise RecipeError(
            f"{path} contains features of another recipe ({'; '.join(differences(begun.recipe, recipe))}).",
            f"choose another folder with -o, or continue this one with `--recipe {shlex.quote(str(path))}`.",
        )
    if begun:
        return begun
    names = (p.relative_to(path).as_posix() for p in path.glob("*/*")) if isinstance(path, Path) else path.below()
    if any(name.startswith(tuple(f"{stream}_" for stream in STREAMS)) and name.endswith(".npy") for name in names):
        raise RecipeError(f"{path} contains features without a recipe.", "choose another folder with -o.")
    if calibration:
        import torch

        content = io.BytesIO()
        torch.save(calibration, content)
        write_bytes(path.joinpath("calibration.pt"), [content.getvalue()])
    write_text(path.joinpath("recipe.json"), recipe.to_json() + "\n")
    return OutputFolder(path, recipe)


def streams_trained_on(record: Mapping[str, Any] | None) -> Sequence[str] | None:
    """Return the streams with networks that were trained on the video of a record; None if unknown."""
    streams = (record or {}).get("seen")
    return streams if isinstance(streams, list) else None


def read_calibration(folder: Place) -> dict[str, Any]:
    """Return the batch-norm statistics of a folder's random networks, by stream; empty without random networks.

    Raises RecipeError for other content. Code in the file is not executed.
    """
    path = folder.joinpath("calibration.pt")
    content = content_of(path)
    if content is None:
        return {}
    import torch

    from lstr.checkpoint import check_plain
    from lstr.loaded_checkpoint import check_deflated, has_type

    found: Any = None
    try:
        if content.startswith(ZIP):
            check_deflated(path, io.BytesIO(content))
        with suppress(Exception):  # unpickling arbitrary bytes can raise any type
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        is_tables = has_type(found, dict[str, dict[str, torch.Tensor]])
        for stream, tensors in found.items() if is_tables else ():
            check_plain(path, {f"{stream}/{name}": tensor for name, tensor in tensors.items()})
    except CheckpointError as error:
        raise RecipeError(str(error), "extract into a new folder.") from error
    if not is_tables:
        raise RecipeError(f"{path} is damaged, or contains no tables of tensors.", "extract into a new folder.")
    return found
