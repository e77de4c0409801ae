"""The feature folder that the whole field reads: a directory per stream, an array per video, and what made them.

Layout: `recipe.json`, `calibration.pt` (random weights only), `rgb_*/ID.npy`, `flow_*/ID.npy`, `records/ID.json`
(written last: the truth of what is done), `videos.jsonl`, `failed.jsonl`. A folder without recipe.json is one from
elsewhere and is accepted as it is.
"""

import io
import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from lstr.checkpoints.entries import is_tables
from lstr.errors import CheckpointError
from lstr.extractors.errors import MissingPathError, RecipeError, VideoError
from lstr.extractors.recipe import Recipe
from lstr.extractors.streams import MODEL_STREAMS, PICTURES
from lstr.extractors.weights.model_card import is_weights_folder
from lstr.files.arrays import ZIP, open_array
from lstr.pipelines.features.columns import joined
from lstr.pipelines.files.atomic import check_kept, sweep, unwritable
from lstr.pipelines.files.json_files import read_jsonl, write_jsonl
from lstr.pipelines.files.npy_rows import signature
from lstr.pipelines.files.remote import Place, RemoteFile, content_of

Where = TypeVar("Where", Path, RemoteFile)


def seen_streams(record: Mapping[str, Any] | None) -> Sequence[str] | None:
    """The streams whose network has seen a record's video; None where it does not say."""
    seen = (record or {}).get("seen")
    return seen if isinstance(seen, list) else None


class Features(Generic[Where]):
    """What a feature folder on this machine (`FeatureFolder`) and one elsewhere (`RemoteFeatures`) do alike."""

    path: Where
    recipe: Recipe | None

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that it has, in the order of STREAMS."""
        raise NotImplementedError

    def array(self, stream: str, video_id: str) -> Where:
        """One stream's array of a video."""
        raise NotImplementedError

    def record(self, video_id: str) -> Where:
        """A video's record."""
        return self.path.joinpath("records", f"{video_id}.json")

    def staged(self, video_id: str) -> AbstractContextManager["FeatureFolder"]:
        """A folder on this machine to put a video's arrays and record into. Raises OutputError."""
        raise NotImplementedError

    def sweep(self) -> None:
        """Remove the temporary files of killed runs, where those leave any."""

    def records(self) -> list[dict[str, Any]]:
        """The records of all videos, by id."""
        raise NotImplementedError

    def is_whole(self, stream: str, video_id: str, record: Mapping[str, Any]) -> bool:
        """Whether an array is as long as its video's record says, with its rows. Raises what reading it does."""
        raise NotImplementedError

    def compile(self) -> None:
        """Write `videos.jsonl` from the records, where it would change: a finished folder may be read-only."""
        videos = self.records()
        if videos != read_jsonl(self.path.joinpath("videos.jsonl")):
            write_jsonl(self.path.joinpath("videos.jsonl"), videos)

    def calibration(self) -> dict[str, Any]:
        """Batch-norm statistics of the random networks that made the folder, by stream; empty otherwise.

        Raises RecipeError for a file of anything else; nothing in it is run.
        """
        path = self.path.joinpath("calibration.pt")
        content = content_of(path)
        if content is None:
            return {}
        import torch

        from lstr.checkpoints.claims import check_deflated, check_plain

        found: Any = None
        try:
            if content.startswith(ZIP):
                check_deflated(path, io.BytesIO(content))
            with suppress(Exception):  # a file that is no pickle fails in as many ways as it has bytes
                found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
            for stream, tensors in found.items() if is_tables(found) else ():
                check_plain(path, {f"{stream}/{name}": tensor for name, tensor in tensors.items()})
        except CheckpointError as error:
            raise RecipeError(str(error), "extract into a new folder.") from error
        if not is_tables(found):
            raise RecipeError(f"{path} is damaged, or holds no tables of tensors.", "extract into a new folder.")
        return found

    def read_record(self, video_id: str) -> dict[str, Any] | None:
        """A video's record; None where it has none, or none that can be read."""
        try:
            record = json.loads(content_of(self.record(video_id)) or b"")
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def is_done(self, video_id: str, source: Place) -> bool:
        """Whether this source (by size and time) is finished under this recipe, with its arrays whole.

        Elsewhere eleven small requests, and MissingPathError where the folder cannot be reached.
        """
        record = self.read_record(video_id)
        if record is None or self.recipe is None:
            return False
        try:
            stat = source.stat()
            same = (record["bytes"], record["mtime"], record["recipe"]) == (stat.st_size, stat.st_mtime, self.recipe.id)
            return same and all(self.is_whole(stream, video_id, record) for stream in self.streams)
        except (OSError, TypeError, ValueError, AttributeError, LookupError, RecipeError, VideoError):
            return False


