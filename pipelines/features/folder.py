"""Feature folders: a directory per stream, an array per video, and the recipe that made them.

Layout: `recipe.json`, `calibration.pt` (random weights only), `rgb_*/ID.npy`, `flow_*/ID.npy`, `records/ID.json`
(written last: a video with a record is done), `videos.jsonl`, `failed.jsonl`. Other programs write folders without
recipe.json. Those with `rgb_*` and `flow_*` of .npy files are taken as features of 4 chunks a second, as published
ones are; any other folder of .npy, .npz and .pt files needs a rate (`lstr.pipelines.features.foreign`).
"""

import io
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lstr.chunk import CLOCK, Clock
from lstr.errors import CheckpointError, MissingPathError, RecipeError
from lstr.extractors.networks.weights_file import is_weights_folder
from lstr.extractors.recipe import Recipe, differences
from lstr.extractors.streams import MODEL_STREAMS, PICTURES
from lstr.files.arrays import ZIP
from lstr.files.remote import Place, content_of
from lstr.loaded_checkpoint import is_tables
from lstr.pipelines.features.foreign import (
    FORMS,
    NOTHING,
    PICKLES,
    Stated,
    add_file,
    files_below,
    find_files,
    ids_below,
    is_foreign,
    refuse_pickles,
    stream_folders,
)
from lstr.pipelines.features.rows import REPAIR, FeatureRows, open_file

MAX_DIFFERENCE = 4  # rows by which two streams of a video may differ, because programs round its end in several ways


