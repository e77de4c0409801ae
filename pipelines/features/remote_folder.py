"""A feature folder at an fsspec URL: laid out, resumed and checked as one on disk.

An array or record is stored whole, and a video's record last. What is stored is never trusted to be whole: a video
is done when its record names this source and this recipe, and its arrays are as long as it says, with its rows.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lstr.extractors.errors import VideoError
from lstr.extractors.recipe import Recipe
from lstr.files.arrays import read_header
from lstr.pipelines.failures import FAILED, Failure, entries, log_name, naming
from lstr.pipelines.features.folder import (
    FeatureFolder,
    check_same,
    create_features,
    open_features,
    read_calibration,
    read_recipe,
    without_recipe,
)
from lstr.pipelines.files.json_files import parsed_lines, to_json
from lstr.pipelines.files.npy_rows import HEADER_BYTES, signature_of
from lstr.pipelines.files.remote import Place, RemoteFile
from lstr.pipelines.files.scratch import scratch


@dataclass(frozen=True)
class RemoteFeatures:
    """A feature folder elsewhere, and its recipe."""

    path: RemoteFile
    recipe: Recipe

    @property
    def streams(self) -> tuple[str, ...]:
        """`rgb`, `flow` or both."""
        return self.recipe.streams

    def array(self, stream: str, video_id: str) -> RemoteFile:
        """One stream's array of a video."""
        return self.path.joined(self.recipe.parts[stream].folder(stream), f"{video_id}.npy")

    def record(self, video_id: str) -> RemoteFile:
        """A video's record."""
        return self.path.joined("records", f"{video_id}.json")

    def ids(self) -> list[str]:
        """Videos that have a record, sorted."""
        found = self.path.joined("records").below()
        return sorted(name.removesuffix(".json") for name in found if name.endswith(".json"))

    def sweep(self) -> None:
        """Do nothing: here no interrupted write leaves anything behind."""

    def failures(self) -> list[dict[str, Any]]:
        """What `failed.jsonl` says."""
        content = self.path.joined(FAILED).read() or b""
        return entries(parsed_lines(content.decode(errors="replace")))

    def note_failure(self, failure: Mapping[str, Any]) -> None:
        """Nothing can be appended to an object; `compile` writes it."""

    def log_failure(self, video_id: str, failure: Failure) -> Failure:
        """Write the log of a failure, and name it in the failure."""
        if not failure.traceback:
            return failure
        log = self.path.joined(log_name(video_id))
        log.write(failure.traceback.encode(errors="replace"))
        return naming(failure, log)

    def remove_log(self, video_id: str) -> None:
        """Remove the log of a video that has not failed again."""
        self.path.joined(log_name(video_id)).remove()

    def compile(self, failures: Sequence[Mapping[str, Any]]) -> None:
        """Write `videos.jsonl` from the records, and `failed.jsonl`."""
        contents = self.path.joined("records").contents()
        videos = b"".join(_line(contents[name]) for name in sorted(contents))
        failed = "".join(to_json(failure) + "\n" for failure in failures).encode()
        for name, lines in (("videos.jsonl", videos), (FAILED, failed)):
            if lines != (self.path.joined(name).read() or b""):
                self.path.joined(name).write(lines)

    def calibration(self) -> dict[str, Any]:
        """Batch-norm statistics of the random networks that made the folder, by stream; empty otherwise."""
        content = self.path.joined("calibration.pt").read()
        return read_calibration(io.BytesIO(content), f"{self.path}/calibration.pt") if content else {}

    def read_record(self, video_id: str) -> dict[str, Any] | None:
        """A video's record; None where it has none, or none that can be read."""
        try:
            record = json.loads(self.record(video_id).read() or b"")
        except ValueError:
            return None
        return record if isinstance(record, dict) else None

    def is_done(self, video_id: str, source: Place) -> bool:
        """Whether this source (by size and time) is finished under this recipe, with both arrays whole.

        Eleven small requests. Raises MissingPathError where the folder cannot be reached.
        """
        record = self.read_record(video_id)
        if record is None:
            return False
        try:
            stat = source.stat()
            same = (record["bytes"], record["mtime"], record["recipe"]) == (stat.st_size, stat.st_mtime, self.recipe.id)
            return same and all(self._is_whole(stream, video_id, record) for stream in self.streams)
        except (OSError, TypeError, LookupError, AttributeError, ValueError, VideoError):
            return False

    def _is_whole(self, stream: str, video_id: str, record: Mapping[str, Any]) -> bool:
        array = self.array(stream, video_id)
        header = io.BytesIO(*array.ranges((0, HEADER_BYTES)))
        shape, _, dtype = read_header(header)
        row = shape[1] * dtype.itemsize  # bytes
        first, middle, last = (HEADER_BYTES + row * k for k in (0, shape[0] // 2, shape[0] - 1))
        # of the last, a byte more than it should have
        rows = array.ranges((first, first + row), (middle, middle + row), (last, last + row + 1))
        found = signature_of(dtype, shape, len(rows[2]) - row, b"".join(rows))
        return shape[0] == record["chunks"] and found == record["arrays"][stream]["signature"]

    @contextmanager
    def staged(self, video_id: str) -> Iterator[FeatureFolder]:
        """A folder on disk to extract one video into; what it holds at the end is copied here, the record last.

        Before anything else the old record is removed, so that no run takes a mixture for done. Raises OutputError.
        """
        self.record(video_id).remove()
        with scratch() as folder:
            made = {stream: folder / self.recipe.parts[stream].folder(stream) for stream in self.streams}
            local = FeatureFolder(folder, made.get("rgb"), made.get("flow"), self.recipe)
            yield local
            for stream in self.streams:
                self.array(stream, video_id).put(local.array(stream, video_id))
            self.record(video_id).put(local.record(video_id))


def open_remote(path: RemoteFile) -> RemoteFeatures | None:
    """The feature folder that was begun at a URL; None where none was. Raises RecipeError, MissingPathError."""
    content = path.joined("recipe.json").read()
    return None if content is None else RemoteFeatures(path, read_recipe(content, f"{path}/recipe.json"))


def create_remote(path: RemoteFile, recipe: Recipe, calibration: Mapping[str, Any]) -> RemoteFeatures:
    """Open a feature folder at a URL for writing, making it when it is new.

    Step by step as `create_features`, and raising as it does; what the two share is what does not read or write: here
    contents are sent whole, on disk they are written beside their names.
    """
    existing = open_remote(path)
    if existing:
        check_same(existing.path, existing.recipe, recipe)
        return existing
    if any(name.startswith(("rgb_", "flow_")) and name.endswith(".npy") for name in path.below()):
        raise without_recipe(path)
    if calibration:
        import torch

        content = io.BytesIO()
        torch.save(calibration, content)
        path.joined("calibration.pt").write(content.getvalue())
    path.joined("recipe.json").write(f"{recipe.to_json()}\n".encode())
    return RemoteFeatures(path, recipe)


Features = FeatureFolder | RemoteFeatures


def open_folder(path: Place) -> Features | None:
    """The feature folder that was begun here or elsewhere; None where none was. Raises RecipeError."""
    if isinstance(path, RemoteFile):
        return open_remote(path)
    return open_features(path) if (path / "recipe.json").exists() else None


def create_folder(path: Place, recipe: Recipe, calibration: Mapping[str, Any]) -> Features:
    """Open a feature folder for writing, here or elsewhere, making it when it is new."""
    if isinstance(path, RemoteFile):
        return create_remote(path, recipe, calibration)
    return create_features(path, recipe, calibration)


def _line(content: bytes) -> bytes:
    """A record as one line; nothing where it cannot be read."""
    try:
        return to_json(json.loads(content)).encode() + b"\n"
    except ValueError:
        return b""
