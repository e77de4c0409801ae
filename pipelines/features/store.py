"""A store of features of other people: one or two parts, which are folders of files, .h5 or LMDB, and their clock."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lstr.chunk import Clock
from lstr.extractors.errors import MissingPathError, RecipeError
from lstr.extractors.streams import MODEL_STREAMS
from lstr.pipelines.features import h5_store, lmdb_store
from lstr.pipelines.features.h5_store import H5Store
from lstr.pipelines.features.lmdb_store import LmdbStore
from lstr.pipelines.features.loose_files import NOTES, LooseFiles, convert_hint, files_below
from lstr.pipelines.features.stated import BESIDE, Stated, stated_beside
from lstr.pipelines.features.stored_rows import Layout, StoredRows, layout_of

PICKLES = (".pkl", ".pickle")
FILES = (*h5_store.SUFFIXES, *lmdb_store.SUFFIXES)
Part = LooseFiles | H5Store | LmdbStore
FORMS = "a folder of .npy, .npz or .pt files, one for each video; a .h5 with a dataset for each; or an LMDB of frames"


@dataclass(frozen=True)
class Store:
    """Features of other people. `parts` are by the model's streams; `stated` is what is said of them."""

    path: Path
    parts: Mapping[str, Part]
    stated: Stated
    _layouts: dict[str, Layout] = field(default_factory=dict, compare=False, repr=False)
    """By part; they go along where something more is said of the store, or a part is left out"""

    @property
    def clock(self) -> Clock | None:
        """When rows are; None where nobody says."""
        return self.stated.clock

    @cached_property
    def ids(self) -> list[str]:
        """Videos that all parts have, sorted. Raises RecipeError where they have none."""
        first, *others = self.parts.values()
        shared = {*first.ids()}.intersection(*(part.ids() for part in others))
        if not shared:
            what = "no video of which all parts have features" if others else "no features"
            raise RecipeError(f"{self.path} holds {what}.", f"give {FORMS}.")
        return sorted(shared)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.ids)

    def layout(self, stream: str) -> Layout:
        """The axes of a part's arrays, for which the first time all are looked at. Raises as `layout_of`."""
        if stream not in self._layouts:
            part = self.parts[stream]
            shapes = {video_id: part.array(video_id).shape for video_id in self.ids}
            self._layouts[stream] = layout_of(shapes, self.stated.layout, part.path)
        return self._layouts[stream]

    def __contains__(self, video_id: str) -> bool:
        return video_id in self._known

    def arrays(self, video_id: str) -> dict[str, Any]:
        """The features (L, D) of each part, read when they are asked for; of two parts as long as the shorter one.

        Raises RecipeError where they cannot be used, or differ by more than MOST_APART rows.
        """
        if video_id not in self:
            raise RecipeError(f"{self.path} has no features of {video_id!r}.", "`lstr info` lists what it has.")
        rows = {
            stream: StoredRows(part.array(video_id), self.layout(stream), f"{part.path}, {video_id}")
            for stream, part in self.parts.items()
        }
        lengths = {stream: len(one) for stream, one in rows.items()}
        shortest = min(lengths.values())
        if max(lengths.values()) - shortest > MOST_APART:
            shown = " and ".join(f"{length} {stream}" for stream, length in lengths.items())
            raise RecipeError(
                f"{video_id!r} has {shown} rows in {self.path}, which are of one video at one rate.",
                "give parts that were made at one rate, or one of them alone.",
            )
        return {stream: one.until(shortest) for stream, one in rows.items()}

    def only(self, streams: Collection[str]) -> "Store":
        """The same without other parts."""
        return replace(self, parts={stream: part for stream, part in self.parts.items() if stream in streams})

    def describe(self) -> dict[str, Any]:
        """What a model keeps of it: how it is stored, how wide each part is, and what is said of it."""
        widths = {stream: self.arrays(self.ids[0])[stream].shape[1] for stream in self.parts}
        formats = {stream: part.format for stream, part in self.parts.items()}
        layouts = {stream: self.layout(stream).text for stream in self.parts}
        named = {name: text for name in ("name", "key") if (text := getattr(self.stated, name))}
        clock = self.clock.to_dict() if self.clock else {}
        return {**clock, **named, "widths": widths, "formats": formats, "layouts": layouts}


MOST_APART = 4
"""Rows by which two parts of a video may differ: ends are rounded in more than one way."""


