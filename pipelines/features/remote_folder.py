"""A feature folder at an fsspec URL: laid out, resumed and checked as one on disk.

An array or record is stored whole, and a video's record last. What is stored is never trusted to be whole: a video
is done when its record names this source and this recipe, and its arrays are as long as it says, with its rows.
"""

import io
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.errors import OutputError, RecipeError
from lstr.extractors.recipe import Recipe, differences
from lstr.extractors.streams import MODEL_STREAMS
from lstr.files.arrays import HEADER_BYTES, read_header, signature_of
from lstr.files.atomic import scratch, write_bytes, write_text
from lstr.files.remote import Place, RemoteFile
from lstr.pipelines.features.any_folder import Features
from lstr.pipelines.features.folder import FeatureFolder, open_features, read_recipe


@dataclass(frozen=True)
class RemoteFeatures(Features[RemoteFile]):
    """A feature folder elsewhere, and its recipe."""

    path: RemoteFile
    recipe: Recipe

    @property
    def streams(self) -> tuple[str, ...]:
        """`rgb`, `flow` or both."""
        return self.recipe.streams

    def array(self, stream: str, video_id: str) -> RemoteFile:
        return self.path.joinpath(self.recipe.parts[stream].folder(stream), f"{video_id}.npy")

    def records(self) -> list[dict[str, Any]]:
        """The records that can be read, by id."""
        found = []
        for _, content in sorted(self.path.joinpath("records").contents().items()):
            with suppress(ValueError):
                found.append(json.loads(content))
        return found

    def is_whole(self, stream: str, video_id: str, record: Mapping[str, Any]) -> bool:
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
        self.record(video_id).unlink()
        with scratch() as folder:
            made = {stream: folder / self.recipe.parts[stream].folder(stream) for stream in self.streams}
            local = FeatureFolder(folder, made, self.recipe)
            yield local
            for stream in self.streams:
                self.array(stream, video_id).put(local.array(stream, video_id))
            self.record(video_id).put(local.record(video_id))


def open_folder(path: Place) -> FeatureFolder | RemoteFeatures | None:
    """The feature folder that was begun here or elsewhere; None where none was. Raises RecipeError."""
    if isinstance(path, RemoteFile):
        content = path.joinpath("recipe.json").read()
        return None if content is None else RemoteFeatures(path, read_recipe(content, f"{path}/recipe.json"))
    return open_features(path) if (path / "recipe.json").exists() else None


def create_folder(path: Place, recipe: Recipe, calibration: Mapping[str, Any]) -> FeatureFolder | RemoteFeatures:
    """Open a feature folder for writing, here or elsewhere, making it when it is new.

    Raises RecipeError, with the difference, when it holds features of another recipe.
    """
    if isinstance(path, Path) and path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file, not a folder.", "name a folder with -o.")
    begun = open_folder(path)
    if begun is None and _has_arrays(path):
        raise RecipeError(f"{path} holds features without a recipe.", "choose another folder with -o.")
    if begun is None:
        if calibration:
            import torch

            content = io.BytesIO()
            torch.save(calibration, content)
            write_bytes(path.joinpath("calibration.pt"), [content.getvalue()])
        write_text(path.joinpath("recipe.json"), recipe.to_json() + "\n")
        begun = open_folder(path)
    assert begun and begun.recipe
    if begun.recipe != recipe:
        raise RecipeError(
            f"{path} holds features of another recipe ({'; '.join(differences(begun.recipe, recipe))}).",
            f"choose another folder with -o, or go on with this one by `--recipe {shlex.quote(str(path))}`.",
        )
    return begun


def _has_arrays(path: Place) -> bool:
    if isinstance(path, Path):
        return any(any(path.glob(f"{stream}_*/*.npy")) for stream in MODEL_STREAMS)
    return any(name.startswith(("rgb_", "flow_")) and name.endswith(".npy") for name in path.below())