@dataclass(frozen=True)
class FeatureFolder:
    """Feature folders, one or several of one recipe, opened for reading."""

    paths: tuple[Path, ...]
    folders: Mapping[str, Path]
    """The folder of each stream, in the first of `paths`"""
    files: Mapping[str, Mapping[str, Path]]
    """The files of each stream, by video id"""
    recipe: Recipe | None
    """None for features that other programs made"""
    stated: Stated | None = None
    """What is said about features that are not in the layout above; None for those that are"""
    _widths: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def path(self) -> Path | str:
        """The path; of several folders their paths in words."""
        return self.paths[0] if len(self.paths) == 1 else ", ".join(map(str, self.paths))

    @property
    def clock(self) -> Clock:
        """The times of its chunks. Raises RecipeError where the rate is not known."""
        if self.stated is None:
            return CLOCK
        if (clock := self.stated.clock) is None:
            raise RecipeError(
                f"How many rows a second the features in {self.path} have is not said.",
                "say it: --set features.rate=7.5 for features of each 4th frame of 30 a second.",
            )
        return clock

    def on(self, clock: Clock) -> "FeatureFolder":
        """Return this folder with the clock of a model. Raises RecipeError where its own is another one."""
        if self.stated and not self.stated.clock:
            return replace(self, stated=replace(self.stated, rate=str(clock.rate), offset=str(clock.offset)))
        if self.clock != clock:
            ours, theirs = (
                f"{float(one.rate):.6g} a second" + (f" from {float(one.offset):.4g} s on" if one.offset else "")
                for one in (self.clock, clock)
            )
            raise RecipeError(
                f"The features in {self.path} are {ours}, and the model learnt from {theirs}.",
                "give features that were made as those that it has learnt from.",
            )
        return self

    def describe(self) -> dict[str, Any] | None:
        """Return what a model records about features of other people: rate, name, widths and formats."""
        if self.stated is None:
            return None
        clock = self.stated.clock.to_dict() if self.stated.clock else {}
        named = {"name": self.stated.name} if self.stated.name else {}
        formats = {s: ", ".join(sorted({f.suffix[1:] for f in files.values()})) for s, files in self.files.items()}
        return {**clock, **named, "widths": {stream: self._width(stream) for stream in self.files}, "formats": formats}

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of its streams, in the order of STREAMS."""
        return tuple(self.folders)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams' folders."""
        return tuple(dict.fromkeys(folder.name for folder in self.folders.values()))

    def only(self, streams: Collection[str]) -> "FeatureFolder":
        """Return this folder without other streams than these."""
        folders = {stream: path for stream, path in self.folders.items() if stream in streams}
        files = {stream: self.files[stream] for stream in folders}
        return replace(self, folders=folders, files=files, recipe=self.recipe and self.recipe.narrowed([*folders]))

    def ids(self) -> list[str]:
        """Return the videos that have the arrays of all streams, and a record where there is a recipe, sorted."""
        shared = set.intersection(*(set(files) for files in self.files.values())) if self.files else set()
        if self.stated is not None and not shared:
            missing = "no video of which all parts have features" if len(self.files) > 1 else "no features"
            raise RecipeError(f"{self.path} holds {missing}.", f"give {FORMS}.")
        return sorted(i for i in shared if self.recipe is None or self.record(i).exists())

    def lengths(self) -> dict[str, int]:
        """Return the number of chunks of each video. Raises as `arrays`."""
        return {video_id: self.length(video_id) for video_id in self.ids()}

    def length(self, video_id: str) -> int:
        """Return the number of chunks of a video. Raises as `arrays`."""
        return len(next(iter(self.arrays(video_id).values())))

    def load(self, video_id: str) -> tuple[FeatureRows, FeatureRows]:
        """Return what a model takes as RGB (L, D) and as flow (L, D); (L, 0) for what the folder lacks.

        Streams other than flow are RGB, joined in the order of STREAMS. Raises as `arrays`.
        """
        arrays = self.arrays(video_id)
        length, is_checked = len(next(iter(arrays.values()))), self.stated is not None
        parts = ([a.files[0] for s, a in arrays.items() if (s in PICTURES) is pictures] for pictures in (True, False))
        rgb, flow = (FeatureRows(files, length, is_checked) for files in parts)
        return rgb, flow

    def arrays(self, video_id: str) -> dict[str, FeatureRows]:
        """Return the features (L, D) of each stream, which are read when rows of them are.

        Raises RecipeError where they are missing, damaged, of unequal length, or of another length than recorded.
        """
        if self.stated is not None and not all(video_id in files for files in self.files.values()):
            raise RecipeError(f"{self.path} has no features of {video_id!r}.", "`lstr info` lists what it has.")
        repair = "run `lstr extract` again for this video." if self.recipe else REPAIR
        found = {stream: open_file(self.array(stream, video_id), repair) for stream in self.streams}
        lengths = {stream: file.shape[0] for stream, file in found.items()}
        length = min(lengths.values())
        if max(lengths.values()) - length > (0 if self.stated is None else MAX_DIFFERENCE):
            shown = " and ".join(f"{n} {stream}" for stream, n in lengths.items())
            raise RecipeError(
                f"{video_id!r} has {shown} rows in {self.path}; all streams of a video must have one length.",
                repair if self.stated is None else "give parts that were made at one rate, or one of them alone.",
            )
        record = self.read_record(video_id) if self.recipe else None
        if record and record.get("chunks", length) != length:
            raise RecipeError(
                f"{video_id!r} has {length} chunks in {self.path}, and its record says {record['chunks']}.", repair
            )
        if self.stated is not None:
            for stream in self.streams:
                self._width(stream)
        return {stream: FeatureRows([file], length, self.stated is not None) for stream, file in found.items()}

    def _width(self, stream: str) -> int:
        """Return the width of a stream of other people. The first call reads the header of each file.

        Raises RecipeError for a video with another width than most.
        """
        if stream not in self._widths:
            widths = {video_id: open_file(self.files[stream][video_id]).shape[1] for video_id in self.ids()}
            usual = max(set(widths.values()), key=list(widths.values()).count)
            if wrong := next((name for name, width in widths.items() if width != usual), None):
                raise RecipeError(
                    f"{wrong!r} in {self.folders[stream]} is {widths[wrong]} wide, and the others are {usual}.",
                    "store each array as (rows, width), or move this file out of the folder.",
                )
            self._widths[stream] = usual
        return self._widths[stream]

    def array(self, stream: str, video_id: str) -> Path:
        """Return the path of an array, which may not exist."""
        return self.files[stream].get(video_id) or self.folders[stream] / f"{video_id}.npy"

    def record(self, video_id: str) -> Path:
        """Return the path of a video's record, in the folder that has its arrays."""
        found = (files[video_id] for files in self.files.values() if video_id in files)
        array = next(found, None)
        root = next((path for path in self.paths if array and array.is_relative_to(path)), self.paths[0])
        return root / "records" / f"{video_id}.json"

    def read_record(self, video_id: str) -> dict[str, Any] | None:
        """Return a video's record; None where there is none that can be read."""
        return read_record(self.record(video_id))

    def calibration(self) -> dict[str, Any]:
        """Return the statistics of random networks, as `read_calibration`."""
        return read_calibration(self.paths[0])


def read_record(place: Place) -> dict[str, Any] | None:
    """Return the record of a video; None where there is none that can be read."""
    try:
        record = json.loads(content_of(place) or b"")
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def seen_streams(record: Mapping[str, Any] | None) -> Sequence[str] | None:
    """Return the streams whose network has seen the video of a record; None where it does not say."""
    seen = (record or {}).get("seen")
    return seen if isinstance(seen, list) else None


def read_calibration(folder: Place) -> dict[str, Any]:
    """Return the batch-norm statistics of the random networks that made a folder, by stream; empty otherwise.

    Raises RecipeError for a file of anything else. No code in it is run.
    """
    path = folder.joinpath("calibration.pt")
    content = content_of(path)
    if content is None:
        return {}
    import torch

    from lstr.checkpoint import check_plain
    from lstr.loaded_checkpoint import check_deflated

    found: Any = None
    try:
        if content.startswith(ZIP):
            check_deflated(path, io.BytesIO(content))
        with suppress(Exception):  # a file that is not a pickle fails in as many ways as it has bytes
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        for stream, tensors in found.items() if is_tables(found) else ():
            check_plain(path, {f"{stream}/{name}": tensor for name, tensor in tensors.items()})
    except CheckpointError as error:
        raise RecipeError(str(error), "extract into a new folder.") from error
    if not is_tables(found):
        raise RecipeError(f"{path} is damaged, or holds no tables of tensors.", "extract into a new folder.")
    return found


