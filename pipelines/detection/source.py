"""Sources of a detection: video files, stored features, frames or features of a program, and live sources."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import accumulate
from numbers import Rational
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstr.chunk import CLOCK
from lstr.errors import MissingPathError, VideoError
from lstr.extractors.run import Ahead, FeatureRow, TwoStream
from lstr.extractors.stages import closed_after
from lstr.extractors.video.frames import FPS, GAP_SECONDS, Chunk, working_size
from lstr.extractors.video.inputs import Input, Notify, find_videos, is_video_name
from lstr.extractors.video.probe import probe_chunks
from lstr.extractors.video.reader import SourceFrame, chunks_of, open_chunks, shrink, stretches
from lstr.files.names import shown
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.model import Networks, warnings_of_source
from lstr.pipelines.detection.options import Limits
from lstr.pipelines.model_files.networks import streams_of_checkpoint

if TYPE_CHECKING:  # a video needs no feature folders, and no reader of live sources
    from lstr.extractors.video.live import LiveReader
    from lstr.pipelines.features.folder import FeatureFolder

QUEUED = 8  # chunks read ahead of a batch: decoding goes on while the loop is busy
# If the first steps between frames are all longer than two seconds, the times are not in seconds.
FIRST_STEPS = 3
PAIRS = "use pairs of a frame, uint8 (H, W, 3) RGB, and its time in seconds."


class Source:
    """A source of decisions: `open` starts to read it, then it has `chunks` for the networks, or feature `rows`.

    A thread reads chunks into a bounded queue. If the queue is full, a recorded source waits and a live one drops its
    oldest chunk; nothing else depends on `live`.
    """

    live = False
    needs_networks = True
    named = False
    """Whether the user chose its id."""
    batch: int | None = None
    """Chunks that go through the networks together; None for the batch size of the networks."""

    def __init__(
        self,
        source_id: str,
        origin: str = "",
        *,
        rows: Iterable[FeatureRow] | None = None,
        video: Path | None = None,
        duration: float | None = None,
        n_chunks: int | None = None,
    ):
        self.id, self.origin, self.video = source_id, origin or source_id, video
        self.duration, self.n_chunks = duration, n_chunks
        """None if unknown before the end."""
        self.warnings: list[str] = []
        """For readers of its scores; reading may add more."""
        self.rows = None if rows is None else iter(rows)
        """Features that need no networks."""
        self.chunks: Any = None
        """The queue in front of the networks, Ahead or the LiveReader of a live source; None if none needs it."""

    def open(self, networks: Networks, limits: Limits, changed: threading.Condition) -> None:
        """Start to read. `changed` is notified of each chunk, and of the end.

        Raises VideoError and others of this source, and as `Networks.open`.
        """

    def stop(self) -> None:
        """Read no more, without waiting for the thread."""
        if self.chunks:
            self.chunks.stop()

    def close(self) -> None:
        """Read no more, and wait for the thread of a recorded source."""
        self.stop()
        if isinstance(self.chunks, Ahead):
            self.chunks.close()
        if self.rows is not None and hasattr(self.rows, "close"):
            self.rows.close()
        self.rows = None


class VideoSource(Source):
    """A video file."""

    def open(self, networks: Networks, limits: Limits, changed: threading.Condition) -> None:
        """See Source."""
        path = Path(self.origin)
        if not networks.made:  # they take seconds: not for a file that is not a video
            limits.of(probe_chunks(path).n_chunks, self.origin)
        twostream, _, warnings = networks.open()
        long_side = twostream.recipe.long_side
        video, reader, _ = open_chunks(path, long_side)
        chosen = limits.of(video.n_chunks, self.origin)
        self.video, self.n_chunks = path, len(chosen)
        self.duration = video.duration if chosen.stop == video.n_chunks else CLOCK.at(chosen.stop)
        self.warnings += [*warnings, *warnings_of_source(networks.loaded, self.id, path)]
        twostream.prepare(twostream.batch)
        chunks = chunks_of(reader.frames(long_side), chosen.start, len(chosen), twostream.frames_seen)
        self.chunks = Ahead(chunks, twostream.batch + QUEUED, f"reader of {self.id}", changed)


class StoredSource(Source):
    """A video of a feature folder."""

    needs_networks = False

    def __init__(self, source_id: str, folder: "FeatureFolder", warnings: Iterable[str] = ()):
        super().__init__(source_id, f"{folder.path}:{source_id}")
        self._folder = folder
        self.warnings += warnings

    def open(self, networks: Networks, limits: Limits, changed: threading.Condition) -> None:
        """See Source."""
        taken, clock = streams_of_checkpoint(networks.loaded), networks.loaded.clock
        arrays = (self._folder.only(taken) if taken else self._folder).arrays(self.id)
        chosen = limits.of(len(next(iter(arrays.values()))), self.origin, clock)
        self.duration, self.n_chunks = clock.at(chosen.stop), len(chosen)
        self.warnings += warnings_of_source(networks.loaded, self.id)
        self.rows = (
            FeatureRow(k, clock.at(k + 1), {s: np.array(a[k], np.float32) for s, a in arrays.items()}) for k in chosen
        )


class FrameSource(Source):
    """An iterable of frames (H, W, 3) uint8 RGB with times in seconds; their number is unknown."""

    batch = 1  # each chunk is decided as soon as it is complete

    def __init__(self, source_id: str, frames: Iterable[Any]):
        super().__init__(source_id)
        self._frames = frames

    def open(self, networks: Networks, limits: Limits, changed: threading.Condition) -> None:
        """See Source."""
        if not isinstance(self._frames, Iterable):
            raise VideoError(f"{self._frames!r} is not a path, an address or an iterable of frames.", PAIRS)
        twostream, _, warnings = networks.open()
        self.warnings += warnings
        twostream.prepare(1)
        first, end = limits.span()

        def chunks() -> Iterator[Chunk]:
            made = 0
            with closed_after(source_frames(self._frames, twostream.recipe.long_side)) as frames:
                # without the chunks in which no frame came for more than two seconds
                for begin, stretch in stretches(frames):
                    for chunk in chunks_of(stretch, max(first, begin), seen=twostream.frames_seen):
                        if end is not None and chunk.index >= end:
                            return
                        yield chunk
                        made += 1
                        if made == limits.max_chunks or chunk.index + 1 == end:
                            return  # and no frame is read after the last chunk

        self.chunks = Ahead(chunks(), 1 + QUEUED, f"reader of {self.id}", changed)


class LiveSource(Source):
    """A camera, an address or standard input."""

    live = True
    batch = 1

    def __init__(self, source_id: str, given: Input, connect: "Callable[[str, Input, TwoStream], LiveReader]"):
        """`connect` makes the reader of an id and an input for the networks."""
        super().__init__(source_id, shown(given.source) if isinstance(given.source, str) else given.id)
        self.named, self._given, self._connect = given.named, given, connect

    def open(self, networks: Networks, limits: Limits, changed: threading.Condition) -> None:
        """See Source."""
        twostream, _, warnings = networks.open()
        twostream.prepare(1, twostream.batch)  # the chunks of several cameras go through the networks together
        self.warnings += [*warnings, *warnings_of_source(networks.loaded, self.id)]
        self.chunks = self._connect(self.id, self._given, twostream).__enter__()


def source_frames(frames: Iterable[Any], long_side: int) -> Iterator[SourceFrame]:
    """Yield each frame at the working size of the first one, with its time since the first one.

    A frame is copied before the next one is asked for, so a program may reuse one array. Raises VideoError for an item
    that is not a frame, for a time that decreases or is not a number, and for times that are not in seconds.
    """
    first = last = None
    steps: list[Fraction] = []  # between the first frames
    step, size = Fraction(1, FPS), (0, 0)
    with closed_after(frames) as source:
        for number, item in enumerate(source):
            try:
                frame, given = item
                image, is_finite = np.asarray(frame), math.isfinite(given)
            except (TypeError, ValueError, OverflowError) as error:
                raise VideoError(f"Item {number} is not a frame with its time ({error}).", PAIRS) from error
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size or not is_finite:
                raise VideoError(f"Frame {number} is {image.dtype} of shape {image.shape} at {given} s.", PAIRS)
            time = Fraction(given if isinstance(given, Rational) else float(given))
            if first is None or last is None:
                first = last = time
                size = working_size(image.shape[1], image.shape[0], long_side)
            if time < last:
                raise VideoError(
                    f"The time of frame {number} is {float(time):g} s, the one before {float(last):g} s.",
                    "use times that do not decrease; start a new detection when a source starts over.",
                )
            if 0 < number <= FIRST_STEPS:
                steps.append(time - last)
            if len(steps) == FIRST_STEPS and min(steps) > GAP_SECONDS:
                times = ", ".join(f"{float(at):g}" for at in accumulate([first, *steps]))
                raise VideoError(
                    f"The first frames are at {times} s, too far apart to show an action.",
                    "use times in seconds: divide milliseconds by 1000.",
                )
            if 0 < time - last <= GAP_SECONDS:
                step = time - last
            last = time
            fitted = shrink(image, size)
            fitted = fitted.copy() if np.may_share_memory(fitted, image) else fitted
            yield SourceFrame(time - first, step, partial(np.asarray, fitted))


def vector_rows(vectors: Iterable[Any], loaded: Checkpoint) -> Iterator[FeatureRow]:
    """Yield the features of a program, one vector per chunk, by stream.

    Each is a vector (D,), appearance before motion, or a vector by stream: {"rgb": …, "flow": …}. Raises VideoError if
    one does not have the widths that the model needs.
    """
    config, clock = loaded.config, loaded.clock
    widths = {stream: width for stream, width in (("rgb", config.rgb_dim), ("flow", config.flow_dim)) if width}
    hint = f"use a vector of {sum(widths.values())} numbers for each chunk, or {widths} by stream."
    with closed_after(iter(vectors)) as items:
        for chunk, item in enumerate(items):
            try:
                if isinstance(item, Mapping):
                    found = {stream: np.array(item[stream], np.float32) for stream in widths}
                else:
                    cuts = [widths["rgb"]] if len(widths) > 1 else []
                    found = dict(zip(widths, np.split(np.array(item, np.float32), cuts, axis=-1), strict=True))
            except (TypeError, ValueError, LookupError) as error:
                raise VideoError(f"Item {chunk} is not a vector of features ({error!r}).", hint) from error
            for stream, vector in found.items():
                if vector.shape != (widths[stream],):
                    raise VideoError(f"The {stream} features of chunk {chunk} have shape {vector.shape}.", hint)
            yield FeatureRow(chunk, clock.at(chunk + 1), found)


def find_recorded(paths: Iterable[str | Path], notify: Notify | None = None) -> tuple[list[Path], dict[str, Path]]:
    """Return the feature folders among paths, and by id the videos that the others are or contain.

    `notify` as of `find_videos`. Raises as that does.
    """
    named = [Path(path) for path in paths]
    features: list[Path] = []
    if not all(is_video_name(path) and path.is_file() for path in named):
        from lstr.pipelines.features.folder import is_feature_folder

        features = [path for path in named if is_feature_folder(path)]
        if array := next((path for path in named if path.suffix in (".npy", ".npz", ".pt") and path.is_file()), None):
            raise MissingPathError(f"{array} is not a video.", f"name the folder of its features: {array.parent}.")
    return features, find_videos((path for path in named if path not in features), notify=notify)


def recorded_sources(
    features: Iterable[Path], videos: Mapping[str, Path], loaded: Checkpoint, allow_mismatch: bool = False
) -> list[Source]:
    """Return the videos of each feature folder, then the files. Raises RecipeError for features of another recipe."""
    sources: list[Source] = []
    for path in features:
        from lstr.pipelines.features.folder import check_recipe, open_features  # a video needs none

        folder = open_features(path).on(loaded.clock)
        warnings = check_recipe(loaded, folder, allow_mismatch)
        sources += [StoredSource(name, folder, warnings) for name in folder.ids()]
    return [*sources, *(VideoSource(name, str(path)) for name, path in videos.items())]
