"""The feature folder that the whole field reads: a directory per stream, an array per video, and what made them.

Layout: `recipe.json`, `calibration.pt` (random weights only), `rgb_*/ID.npy`, `flow_*/ID.npy`, `records/ID.json`
(written last: the truth of what is done), `videos.jsonl`, `failed.jsonl`. A folder without recipe.json is one from
elsewhere and is accepted as it is; other stores of features are read through `lstr.pipelines.features.store`.
"""

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lstr.chunk import CLOCK, Clock
from lstr.errors import MissingPathError, RecipeError
from lstr.extractors.networks.weights_file import is_weights_folder
from lstr.extractors.recipe import Recipe
from lstr.extractors.streams import MODEL_STREAMS, PICTURES
from lstr.files.arrays import open_array, signature
from lstr.files.atomic import check_kept, sweep, unwritable
from lstr.pipelines.features.any_folder import Features
from lstr.pipelines.features.loose_files import AGAIN, PICKLES, files_below, ids_below, is_loose, refuse_pickles
from lstr.pipelines.features.rows import joined
from lstr.pipelines.features.stated import NOTHING, Stated, stated_beside
from lstr.pipelines.features.store import FORMS, Store, has_streams, open_store


@dataclass(frozen=True)
class FeatureFolder(Features[Path]):
    """A feature folder: where the arrays of each stream are, and its recipe (None from elsewhere)."""

    path: Path
    folders: Mapping[str, Path]
    recipe: Recipe | None
    store: Store | None = None
    """What its arrays are read from, where that is no folder of .npy files for each stream"""

    @property
    def clock(self) -> Clock:
        """When its chunks are. Raises RecipeError where nobody says how many a second a store has."""
        if self.store is None:
            return CLOCK
        if (clock := self.store.clock) is None:
            raise RecipeError(
                f"How many rows a second the features in {self.path} have is not said.",
                "say it: --set features.rate=7.5 for features of each 4th frame of 30 a second.",
            )
        return clock

    def on(self, clock: Clock) -> "FeatureFolder":
        """The same by the clock of a model. Raises RecipeError where it has another one."""
        if self.store is None or self.store.clock:
            own = self.clock
            if own != clock:
                raise RecipeError(
                    f"The features in {self.path} are {float(own.rate):.6g} a second{_from(own)}, and the model learnt "
                    f"from {float(clock.rate):.6g} a second{_from(clock)}.",
                    "give features that were made as those that it has learnt from.",
                )
            return self
        stated = replace(self.store.stated, rate=str(clock.rate), offset=str(clock.offset))
        return replace(self, store=replace(self.store, stated=stated))

    def describe(self) -> dict[str, Any] | None:
        """What a model keeps of a store of other people; None where arrays are as those that are made here."""
        return self.store.describe() if self.store else None

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
        recipe, store = self.recipe and self.recipe.narrowed([*folders]), self.store and self.store.only(folders)
        return replace(self, folders=folders, recipe=recipe, store=store)

    def has(self, video_id: str) -> bool:
        """Whether it has the features of a video."""
        return video_id in self.store if self.store else self.array(self.streams[0], video_id).exists()

    def array(self, stream: str, video_id: str) -> Path:
        return self.folders[stream] / f"{video_id}.npy"

    def ids(self) -> list[str]:
        """Videos that have the arrays of all streams (and a record, where the folder is ours), sorted."""
        if self.store:
            return list(self.store.ids)
        first, *others = self.streams
        return sorted(
            i
            for i in ids_below(self.folders[first])
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

    def arrays(self, video_id: str) -> dict[str, Any]:
        """The features (L, D) of each stream, memory-mapped, or read from a store when they are asked for.

        Raises RecipeError when absent, damaged, of unequal length, or of another than its record says.
        """
        if self.store:
            return self.store.arrays(video_id)
        arrays: dict[str, np.ndarray] = {stream: self._open(stream, video_id) for stream in self.streams}
        length = len(arrays[self.streams[0]]) if arrays[self.streams[0]].ndim else 0
        if any(array.ndim != 2 or len(array) != length for array in arrays.values()):
            shapes = " and ".join(f"{array.shape} {stream}" for stream, array in arrays.items())
            raise RecipeError(f"{video_id!r} has {shapes} features; all must be (L, D) of one length.", self._again)
        record = self.read_record(video_id) if self.recipe else None
        if record and record.get("chunks", length) != length:
            raise RecipeError(
                f"{video_id!r} has {length} chunks in {self.path}, and its record says {record['chunks']}.", self._again
            )
        return arrays

    def _open(self, stream: str, video_id: str) -> np.memmap:
        """Raises RecipeError where it is absent or damaged."""
        path = self.array(stream, video_id)
        try:
            return open_array(path)
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise RecipeError(f"{path} cannot be used: {what}.", self._again) from error

    @property
    def _again(self) -> str:
        """What to do about a video whose features are not whole."""
        return "run `lstr extract` again for this video." if self.recipe else AGAIN

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


def _from(clock: Clock) -> str:
    return f" from {float(clock.offset):.4g} s on" if clock.offset else ""


def open_features(
    path: str | Path, rgb: str | None = None, flow: str | None = None, stated: Stated = NOTHING
) -> FeatureFolder:
    """Open a feature folder for reading; `rgb` and `flow` name the folders of the streams where there are several.

    A folder from elsewhere may have one stream only, and be a store (`lstr.pipelines.features.store`), of which
    `stated` says what it does not say itself. Raises MissingPathError when it does not exist, RecipeError when it holds
    no stream, or several of one, or networks.
    """
    path = Path(path)
    if path.is_file():
        refuse_pickles(path)
        raise MissingPathError(
            f"{path} is a file, not a feature folder.", f"give {FORMS}, or what `lstr extract` wrote."
        )
    if not path.is_dir():
        raise MissingPathError(
            f"{path} is not a feature folder.", f"make one: `lstr extract VIDEOS -o {shlex.quote(str(path))}`."
        )
    if is_weights_folder(path):
        raise RecipeError(
            f"{path} holds networks, not features.",
            f"make features with them: `lstr extract VIDEOS -o FEATURES --recipe {shlex.quote(str(path))}`.",
        )
    named, stated = {"rgb": rgb, "flow": flow}, stated_beside(path, stated)
    if (path / "recipe.json").exists():
        recipe = read_recipe((path / "recipe.json").read_bytes(), path / "recipe.json")
        made = {stream: recipe.parts[stream].folder(stream) for stream in recipe.streams}
        if any(name and name != made.get(stream) for stream, name in named.items()):
            raise RecipeError(f"{path} was made as {' and '.join(made.values())}.", "leave out these names.")
        return FeatureFolder(path, {stream: path / name for stream, name in made.items()}, recipe)
    streams = {}
    for stream in MODEL_STREAMS:
        pattern = named[stream] or f"{stream}_*"
        found = sorted(p for p in path.glob(pattern) if p.is_dir())
        if len(found) > 1:
            names = ", ".join(p.name for p in found)
            raise RecipeError(
                f"{path} has several {stream} features: {names}.", f"choose: --set {stream}_features={found[0].name}"
            )
        if found:
            streams[stream] = found[0]
        elif named[stream]:
            raise RecipeError(
                f"{path} has no recipe.json and no folder named {pattern}.",
                f"leave out {stream}_features.",
            )
    if stated != NOTHING or not any(any(folder.rglob("*.npy")) for folder in streams.values()):
        if has_streams(path) or files_below(path):
            store = open_store(path, stated, named)
            return FeatureFolder(path, {stream: part.path for stream, part in store.parts.items()}, None, store)
        refuse_pickles(path)
    if not streams:
        raise RecipeError(
            f"{path} has no recipe.json and no folder named rgb_* or flow_*.",
            f"give the folder that `lstr extract VIDEOS -o FEATURES --recipe MODEL` wrote with a model's networks, or "
            f"{FORMS}.",
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
    if not path.is_dir():
        return path.suffix.lower() in PICKLES and path.is_file()  # `open_features` says what to do about one
    if is_weights_folder(path):
        return False
    own = (path / "recipe.json").exists() or any(any(path.glob(f"{s}_*/")) for s in MODEL_STREAMS)
    return own or has_streams(path) or is_loose(path)
