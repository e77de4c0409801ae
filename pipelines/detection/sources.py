"""What decisions are made on: videos and stored features, as feature rows that fit a checkpoint."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np

from lstr.checkpoints.loaded import Checkpoint
from lstr.chunk import CLOCK, Clock
from lstr.errors import VideoError
from lstr.extractors.prefetch import closed_after
from lstr.extractors.run import FeatureRow
from lstr.extractors.video.file_reader import open_chunks, probe_chunks
from lstr.extractors.video.frames import Chunk, chunks_of
from lstr.extractors.video.inputs import Tell, find_videos
from lstr.pipelines.detection.networks import Networks
from lstr.pipelines.detection.warnings import warnings_of_shape, warnings_of_source
from lstr.pipelines.failures import failure_of
from lstr.pipelines.features.folder import FeatureFolder, is_feature_folder
from lstr.pipelines.networks.checkpoint_recipe import check_recipe, open_learnt, streams_taken
from lstr.settings import check_range


@dataclass(frozen=True)
class Source:
    """A recorded source to detect on: its id, where it came from, its length, and its feature rows in order."""

    id: str
    origin: str
    video: Path | None
    """The file to show beside the timeline; None for stored features."""
    duration: float | None
    """None, as of `n_chunks`, where nobody knows it before the end."""
    n_chunks: int | None
    rows: Iterable[FeatureRow]
    warnings: list[str] = field(default_factory=list)
    """What a reader of its scores must know; more may join them while its rows are made."""


@dataclass(frozen=True)
class Unreadable:
    """A source that cannot be opened, why, and where it is; in a session its turn comes too."""

    id: str
    error: Exception
    origin: str = ""

    can_begin = True

    def events(self) -> NoReturn:
        """Raises its error."""
        raise self.error

    def end(self) -> None:
        """Nothing of it was begun."""


@dataclass(frozen=True)
class Limits:
    """Which chunks are decided: from `start` on, for `duration`, in seconds of the source, and `max_chunks` at most."""

    start: float = 0.0
    duration: float | None = None
    max_chunks: int | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for a start before 0, and for a number of chunks that is none."""
        check_range(self, least={"max_chunks": 1})

    @property
    def first(self) -> int:
        """The chunk in which `start` lies."""
        return CLOCK.first(self.start)

    @property
    def end(self) -> int | None:
        """The chunk before which `duration` is over; None without one."""
        if self.duration is None:
            return None
        return max(self.first + 1, CLOCK.end(self.start + self.duration))

    def of(self, n_chunks: int, name: str, clock: Clock = CLOCK) -> range:
        """The chosen chunks of a source that has `n_chunks`. Raises VideoError where there is none."""
        first, end = max(0, clock.first(self.start)), n_chunks
        if self.duration is not None:
            end = min(n_chunks, max(first + 1, clock.end(self.start + self.duration)))
        chosen = range(first, end)[: self.max_chunks]
        if not chosen:
            raise VideoError(
                f"{name} ends after {clock.at(n_chunks):g} s, before the start at {self.start:g} s.",
                "start earlier; `lstr info` says how long a video is.",
            )
        return chosen


ALL = Limits()


@dataclass(frozen=True)
class Recorded:
    """A recorded source that is opened when its turn comes; `origin` is where it is."""

    id: str
    origin: str

    def open(self, networks: Networks, limits: Limits) -> Source | Unreadable:
        """Raises what no other source would survive either: as `open_networks`, and `failure_of`."""
        raise NotImplementedError


@dataclass(frozen=True)
class VideoSource(Recorded):
    """A video file."""

    def open(self, networks: Networks, limits: Limits) -> Source | Unreadable:
        path = Path(self.origin)
        with _opening(self) as opened:
            if not networks.is_open:
                limits.of(probe_chunks(path).n_chunks, self.origin)  # networks take seconds: not for what is no video
        if not opened:
            twostream, workers, warnings = networks.open()
            with _opening(self) as opened:
                long_side = twostream.recipe.long_side
                video, reader, _ = open_chunks(path, long_side)
                chosen = limits.of(video.n_chunks, self.origin)
                chunks = _first_of(chunks_of(reader.frames(long_side), chosen.start), len(chosen))
                duration = video.duration if chosen.stop == video.n_chunks else CLOCK.at(chosen.stop)
                known = [*warnings, *warnings_of_source(networks.loaded, self.id, path)]
                known += warnings_of_shape(networks.loaded, *video.size(long_side))
                rows = twostream.rows(chunks, workers)
                opened.append(Source(self.id, self.origin, path, duration, len(chosen), rows, known))
        return opened[0]


@dataclass(frozen=True)
class StoredSource(Recorded):
    """A video of a feature folder; `warnings` are those of its folder."""

    folder: FeatureFolder
    warnings: Sequence[str] = ()

    def open(self, networks: Networks, limits: Limits) -> Source | Unreadable:
        with _opening(self) as opened:
            taken = streams_taken(networks.loaded)
            arrays = (self.folder.only(taken) if taken else self.folder).arrays(self.id)
            clock = networks.loaded.clock
            chosen = limits.of(len(next(iter(arrays.values()))), self.origin, clock)
            rows = (
                FeatureRow(k, clock.at(k + 1), {s: np.array(a[k], np.float32) for s, a in arrays.items()})
                for k in chosen
            )
            known = [*self.warnings, *warnings_of_source(networks.loaded, self.id)]
            opened.append(Source(self.id, self.origin, None, clock.at(chosen.stop), len(chosen), rows, known))
        return opened[0]


def _first_of(chunks: Iterator[Chunk], n: int) -> Iterator[Chunk]:
    with closed_after(chunks) as source:
        yield from islice(source, n)


def find_recorded(paths: Iterable[str | Path], tell: Tell | None = None) -> tuple[list[Path], dict[str, Path]]:
    """The feature folders among paths, and by id the videos that the others are or hold.

    `tell` as of `find_videos`. Raises as that does.
    """
    named = [Path(path) for path in paths]
    features = [path for path in named if is_feature_folder(path)]
    return features, find_videos((path for path in named if path not in features), tell=tell)


def recorded_sources(
    features: Iterable[Path], videos: Mapping[str, Path], loaded: Checkpoint, allow_mismatch: bool = False
) -> list[Recorded]:
    """The videos of each feature folder, then the video files, in order. Raises RecipeError for features of another."""
    sources: list[Recorded] = []
    for path in features:
        folder = open_learnt(path, loaded)
        warnings = check_recipe(loaded, folder, allow_mismatch)
        sources += [StoredSource(name, f"{folder.path}:{name}", folder, warnings) for name in folder.ids()]
    return [*sources, *(VideoSource(name, str(path)) for name, path in videos.items())]


@contextmanager
def _opening(source: Recorded) -> Iterator[list[Source | Unreadable]]:
    """A list for a source, which is Unreadable where opening it fails. Raises as `failure_of`."""
    opened: list[Source | Unreadable] = []
    try:
        yield opened
    except Exception as error:
        failure_of(error, source.origin)
        opened.append(Unreadable(source.id, error, source.origin))