def is_store(path: Path) -> bool:
    """Whether a path is a store of features of other people, by names alone."""
    if path.is_dir():
        with suppress(RecipeError):  # several of one stream: a person chooses
            alone = _alone_in(path)
            others = [one.name for one in path.iterdir() if one != alone and not one.name.startswith(".")]
            is_alone = alone is not None and all(name == BESIDE or name.endswith(NOTES) for name in others)
            return (path / lmdb_store.DATA).is_file() or is_alone or bool(_streams_in(path))
        return True
    return path.suffix.lower() in (*FILES, *PICKLES) and path.is_file()


def open_store(path: Path, stated: Stated, named: Mapping[str, str | None] = MappingProxyType({})) -> Store:
    """The store at a path, with what a person says of it over what it says itself.

    named: of the folders or files of a stream the one to take.
    Raises RecipeError for what cannot be read without running code in it, and for a file that is no store.
    """
    if path.is_file():
        if path.suffix.lower() in PICKLES:
            raise RecipeError(f"{path} is a pickle.", convert_hint([path]))
        if path.suffix.lower() not in FILES:
            raise MissingPathError(f"{path} is a file, and no store of features.", f"give {FORMS}.")
        return _of_parts(path, {"rgb": path}, stated_beside(path.parent, stated))
    stated = stated_beside(path, stated)
    if streams := _streams_in(path, named):
        return _of_parts(path, streams, stated)
    if alone := _alone_in(path):
        return _of_parts(path, {"rgb": alone}, stated)
    return _of_parts(path, {"rgb": path}, stated)


def pickles_in(path: Path) -> list[Path]:
    """The pickles of a folder."""
    return sorted(p for p in path.rglob("*") if p.suffix.lower() in PICKLES and not p.name.startswith("."))


def _streams_in(path: Path, named: Mapping[str, str | None] = MappingProxyType({})) -> dict[str, Path]:
    """What a folder has that is called as the model's streams: `rgb` and `flow`, with `_` and more, or an ending."""
    found = {}
    for stream in MODEL_STREAMS:
        chosen = named.get(stream)
        called = [p for p in sorted(path.glob(chosen or f"{stream}*")) if chosen or p.stem.partition("_")[0] == stream]
        fitting = [p for p in called if (p.is_file() and p.suffix in FILES) or (p.is_dir() and _holds(p))]
        if len(fitting) > 1:
            names = ", ".join(p.name for p in fitting)
            raise RecipeError(
                f"{path} has several {stream} features: {names}.", f"choose: --set {stream}_features={fitting[0].name}"
            )
        if chosen and not fitting:
            raise RecipeError(f"{path} has no {stream} features called {chosen}.", f"leave out {stream}_features.")
        if fitting:
            found[stream] = fitting[0]
    return found


def _holds(path: Path) -> bool:
    return (path / lmdb_store.DATA).is_file() or bool(files_below(path)) or bool(_alone_in(path))


def _alone_in(path: Path) -> Path | None:
    """The one .h5 or LMDB file of a folder."""
    own = [one for one in sorted(path.iterdir()) if not one.name.startswith(".") and one.name != lmdb_store.DATA]
    found = [one for one in own if one.suffix.lower() in FILES]
    return found[0] if len(found) == 1 and found[0].name != "lock.mdb" else None


def _of_parts(path: Path, places: Mapping[str, Path], stated: Stated) -> Store:
    parts: dict[str, Part] = {}
    for stream, place in places.items():
        opened = _part(place, stated.key)
        if isinstance(opened, H5Store):
            stated = opened.stated(stated)
        if len(places) == 1 and isinstance(opened, H5Store) and opened.streams:
            parts |= {one: replace(opened, stream=one) for one in opened.streams}
        elif len(places) == 1 and isinstance(opened, LooseFiles) and (endings := _endings(opened)):
            parts |= {one: replace(opened, ending=ending) for one, ending in endings.items()}
        else:
            parts[stream] = opened
    return Store(path, parts, stated)


def _part(place: Path, key: str) -> Part:
    if place.suffix.lower() in h5_store.SUFFIXES and place.is_file():
        return H5Store(place, key)
    if place.is_file() or (place / lmdb_store.DATA).is_file():
        return LmdbStore(place)
    alone = _alone_in(place)
    return _part(alone, key) if alone else LooseFiles(place, key)


def _endings(files: LooseFiles) -> dict[str, str]:
    """`_rgb` and `_flow`, where each file of a folder has one of them at the end of its name, and both occur."""
    stems = [name.rpartition("/")[2] for name in files.files]
    endings = {stream: f"_{stream}" for stream in MODEL_STREAMS}
    each = all(stem.endswith((*endings.values(),)) for stem in stems)
    return endings if each and all(any(s.endswith(e) for s in stems) for e in endings.values()) else {}
