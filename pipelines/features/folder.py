"""Feature folders: a subfolder per stream, an array per video, and the recipe.

Layout: `recipe.json`, `calibration.pt` (random weights only), `rgb_*/ID.npy`, `flow_*/ID.npy`, `records/ID.json`
(written last: a video with a record is done), `videos.jsonl`, `failed.jsonl`. Folders of other programs have no
recipe.json. If they have `rgb_*` and `flow_*` with .npy files, they are read as features with 4 chunks per second, like
the published features; any other folder of .npy, .npz and .pt files needs a rate (`feature_files`).
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lstr.chunk import CLOCK, Clock
from lstr.errors import MissingPathError, RecipeError
from lstr.extractors.networks.weights_file import is_weights_folder, sha256_of
from lstr.extractors.recipe import Recipe, differences
from lstr.extractors.streams import MODEL_STREAMS, PICTURES, streams_of_model
from lstr.files.arrays import open_array
from lstr.files.content import read_object
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.features.feature_files import (
    FORMS,
    MODELS,
    NOTES,
    NOTHING,
    PICKLES,
    REPAIR,
    SUFFIXES,
    FeatureRows,
    Stated,
    files_below,
    find_files,
    ids_below,
    open_file,
    refuse_pickles,
    stream_folders,
)
from lstr.pipelines.features.output_folder import open_output
from lstr.pipelines.model_files.networks import ALLOW, ARRAYS, mismatch_warnings, recipe_of, store_in_words
from lstr.pipelines.progress import ProgressCallback

MAX_DIFFERENCE = 4  # rows by which two streams of a video may differ, because programs round its end differently


@dataclass(frozen=True)
class FeatureFolder:
    """One or more feature folders of one recipe, opened for reading."""

    paths: tuple[Path, ...]
    folders: Mapping[str, Path]  # the folder of each stream, in the order of STREAMS, in the first of `paths`
    files: Mapping[str, Mapping[str, Path]]  # the files of each stream, by video id
    recipe: Recipe | None  # None for features of other programs
    stated: Stated | None = None  # the description of features that are not in the layout above; None for this layout
    _widths: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def path(self) -> Path | str:
        """The path; for several folders a text with their paths."""
        return self.paths[0] if len(self.paths) == 1 else ", ".join(map(str, self.paths))

    @property
    def clock(self) -> Clock:
        """The clock of its chunks. Raises RecipeError if the rate is unknown."""
        if self.stated is None:
            return CLOCK
        if (clock := self.stated.clock) is None:
            raise RecipeError(
                f"The rate of the features in {self.path} is unknown.",
                "set the rows per second, for example --set features.rate=7.5 for every 4th frame at 30 FPS.",
            )
        return clock

    def on(self, clock: Clock) -> "FeatureFolder":
        """Return this folder with the clock of a model. Raises RecipeError if it has a different clock."""
        if self.stated and not self.stated.clock:
            return replace(self, stated=replace(self.stated, rate=str(clock.rate), offset=str(clock.offset)))
        if self.clock != clock:
            ours, theirs = (
                f"{float(one.rate):.6g} rows per second" + (f" from {float(one.offset):.4g} s on" if one.offset else "")
                for one in (self.clock, clock)
            )
            raise RecipeError(
                f"The features in {self.path} have {ours}; the model was trained on {theirs}.",
                "use features with the rate of the training features.",
            )
        return self

    def describe(self) -> dict[str, Any] | None:
        """Return the description of other programs' features for a model: rate, name, widths and formats."""
        if self.stated is None:
            return None
        clock = self.stated.clock.to_dict() if self.stated.clock else {}
        named = {"name": self.stated.name} if self.stated.name else {}
        formats = {s: ", ".join(sorted({f.suffix[1:] for f in files.values()})) for s, files in self.files.items()}
        return {**clock, **named, "widths": {stream: self._width(stream) for stream in self.files}, "formats": formats}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(folder.name for folder in self.folders.values()))

    def only(self, streams: Collection[str]) -> "FeatureFolder":
        folders = {stream: path for stream, path in self.folders.items() if stream in streams}
        files = {stream: self.files[stream] for stream in folders}
        return replace(self, folders=folders, files=files, recipe=self.recipe and self.recipe.narrowed([*folders]))

    def ids(self) -> list[str]:
        """Return the sorted ids of videos with the arrays of all streams, and with a record if there is a recipe."""
        shared = set.intersection(*(set(files) for files in self.files.values())) if self.files else set()
        if self.stated is not None and not shared:
            missing = "no video with features of all streams" if len(self.files) > 1 else "no features"
            raise RecipeError(f"{self.path} contains {missing}.", f"use {FORMS}.")
        return sorted(i for i in shared if self.recipe is None or self.record(i).exists())

    def describe_missing(self, video_id: str) -> str:
        """Return an id, with the streams that it lacks if it has others."""
        lacking = [stream for stream, files in self.files.items() if video_id not in files]
        return f"{video_id} ({' and '.join(lacking)})" if 0 < len(lacking) < len(self.files) else video_id

    def lengths(self) -> dict[str, int]:
        """Return the number of chunks of each video. Raises as `arrays`."""
        return {video_id: self.length(video_id) for video_id in self.ids()}

    def length(self, video_id: str) -> int:
        """Return the number of chunks of a video. Raises as `arrays`."""
        return len(next(iter(self.arrays(video_id).values())))

    def load(self, video_id: str, most: int | None = None) -> tuple[FeatureRows, FeatureRows]:
        """Return a model's inputs, RGB (L, D) and flow (L, D), at most `most` chunks; (L, 0) for a missing input.

        All streams except flow are joined in the order of STREAMS to RGB. Raises as `arrays`.
        """
        arrays = self.arrays(video_id)
        length = len(next(iter(arrays.values())))
        length = length if most is None else min(length, most)
        parts = ([a.files[0] for s, a in arrays.items() if (s in PICTURES) is pictures] for pictures in (True, False))
        rgb, flow = (FeatureRows(files, length) for files in parts)
        return rgb, flow

    def arrays(self, video_id: str) -> dict[str, FeatureRows]:
        """Return the features (L, D) of each stream, which are read lazily.

        Raises RecipeError if they are missing or damaged, or if their lengths differ or contradict the record.
        """
        if self.stated is not None and not all(video_id in files for files in self.files.values()):
            raise RecipeError(f"{self.path} has no features of {video_id!r}.", "list its videos with `lstr info`.")
        repair = "run `lstr extract` again for this video." if self.recipe else REPAIR
        found = {stream: open_file(self.array(stream, video_id), repair) for stream in self.folders}
        lengths = {stream: file.shape[0] for stream, file in found.items()}
        length = min(lengths.values())
        if max(lengths.values()) - length > (0 if self.recipe else MAX_DIFFERENCE):
            shown = " and ".join(f"{n} {stream}" for stream, n in lengths.items())
            raise RecipeError(
                f"{video_id!r} has {shown} rows in {self.path}; all streams of a video must have the same length.",
                repair if self.recipe else "use streams with the same rate, or only one stream.",
            )
        record = self.read_record(video_id) if self.recipe else None
        if record and record.get("chunks", length) != length:
            raise RecipeError(
                f"{video_id!r} has {length} chunks in {self.path}, but {record['chunks']} in its record.", repair
            )
        if self.stated is not None:
            for stream in self.folders:
                self._width(stream)
        return {stream: FeatureRows([file], length) for stream, file in found.items()}

    def _width(self, stream: str) -> int:
        """Return the width of a stream of another program. The first call reads the header of each file.

        Raises RecipeError for a video with a different width than most videos.
        """
        if stream not in self._widths:
            widths = {video_id: open_file(self.files[stream][video_id]).shape[1] for video_id in self.ids()}
            usual = max(set(widths.values()), key=list(widths.values()).count)
            if wrong := next((name for name, width in widths.items() if width != usual), None):
                raise RecipeError(
                    f"{wrong!r} in {self.folders[stream]} has width {widths[wrong]}; most videos have {usual}.",
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
        """Return a video's record; None if it is missing or unreadable."""
        return read_object(self.record(video_id))


def open_folders(
    paths: Sequence[str | Path], rgb: str | None = None, flow: str | None = None, stated: Stated = NOTHING
) -> FeatureFolder:
    """Open one feature folder, or several folders of one recipe as one.

    Raises as `open_features`, and RecipeError if recipes, streams or rates differ, or if a video is in two folders.
    """
    opened = [open_features(path, rgb, flow, stated) for path in paths]
    first = opened[0]
    files = {stream: dict(one) for stream, one in first.files.items()}
    ids = set(first.ids()) if len(opened) > 1 else set()
    for other in opened[1:]:
        both = f"{first.path} and {other.path} contain"
        if other.recipe != first.recipe:
            different = "only one has a recipe.json"
            if first.recipe and other.recipe:
                different = "; ".join(differences(first.recipe, other.recipe))
            raise RecipeError(f"{both} features of different recipes ({different}).", "use features of one recipe.")
        if other.names != first.names or [*other.folders] != [*first.folders]:
            raise RecipeError(
                f"{both} different features: {sorted({first.names, other.names})}.",
                "name the same two in both with --set rgb_features=NAME and --set flow_features=NAME.",
            )
        if (other.stated and other.stated.clock) != (first.stated and first.stated.clock):
            raise RecipeError(f"{both} features of different rates.", "use features of one rate.")
        if twice := ids.intersection(other.ids()):
            where = ", ".join(map(str, paths))
            raise RecipeError(
                f"{len(twice)} videos are in several of the folders {where}, for example {min(twice)!r}.",
                "keep each video in one folder.",
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
        rgb: Name of the subfolder of RGB features, if there are several.
        flow: The same for flow.
        stated: The user's description of features of other programs.

    Raises:
        MissingPathError: The folder does not exist.
        RecipeError: It contains no features, several folders of one stream, networks, or pickles.
    """
    path = Path(path)
    if path.is_file():
        refuse_pickles(path)
        raise MissingPathError(
            f"{path} is a file, not a feature folder.", f"use {FORMS}, or what `lstr extract` wrote."
        )
    if not path.is_dir():
        raise MissingPathError(
            f"{path} is not a feature folder.", f"make one: `lstr extract VIDEOS -o {shlex.quote(str(path))}`."
        )
    if is_weights_folder(path):
        raise RecipeError(
            f"{path} contains networks, not features.",
            f"make features with them: `lstr extract VIDEOS -o FEATURES --recipe {shlex.quote(str(path))}`.",
        )
    named = {stream: name for stream, name in (("rgb", rgb), ("flow", flow)) if name}
    if output := open_output(path):
        recipe = output.recipe
        made = {stream: recipe.parts[stream].folder(stream) for stream in recipe.streams}
        if any(name != made.get(stream) for stream, name in named.items()):
            raise RecipeError(
                f"{path} contains {' and '.join(made.values())}, not {' and '.join(named.values())}.",
                "leave out rgb_features and flow_features.",
            )
        folders = {stream: path / name for stream, name in made.items()}
    else:
        recipe, folders = None, stream_folders(path, named)
        # The layout of the published features implies their rate, 4 rows per second.
        is_published = any(ids_below(f) for f in folders.values() if f.name.startswith(("rgb_", "flow_")))
        if stated != NOTHING or not is_published:
            if not folders and not files_below(path):
                refuse_pickles(path)
                raise RecipeError(
                    f"{path} has no recipe.json and no folder named rgb_* or flow_*.",
                    f"use the folder that `lstr extract VIDEOS -o FEATURES --recipe MODEL` wrote with a model's "
                    f"networks, or {FORMS}.",
                )
            files = find_files(path, folders)
            return FeatureFolder((path,), folders or dict.fromkeys(files, path), files, None, stated)
    arrays = {stream: {i: folder / f"{i}.npy" for i in ids_below(folder)} for stream, folder in folders.items()}
    return FeatureFolder((path,), folders, arrays, recipe)


def is_feature_folder(path: Path) -> bool:
    """Return whether a path contains features, rather than videos or a run."""
    if not path.is_dir():
        return path.suffix.lower() in PICKLES and path.is_file()  # `open_features` reports it with a hint
    if is_weights_folder(path):
        return False
    if (path / "recipe.json").exists() or any(any(path.glob(f"{stream}_*/")) for stream in MODEL_STREAMS):
        return True
    # Subfolders of other programs' features, or only files of features and notes, but no models of a run
    with suppress(RecipeError):  # several folders of one stream: the user has to choose
        if stream_folders(path, {}):
            return True
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")]
        known = [file for file in files if file.suffix in SUFFIXES and file.stem not in MODELS]
        return bool(known) and all(file in known or file.name.endswith(NOTES) for file in files)
    return True


def verify(
    folder: FeatureFolder, progress: ProgressCallback = lambda *_: None
) -> tuple[dict[str, int], list[dict[str, str]], int]:
    """Read every array of a feature folder and check lengths, recipe, NaN and infinity, rows of zeros, and hashes.

    `progress` counts videos. Folders of other programs have no records, so only their arrays are checked.

    Returns:
        The number of chunks of each video without an error; the errors, each with the `id` of a video, the `stream`
        (empty if no single array is affected) and a description `what`; and the number of arrays with a checked hash.
    """
    chunks, found, n_hashed = dict[str, int](), list[dict[str, str]](), 0
    recipe = folder.recipe
    recorded = ids_below(folder.paths[0] / "records", ".json") if recipe else set()
    ids = sorted(recorded.union(*folder.files.values()))
    widths = {stream: part.dim for stream, part in recipe.parts.items()} if recipe else {}
    for n_done, video_id in enumerate(ids, 1):
        record, lengths = folder.read_record(video_id), dict[str, int]()
        faults: list[tuple[str, str]] = []  # stream and what
        if recipe and record is None:
            missing = "it has no record: its run was interrupted or is not finished"
            faults.append(("", "its record is damaged" if folder.record(video_id).exists() else missing))
        elif recipe and record is not None and record.get("recipe") != recipe.id:
            faults.append(("", f"its record has recipe {record.get('recipe')}, the folder {recipe.id}"))
        for stream in folder.folders:
            path = folder.array(stream, video_id)
            try:
                array = open_array(path)
            except (OSError, ValueError) as error:
                reason = f"cannot be used: {getattr(error, 'strerror', None) or error}"
                faults.append((stream, reason if path.exists() else "is missing"))
                continue
            if array.ndim != 2:
                faults.append((stream, f"contains {array.dtype} {array.shape}, not rows of features"))
                continue
            lengths[stream] = len(array)
            if array.shape[1] != (width := widths.setdefault(stream, array.shape[1])):
                faults.append((stream, f"width {array.shape[1]}, not {width}"))
            for n_rows, what in (
                ((~np.isfinite(array).all(1)).sum(), "contain values that are not finite"),
                # correct where nothing changes, or no person is visible
                (stream not in ("change", "pose") and (~array.any(1)).sum(), "are all zero"),
            ):
                if n_rows:
                    faults.append((stream, f"{n_rows} of {len(array)} rows {what}"))
            stored = None
            with suppress(AttributeError, TypeError, LookupError):
                stored = (record or {})["arrays"][stream]["sha256"]
            n_hashed += bool(stored)
            if stored and sha256_of(path) != stored:
                faults.append((stream, "its SHA-256 differs from the recorded one"))
        if len(set(lengths.values())) > 1:
            faults.append(("", f"lengths differ: {', '.join(f'{stream} {n}' for stream, n in lengths.items())}"))
        if record and any(length != record.get("chunks") for length in lengths.values()):
            faults.append(("", f"its record has {record.get('chunks')} chunks"))
        found += [{"id": video_id, "stream": stream, "what": what} for stream, what in faults]
        if not faults:
            chunks[video_id] = lengths[next(iter(folder.folders))]
        progress(video_id, n_done, len(ids))
    return chunks, found, n_hashed


def check_recipe(loaded: Checkpoint, folder: FeatureFolder, allow: bool = False) -> list[str]:
    """Raise RecipeError, with the difference, if features and checkpoint have different recipes; return warnings.

    Streams that the checkpoint does not use may differ. With `allow` a difference is only a warning. Features of other
    programs have no recipe; then different folder names than in training are a warning.
    """
    trained, recipe = recipe_of(loaded), folder.recipe
    theirs = folder.describe()
    if bool(loaded.store) != bool(theirs) and (trained or recipe) and not allow:
        foreign, own = (loaded.path, folder.path) if loaded.store else (folder.path, loaded.path)
        verb = "was trained on" if loaded.store else "contains"
        raise RecipeError(
            f"{foreign} {verb} features of another program{store_in_words(loaded.store or theirs or {})}, {own} does "
            "not.",
            "use the features that the model was trained on.",
        )
    if not trained or not recipe:
        names = folder.only(streams_of_model(loaded.config.streams)).names
        known = (loaded.extra.get("data") or {}).get(ARRAYS) or []
        if set(known) <= set(names):
            return []
        return [
            f"{loaded.path} was trained on features named {', '.join(known)}; these are named {', '.join(names)}. If "
            "another network computed them, the scores are wrong."
        ]
    shared = set(recipe.streams) & set(trained.streams)
    # folds do not matter, because the features of new videos come from the networks of `sha256`
    used = (recipe.narrowed(trained.streams) if shared else recipe).without_folds()
    different = differences(used, trained.without_folds())
    if different and not allow:
        raise RecipeError(
            f"{folder.path} and {loaded.path} were made by different recipes ({'; '.join(different)}).",
            f"extract the videos again with `--recipe {shlex.quote(str(loaded.path))}`, or add {ALLOW}.",
        )
    return mismatch_warnings(loaded, different)
