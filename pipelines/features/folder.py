"""The feature folder that the whole field reads: a directory per stream, an array per video, and what made them.

Layout: `recipe.json`, `calibration.pt` (random weights only), `rgb_*/ID.npy`, `flow_*/ID.npy`, `records/ID.json`
(written last: the truth of what is done), `videos.jsonl`, `failed.jsonl`. A folder without recipe.json is one from
elsewhere and is accepted as it is.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lstr.checkpoints.entries import is_tables
from lstr.extractors.errors import MissingPathError, OutputError, RecipeError, VideoError
from lstr.extractors.recipe import STREAMS, Recipe, differences
from lstr.extractors.weights.model_card import is_weights_folder
from lstr.files.arrays import open_array
from lstr.pipelines.failures import FAILED, Failure, entries, log_name, logged
from lstr.pipelines.files.atomic import replacing, sweep, unwritable, write_text
from lstr.pipelines.files.json_files import append_jsonl, read_jsonl, write_jsonl
from lstr.pipelines.files.npy_rows import signature
from lstr.pipelines.files.remote import Place


def seen_streams(record: Mapping[str, Any] | None) -> Sequence[str] | None:
    """The streams whose network has seen a record's video; None where it does not say."""
    seen = (record or {}).get("seen")
    return seen if isinstance(seen, list) else None


@dataclass(frozen=True)
class FeatureFolder:
    """A feature folder: where its streams are (None for one it lacks), and its recipe (None from elsewhere)."""

    path: Path
    rgb: Path | None
    flow: Path | None
    recipe: Recipe | None

    @property
    def folders(self) -> dict[str, Path]:
        """Where the arrays of each present stream are."""
        return {stream: path for stream, path in zip(STREAMS, (self.rgb, self.flow), strict=True) if path}

    @property
    def streams(self) -> tuple[str, ...]:
        """`rgb`, `flow` or both."""
        return tuple(self.folders)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams' folders."""
        return tuple(self.folders[stream].name for stream in self.streams)

    def array(self, stream: str, video_id: str) -> Path:
        """Path of one stream's array of a video."""
        return self.folders[stream] / f"{video_id}.npy"

    def record(self, video_id: str) -> Path:
        """Path of a video's record."""
        return self.path / "records" / f"{video_id}.json"

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

    def load(self, video_id: str) -> tuple[np.ndarray, np.ndarray]:
        """RGB (L, D) and flow (L, D), memory-mapped; a stream that the folder lacks is (L, 0).

        Raises RecipeError when absent, damaged or of unequal length.
        """
        arrays = self._arrays(video_id)
        length = len(arrays[self.streams[0]]) if arrays[self.streams[0]].ndim else 0
        rgb, flow = (arrays.get(stream, np.zeros((length, 0), np.float32)) for stream in STREAMS)
        if rgb.ndim != 2 or flow.ndim != 2 or len(rgb) != len(flow):
            raise RecipeError(
                f"{video_id!r} has {rgb.shape} RGB and {flow.shape} flow features; both must be (L, D) of one length.",
                "run `lstr extract` again for this video.",
            )
        return rgb, flow

    def _arrays(self, video_id: str) -> dict[str, np.memmap]:
        """By stream. Raises RecipeError when one is absent or damaged."""
        arrays = {}
        for stream in self.streams:
            path = self.array(stream, video_id)
            try:
                arrays[stream] = open_array(path)
            except (OSError, ValueError) as error:
                what = getattr(error, "strerror", None) or str(error)
                raise RecipeError(f"{path} cannot be used: {what}.", "run `lstr extract` again.") from error
        return arrays

    @contextmanager
    def staged(self, video_id: str) -> Iterator["FeatureFolder"]:
        """This folder, ready for a video's arrays: an old record is of another source or not whole, and is removed.

        Raises OutputError.
        """
        try:
            self.record(video_id).unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error
        yield self

    def sweep(self) -> None:
        """Remove the temporary files of killed runs."""
        sweep(self.path)

    def failures(self) -> list[dict[str, Any]]:
        """What `failed.jsonl` says."""
        return entries(read_jsonl(self.path / FAILED))

    def note_failure(self, failure: Mapping[str, Any]) -> None:
        """Write it to `failed.jsonl` at once: a kill must not lose it."""
        append_jsonl(self.path / FAILED, failure)

    def log_failure(self, video_id: str, failure: Failure) -> Failure:
        """Write the log of a failure, as `lstr.pipelines.failures.logged` does."""
        return logged(failure, self.path, video_id)

    def remove_log(self, video_id: str) -> None:
        """Remove the log of a video that has not failed again."""
        (self.path / log_name(video_id)).unlink(missing_ok=True)

    def compile(self, failures: Sequence[Mapping[str, Any]]) -> None:
        """Write `videos.jsonl` from the records, and `failed.jsonl`, which is not begun for nothing.

        A file that would not change is not written again: a finished folder may be read-only.
        """
        records = (self.read_record(video_id) for video_id in self.ids())
        videos = [record for record in records if record]
        for name, lines in (("videos.jsonl", videos), (FAILED, list(failures))):
            if lines != read_jsonl(self.path / name):
                write_jsonl(self.path / name, lines)

    def calibration(self) -> dict[str, Any]:
        """Batch-norm statistics of the random networks that made the folder, by stream; empty otherwise."""
        path = self.path / "calibration.pt"
        return read_calibration(path, path) if path.exists() else {}

    def read_record(self, video_id: str) -> dict[str, Any] | None:
        """A video's record; None where it has none, or none that can be read."""
        try:
            record = json.loads(self.record(video_id).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def is_done(self, video_id: str, source: Place) -> bool:
        """Whether this source (by size and time) is finished under this recipe, with its arrays whole."""
        record = self.read_record(video_id)
        if record is None or self.recipe is None:
            return False
        try:
            stat = source.stat()
            same = (record["bytes"], record["mtime"], record["recipe"]) == (stat.st_size, stat.st_mtime, self.recipe.id)
            return same and all(
                len(array) == record["chunks"] and signature(array) == record["arrays"][stream]["signature"]
                for stream, array in self._arrays(video_id).items()
            )
        except (OSError, TypeError, ValueError, AttributeError, LookupError, RecipeError, VideoError):
            return False


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
        folders = {stream: path / name for stream, name in made.items()}
        return FeatureFolder(path, folders.get("rgb"), folders.get("flow"), recipe)
    streams = {}
    for stream in STREAMS:
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
            "give the folder that `lstr extract VIDEOS -o FEATURES` wrote, or one with rgb_* and flow_* folders.",
        )
    return FeatureFolder(path, streams.get("rgb"), streams.get("flow"), None)