@dataclass(frozen=True)
class FeatureFolder(Features[Path]):
    """A feature folder: where the arrays of each stream are, and its recipe (None from elsewhere)."""

    path: Path
    folders: Mapping[str, Path]
    recipe: Recipe | None

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that it has, in the order of STREAMS."""
        return tuple(self.folders)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams' folders."""
        return tuple(self.folders[stream].name for stream in self.streams)

    def only(self, streams: Collection[str]) -> "FeatureFolder":
        """The same without other streams than these."""
        folders = {stream: path for stream, path in self.folders.items() if stream in streams}
        return replace(self, folders=folders, recipe=self.recipe and self.recipe.narrowed([*folders]))

    def array(self, stream: str, video_id: str) -> Path:
        return self.folders[stream] / f"{video_id}.npy"

    def ids(self) -> list[str]:
        """Videos that have the arrays of all streams (and a record, where the folder is ours), sorted."""
        first, *others = self.streams
        folder = self.folders[first]
        found = (p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.npy"))
        return sorted(
            i
            for i in found
            if all(self.array(stream, i).exists() for stream in others)
            and (self.recipe is None or self.record(i).exists())
        )

    def lengths(self) -> dict[str, int]:
        """Chunks of each video. Raises as `load`."""
        return {video_id: len(self.load(video_id)[0]) for video_id in self.ids()}

    def load(self, video_id: str) -> tuple[Any, Any]:
        """What a model takes as RGB (L, D) and as flow (L, D), memory-mapped; (L, 0) of what the folder lacks.

        Streams other than flow are RGB, joined in the order of STREAMS. Raises as `arrays`.
        """
        arrays = self.arrays(video_id)
        pictures = [array for stream, array in arrays.items() if stream in PICTURES]
        motion = [array for stream, array in arrays.items() if stream not in PICTURES]
        length = len(next(iter(arrays.values())))
        return joined(pictures, length), joined(motion, length)

    def arrays(self, video_id: str) -> dict[str, np.ndarray]:
        """The features (L, D) of each stream, memory-mapped.

        Raises RecipeError when absent, damaged, of unequal length, or of another than its record says.
        """
        arrays: dict[str, np.ndarray] = {stream: self._open(stream, video_id) for stream in self.streams}
        length = len(arrays[self.streams[0]]) if arrays[self.streams[0]].ndim else 0
        if any(array.ndim != 2 or len(array) != length for array in arrays.values()):
            shapes = " and ".join(f"{array.shape} {stream}" for stream, array in arrays.items())
            raise RecipeError(
                f"{video_id!r} has {shapes} features; all must be (L, D) of one length.",
                "run `lstr extract` again for this video.",
            )
        record = self.read_record(video_id) if self.recipe else None
        if record and record.get("chunks", length) != length:
            raise RecipeError(
                f"{video_id!r} has {length} chunks in {self.path}, and its record says {record['chunks']}.",
                "run `lstr extract` again for this video.",
            )
        return arrays

    def _open(self, stream: str, video_id: str) -> np.memmap:
        """Raises RecipeError where it is absent or damaged."""
        path = self.array(stream, video_id)
        try:
            return open_array(path)
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise RecipeError(f"{path} cannot be used: {what}.", "run `lstr extract` again.") from error

    @contextmanager
    def staged(self, video_id: str) -> Iterator["FeatureFolder"]:
        """This folder, ready for a video's arrays: an old record is of another source or not whole, and is removed.

        Raises OutputError, also where somebody has deleted the folder: with it went what was done before.
        """
        made_by = self.path / "recipe.json" if self.recipe else self.path
        check_kept(made_by)
        try:
            self.record(video_id).unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error
        yield self
        check_kept(made_by)

    def sweep(self) -> None:
        """Remove the temporary files of killed runs."""
        sweep(self.path)

    def records(self) -> list[dict[str, Any]]:
        """The records of all whole videos, by id."""
        return [record for video_id in self.ids() if (record := self.read_record(video_id))]

    def is_whole(self, stream: str, video_id: str, record: Mapping[str, Any]) -> bool:
        array = self._open(stream, video_id)
        return len(array) == record["chunks"] and signature(array) == record["arrays"][stream]["signature"]


def open_features(path: str | Path, rgb: str | None = None, flow: str | None = None) -> FeatureFolder:
    """Open a feature folder for reading; `rgb` and `flow` name the folders of the streams where there are several.

    A folder from elsewhere may have one stream only. Raises MissingPathError when it does not exist, RecipeError when
    it holds no stream, or several of one, or networks.
    """
    path = Path(path)
    if path.is_file():
        raise MissingPathError(f"{path} is a file, not a feature folder.", "give the folder that `lstr extract` wrote.")
    if not path.is_dir():
        raise MissingPathError(
            f"{path} is not a feature folder.", f"make one: `lstr extract VIDEOS -o {shlex.quote(str(path))}`."
        )
    if is_weights_folder(path):
        raise RecipeError(
            f"{path} holds networks, not features.",
            f"make features with them: `lstr extract VIDEOS -o FEATURES --recipe {shlex.quote(str(path))}`.",
        )
    named = {"rgb": rgb, "flow": flow}
    if (path / "recipe.json").exists():
        recipe = read_recipe((path / "recipe.json").read_bytes(), path / "recipe.json")
        made = {stream: recipe.parts[stream].folder(stream) for stream in recipe.streams}
        if any(name and name != made.get(stream) for stream, name in named.items()):
            raise RecipeError(f"{path} was made as {' and '.join(made.values())}.", "leave out [[rgb]] and [[flow]].")
        return FeatureFolder(path, {stream: path / name for stream, name in made.items()}, recipe)
    streams = {}
    for stream in MODEL_STREAMS:
        pattern = named[stream] or f"{stream}_*"
        found = sorted(p for p in path.glob(pattern) if p.is_dir())
        if len(found) > 1:
            names = ", ".join(p.name for p in found)
            raise RecipeError(
                f"{path} has several {stream} features: {names}.", f"choose: [[{stream}={found[0].name}]]"
            )
        if found:
            streams[stream] = found[0]
        elif named[stream]:
            raise RecipeError(
                f"{path} has no recipe.json and no folder named {pattern}.", f"leave out [[{stream}]], or name another."
            )
    if not streams:
        raise RecipeError(
            f"{path} has no recipe.json and no folder named rgb_* or flow_*.",
            "give the folder that `lstr extract VIDEOS -o FEATURES --recipe MODEL` wrote with a model's networks, or "
            "one with rgb_* and flow_* folders.",
        )
    return FeatureFolder(path, streams, None)


def read_recipe(content: str | bytes, name: object) -> Recipe:
    """The recipe that a feature folder's recipe.json holds; `name` is its path or URL. Raises RecipeError."""
    try:
        return Recipe.from_dict(json.loads(content), name)
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{name} is not JSON.", "extract into a new folder.") from error


def is_feature_folder(path: Path) -> bool:
    """Whether a folder holds features rather than videos."""
    return (
        path.is_dir()
        and not is_weights_folder(path)
        and ((path / "recipe.json").exists() or any(any(path.glob(f"{s}_*/")) for s in MODEL_STREAMS))
    )
