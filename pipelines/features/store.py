"""A store of features of other people: one or two parts, which are folders of files, and their clock."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lstr.chunk import Clock
from lstr.errors import RecipeError
from lstr.extractors.streams import MODEL_STREAMS
from lstr.pipelines.features.loose_files import LooseFiles, files_below
from lstr.pipelines.features.rows import CheckedRows
from lstr.pipelines.features.stated import Stated

FORMS = "a folder of .npy, .npz or .pt files, one array (rows, width) for each video"
# Rows by which two parts of a video may differ: ends are rounded in more than one way.
MOST_APART = 4


@dataclass(frozen=True)
class Store:
    """Features of other people. `parts` are by the model's streams; `stated` is what is said of them."""

    path: Path
    parts: Mapping[str, LooseFiles]
    stated: Stated
    _widths: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
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

    def width(self, stream: str) -> int:
        """The width of a part. The first call reads the header of each file.

        Raises RecipeError, which names the first video with another width than most.
        """
        if stream not in self._widths:
            part = self.parts[stream]
            widths = {video_id: part.array(video_id).shape[1] for video_id in self.ids}
            usual = max(set(widths.values()), key=list(widths.values()).count)
            if wrong := next((name for name, width in widths.items() if width != usual), None):
                raise RecipeError(
                    f"{wrong!r} in {part.path} is {widths[wrong]} wide, and the others are {usual}.",
                    "store each array as (rows, width), or move this file out of the folder.",
                )
            self._widths[stream] = usual
        return self._widths[stream]

    def __contains__(self, video_id: str) -> bool:
        return video_id in self._known

    def arrays(self, video_id: str) -> dict[str, Any]:
        """The features (L, D) of each part, read when they are asked for; of two parts as long as the shorter one.

        Raises RecipeError where they cannot be used, or differ by more than MOST_APART rows.
        """
        if video_id not in self:
            raise RecipeError(f"{self.path} has no features of {video_id!r}.", "`lstr info` lists what it has.")
        for stream in self.parts:
            self.width(stream)
        rows = {
            stream: CheckedRows(part.array(video_id), f"{part.path}, {video_id}") for stream, part in self.parts.items()
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
        widths = {stream: self.width(stream) for stream in self.parts}
        formats = {stream: part.format for stream, part in self.parts.items()}
        named = {"name": self.stated.name} if self.stated.name else {}
        clock = self.clock.to_dict() if self.clock else {}
        return {**clock, **named, "widths": widths, "formats": formats}


def has_streams(path: Path) -> bool:
    """Return whether a folder has a folder of files for RGB or for flow."""
    with suppress(RecipeError):  # several of one stream: a person chooses
        return bool(_streams_in(path, {}))
    return True


def open_store(path: Path, stated: Stated, named: Mapping[str, str | None]) -> Store:
    """The store in a folder, of which `stated` is said.

    named: of the folders of a stream the one to take. Raises RecipeError where that does not exist, or there are
    several.
    """
    if streams := _streams_in(path, named):
        if len(streams) > 1:
            return Store(path, {stream: LooseFiles(place) for stream, place in streams.items()}, stated)
        ((stream, place),) = streams.items()
    else:
        stream, place = "rgb", path
    files = LooseFiles(place)
    endings = _endings(files)
    parts = {one: replace(files, ending=ending) for one, ending in endings.items()} or {stream: files}
    return Store(path, parts, stated)


def _streams_in(path: Path, named: Mapping[str, str | None]) -> dict[str, Path]:
    """The folders that are called as the model's streams: `rgb` and `flow`, with `_` and more."""
    found = {}
    for stream in MODEL_STREAMS:
        chosen = named.get(stream)
        called = [p for p in sorted(path.glob(chosen or f"{stream}*")) if chosen or p.stem.partition("_")[0] == stream]
        fitting = [p for p in called if p.is_dir() and files_below(p)]
        if len(fitting) > 1:
            names = ", ".join(p.name for p in fitting)
            raise RecipeError(
                f"{path} has several {stream} features: {names}.",
                f"choose: --set {stream}_features={fitting[0].name}",
            )
        if chosen and not fitting:
            raise RecipeError(
                f"{path} has no {stream} features called {chosen}.",
                f"leave out {stream}_features, or name another folder.",
            )
        if fitting:
            found[stream] = fitting[0]
    return found


def _endings(files: LooseFiles) -> dict[str, str]:
    """`_rgb` and `_flow`, where each file of a folder has one of them at the end of its name, and both occur."""
    stems = [name.rpartition("/")[2] for name in files.files]
    endings = {stream: f"_{stream}" for stream in MODEL_STREAMS}
    each = all(stem.endswith((*endings.values(),)) for stem in stems)
    return endings if each and all(any(s.endswith(e) for s in stems) for e in endings.values()) else {}