def read_calibration(file: Path | BinaryIO, name: object) -> dict[str, Any]:
    """The batch-norm statistics that a feature folder's calibration.pt holds, by stream; `name` is its path or URL.

    Raises RecipeError for a file of anything else; nothing in it is run.
    """
    import torch

    found: Any = None
    with suppress(Exception):  # a file that is no pickle fails in as many ways as it has bytes
        found = torch.load(file, map_location="cpu", weights_only=True)
    if not is_tables(found):
        raise RecipeError(f"{name} is damaged, or holds no tables of tensors.", "extract into a new folder.")
    return found


def read_recipe(content: str | bytes, name: object) -> Recipe:
    """The recipe that a feature folder's recipe.json holds; `name` is its path or URL. Raises RecipeError."""
    try:
        return Recipe.from_dict(json.loads(content), name)
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{name} is not JSON.", "extract into a new folder.") from error


def create_features(path: str | Path, recipe: Recipe, calibration: Mapping[str, Any]) -> FeatureFolder:
    """Open a feature folder for writing, making it when it is new.

    Raises RecipeError, with the difference, when it holds features of another recipe.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file, not a folder.", "give [[output]] a folder.")
    if (path / "recipe.json").exists():
        existing = open_features(path)
        check_same(path, existing.recipe, recipe)
        return existing
    if path.is_dir() and any(any(path.glob(f"{stream}_*/*.npy")) for stream in STREAMS):
        raise without_recipe(path)
    if calibration:
        import torch

        with replacing(path / "calibration.pt") as temporary:
            torch.save(calibration, temporary)
    write_text(path / "recipe.json", recipe.to_json() + "\n")
    return open_features(path)


def check_same(path: object, begun: Recipe | None, requested: Recipe) -> None:
    """Raise RecipeError, with the difference, where a folder was begun by another recipe than is requested."""
    if begun and begun != requested:
        raise RecipeError(
            f"{path} holds features of another recipe ({'; '.join(differences(begun, requested))}).",
            f"choose another folder with [[output]], or go on with this one by `[[recipe={shlex.quote(str(path))}]]`.",
        )


def without_recipe(path: object) -> RecipeError:
    """The typed error of a folder that is to be written to and holds features from elsewhere."""
    return RecipeError(f"{path} holds features without a recipe.", "choose another folder with [[output]].")


def is_feature_folder(path: Path) -> bool:
    """Whether a folder holds features rather than videos."""
    return (
        path.is_dir()
        and not is_weights_folder(path)
        and ((path / "recipe.json").exists() or any(any(path.glob(f"{s}_*/")) for s in STREAMS))
    )