def read_recipe(content: str | bytes, name: object) -> Recipe:
    """Return the recipe in the content of a recipe.json; `name` is its path or URL. Raises RecipeError."""
    try:
        return Recipe.from_dict(json.loads(content), name)
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{name} is not JSON.", "extract into a new folder.") from error


def open_folders(
    paths: Sequence[str | Path], rgb: str | None = None, flow: str | None = None, stated: Stated = NOTHING
) -> FeatureFolder:
    """Open one feature folder, or several of one recipe that are read as one.

    Raises as `open_features`, and RecipeError where recipes, streams or rates differ, or two folders have a video.
    """
    opened = [open_features(path, rgb, flow, stated) for path in paths]
    first = opened[0]
    files = {stream: dict(one) for stream, one in first.files.items()}
    ids = set(first.ids()) if len(opened) > 1 else set()
    for other in opened[1:]:
        both = f"{first.path} and {other.path} hold"
        if other.recipe != first.recipe:
            different = "only one has a recipe.json"
            if first.recipe and other.recipe:
                different = "; ".join(differences(first.recipe, other.recipe))
            raise RecipeError(f"{both} features of different recipes ({different}).", "give features of one recipe.")
        if other.names != first.names or other.streams != first.streams:
            raise RecipeError(
                f"{both} different features: {sorted({first.names, other.names})}.",
                "name the same two in both with --set rgb_features=NAME and --set flow_features=NAME.",
            )
        if {one.stated and one.stated.clock for one in (first, other)} != {first.stated and first.stated.clock}:
            raise RecipeError(f"{both} features of other rates.", "give features of one rate.")
        if twice := ids.intersection(other.ids()):
            where = ", ".join(map(str, paths))
            raise RecipeError(
                f"{len(twice)} videos are in more than one of {where}, as {min(twice)!r}.", "keep one of each."
            )
        ids.update(other.ids())
        for stream in files:
            files[stream].update(other.files[stream])
    return replace(first, paths=tuple(path for one in opened for path in one.paths), files=files)


def open_features(
    path: str | Path, rgb: str | None = None, flow: str | None = None, stated: Stated = NOTHING
) -> FeatureFolder:
    """Open a feature folder for reading.

    Args:
        path: The folder.
        rgb: Name of the folder of RGB features, where there are several.
        flow: The same for flow.
        stated: What is said about features of other people.

    Raises:
        MissingPathError: The folder does not exist.
        RecipeError: It holds no features, several of one stream, networks, or pickles.
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
    named = {stream: name for stream, name in (("rgb", rgb), ("flow", flow)) if name}
    if (path / "recipe.json").exists():
        recipe = read_recipe((path / "recipe.json").read_bytes(), path / "recipe.json")
        made = {stream: recipe.parts[stream].folder(stream) for stream in recipe.streams}
        if any(name != made.get(stream) for stream, name in named.items()):
            raise RecipeError(f"{path} was made as {' and '.join(made.values())}.", "leave out these names.")
        folders = {stream: path / name for stream, name in made.items()}
        arrays = {stream: {i: folder / f"{i}.npy" for i in ids_below(folder)} for stream, folder in folders.items()}
        return FeatureFolder((path,), folders, arrays, recipe)
    stated, folders = add_file(path, stated), stream_folders(path, named)
    if stated == NOTHING and any(ids_below(f) for f in folders.values() if f.name.startswith(("rgb_", "flow_"))):
        arrays = {stream: {i: folder / f"{i}.npy" for i in ids_below(folder)} for stream, folder in folders.items()}
        return FeatureFolder((path,), folders, arrays, None)
    if not folders and not files_below(path):
        refuse_pickles(path)
        raise RecipeError(
            f"{path} has no recipe.json and no folder named rgb_* or flow_*.",
            f"give the folder that `lstr extract VIDEOS -o FEATURES --recipe MODEL` wrote with a model's networks, or "
            f"{FORMS}.",
        )
    files = find_files(path, folders)
    return FeatureFolder((path,), folders or dict.fromkeys(files, path), files, None, stated)


def is_feature_folder(path: Path) -> bool:
    """Return whether a path holds features, rather than videos or a run."""
    if not path.is_dir():
        return path.suffix.lower() in PICKLES and path.is_file()  # `open_features` says what to do about one
    if is_weights_folder(path):
        return False
    own = (path / "recipe.json").exists() or any(any(path.glob(f"{stream}_*/")) for stream in MODEL_STREAMS)
    return own or is_foreign(path)
