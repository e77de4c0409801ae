"""Any video file as 24 FPS RGB frames in chunks of six.

Which reader: decord decodes; PyAV reads the exact timestamps from the packets (decord gives them as floats, and
a float cannot decide a slot whose border it sits on). Where decord cannot open a file, or counts other frames
than the container has timestamps, PyAV decodes too. `Video.decoder` says which one did.

decord decodes ahead without bound while the consumer computes, so it is closed and reopened each
`DECODE_AHEAD_BYTES` of frames. Frames are taken with `next()`; `get_batch` can hang for ever.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np

from extractors.errors import MissingPathError, VideoError

FPS = 24  # frames a second after resampling (paper, "Feature Encoding")
CHUNK = 6  # frames a chunk; with FPS this gives 4 features a second
CHUNK_SECONDS = CHUNK / FPS
HALF = Fraction(1, 2)
DECODE_AHEAD_BYTES = 256 * 2**20
VIDEO_SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".3gp", ".flv", ".wmv")
PROXY_SUFFIX = ".lstr-proxy.mp4"  # a copy that a report leaves beside itself for browsers; never a source


@dataclass(frozen=True)
class Chunk:
    """Six consecutive 24 FPS frames; `end_time` in seconds is when the chunk closes."""

    index: int
    end_time: float
    frames: np.ndarray
    """(6, H, W, 3) uint8 RGB at the working size."""


@dataclass(frozen=True)
class Video:
    """What the container says of its video stream; times are exact seconds relative to the first frame."""

    path: Path
    width: int
    height: int
    codec: str
    rotation: int
    timestamps: tuple[Fraction, ...]
    """Start of each frame, in display order."""
    last_duration: Fraction
    header_frames: int
    clock: str
    """`container`, or `average rate` where the timestamps are missing or not increasing."""

    @property
    def duration(self) -> float:
        """Seconds from the first frame's start to the last frame's end."""
        return float(self.timestamps[-1] + self.last_duration)

    @property
    def n_frames(self) -> int:
        """Number of frames at 24 FPS: floor(duration · 24 + 1/2)."""
        return int((self.timestamps[-1] + self.last_duration) * FPS + HALF)

    @property
    def n_chunks(self) -> int:
        """Number of whole chunks; the short tail is dropped."""
        return self.n_frames // CHUNK


def probe(path: str | Path) -> Video:
    """Read a file's packets (no decoding) for its frame times.

    Raises MissingPathError when nothing is there, VideoError when it holds no readable video stream.
    """
    path = Path(path)
    if not path.exists():
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    if path.is_dir():
        raise MissingPathError(f"{path} is a folder, not a video.", "name a file in it.")
    if path.stat().st_size == 0:
        raise VideoError(f"{path} is empty (0 bytes).", "copy or record the file again.")
    try:
        with av.open(str(path), metadata_errors="ignore") as container:
            stream = container.streams.best("video")
            if stream is None or (stream.disposition & av.stream.Disposition.attached_pic):
                raise VideoError(f"{path} has no video stream.", "give a file with pictures, not only sound.")
            header_frames, rate = stream.frames, stream.average_rate or stream.guessed_rate
            starts, last_end, missing = [], Fraction(0), 0
            for packet in container.demux(stream):
                if packet.size == 0 or packet.is_discard:
                    continue
                if packet.pts is None:
                    missing += 1
                    continue
                start = packet.pts * packet.time_base
                starts.append(start)
                last_end = max(last_end, start + (packet.duration or 0) * packet.time_base)
            context = stream.codec_context
            width, height, codec = context.width, context.height, context.name
            rotation = _rotation(path) if starts else 0
    except PermissionError as error:
        raise VideoError(f"{path} cannot be read: permission denied.", f"`chmod u+r {path}`.") from error
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise VideoError(
            f"{path} is not a readable video ({_reason(error)}).", "play it with `ffplay`, or convert it with `ffmpeg`."
        ) from error
    if not starts and not missing or not width or not height:
        raise VideoError(f"{path} has a video stream without frames.", "record or download the file again.")

    step = 1 / Fraction(rate) if rate else Fraction(1, FPS)
    times = sorted(starts)
    clock = "container"
    if missing or any(a == b for a, b in zip(times, times[1:], strict=False)):
        clock = "average rate"
        times = [i * step for i in range(len(starts) + missing)]
        last_duration = step
    else:
        last_duration = last_end - times[-1] if last_end > times[-1] else step
    first = times[0]
    return Video(
        path, width, height, codec, rotation, tuple(t - first for t in times), last_duration, header_frames, clock
    )


def _rotation(path: Path) -> int:
    """Degrees by which the first frame must be turned, from its display matrix."""
    with av.open(str(path), metadata_errors="ignore") as container:
        for frame in container.decode(container.streams.best("video")):
            return frame.rotation
    return 0


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.strip().splitlines()[0].rstrip(".")


class FrameReader:
    """Iterates a video's source frames once, as (time, (H, W, 3) uint8 RGB); counts what it gave.

    `decoder` names the library that decodes. Raises VideoError where the stream is damaged.
    """

    def __init__(self, video: Video):
        self.video = video
        self.decoded = 0
        self.decoder = "decord" if _decord_agrees(video) else "pyav"

    def __iter__(self) -> Iterator[tuple[Fraction, np.ndarray]]:
        frames = self._decord() if self.decoder == "decord" else self._pyav()
        for time, frame in frames:
            self.decoded += 1
            yield time, frame
        if self.decoded == 0:
            raise VideoError(f"{self.video.path} holds no decodable frame.", "record or download the file again.")

    def _decord(self) -> Iterator[tuple[Fraction, np.ndarray]]:
        import decord

        video = self.video
        segment = max(32, DECODE_AHEAD_BYTES // (video.width * video.height * 3))
        reader = None
        try:
            for i, time in enumerate(video.timestamps):
                if i % segment == 0:
                    reader = decord.VideoReader(str(video.path), num_threads=1)
                    if i:
                        reader.seek_accurate(i)
                yield time, reader.next().asnumpy()
        except (decord.DECORDError, StopIteration, RuntimeError) as error:
            raise _damaged(video, self.decoded) from error

    def _pyav(self) -> Iterator[tuple[Fraction, np.ndarray]]:
        video = self.video
        first = None
        try:
            with av.open(str(video.path), metadata_errors="ignore") as container:
                stream = container.streams.best("video")
                stream.thread_type = "AUTO"
                for i, frame in enumerate(container.decode(stream)):
                    if video.clock == "container" and frame.pts is not None:
                        start = frame.pts * frame.time_base
                    else:
                        start = video.timestamps[min(i, len(video.timestamps) - 1)]
                    first = start if first is None else first
                    image = frame.to_ndarray(format="rgb24")
                    yield start - first, np.rot90(image, frame.rotation // 90) if frame.rotation else image
        except (av.error.FFmpegError, OSError) as error:
            raise _damaged(video, self.decoded) from error


def _damaged(video: Video, decoded: int) -> VideoError:
    return VideoError(
        f"{video.path} is damaged: decoding stopped after {decoded} of {len(video.timestamps)} frames.",
        f"repair it with `ffmpeg -i {video.path} -c:v libx264 repaired.mp4`.",
    )


def _decord_agrees(video: Video) -> bool:
    """Whether decord opens the file and counts exactly the frames that have a timestamp."""
    import decord

    decord.logging.set_level(decord.logging.QUIET)
    try:
        reader = decord.VideoReader(str(video.path), num_threads=1)
        height, width = reader.next().shape[:2]
    except Exception:  # decord raises bare RuntimeErrors and its own types for every kind of unreadable file
        return False
    sizes = {(video.width, video.height), (video.height, video.width)}
    return len(reader) == len(video.timestamps) and (width, height) in sizes


def resample(frames: Iterable[tuple[Fraction, np.ndarray]], n_frames: int | None = None) -> Iterator[np.ndarray]:
    """Source frames at their own times to 24 FPS, as FFmpeg's fps filter does, in exact arithmetic.

    A frame's slot is floor(time · 24 + 1/2); output k is the last source frame whose slot is ≤ k; gaps repeat.
    It looks ahead by one source frame. `n_frames` fixes the total where the last frame's duration is known.
    """
    held, k = None, 0
    for time, frame in frames:
        slot = int(time * FPS + HALF)
        while held is not None and k < slot:
            yield held
            k += 1
        held = frame
    while held is not None and k < (n_frames if n_frames is not None else k + 1):
        yield held
        k += 1
        if n_frames is None:
            return


def working_size(width: int, height: int, long_side: int) -> tuple[int, int]:
    """(width, height) with the aspect kept and the longer side at most `long_side` pixels; never enlarged."""
    scale = min(1.0, long_side / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def shrink(frame: np.ndarray, long_side: int) -> np.ndarray:
    """(H, W, 3) RGB to the working size with area interpolation (part of the recipe)."""
    height, width = frame.shape[:2]
    size = working_size(width, height, long_side)
    if size == (width, height):
        return np.ascontiguousarray(frame)
    return cv2.resize(np.ascontiguousarray(frame), size, interpolation=cv2.INTER_AREA)


def read_chunks(reader: FrameReader, long_side: int) -> Iterator[Chunk]:
    """A video's chunks in order, each given as soon as a later frame closes it; the short tail is dropped.

    Raises VideoError where the stream is damaged.
    """
    shrunk = ((time, shrink(frame, long_side)) for time, frame in reader)
    pending: list[np.ndarray] = []
    index = 0
    for frame in resample(shrunk, reader.video.n_frames):
        pending.append(frame)
        if len(pending) == CHUNK:
            yield Chunk(index, (index + 1) * CHUNK_SECONDS, np.stack(pending))  # (6, H, W, 3)
            index += 1
            pending = []


def find_videos(inputs: Iterable[str | Path]) -> dict[str, Path]:
    """Files and folders (searched recursively) as {video id: path}, sorted.

    The id is the path relative to the given folder without its ending, folders kept; for a file, its stem.
    Raises MissingPathError for a path that is not there, a folder without videos, or two videos of one id.
    """
    found: dict[str, Path] = {}
    for given in map(Path, inputs):
        if given.is_dir():
            paths = sorted(
                p
                for p in given.rglob("*")
                if p.suffix.lower() in VIDEO_SUFFIXES and not p.name.endswith(PROXY_SUFFIX) and p.is_file()
            )
            if not paths:
                raise MissingPathError(
                    f"{given} holds no video.", f"give a folder with {', '.join(VIDEO_SUFFIXES[:5])} … files."
                )
            items = [(p.relative_to(given).with_suffix("").as_posix(), p) for p in paths]
        elif given.exists():
            items = [(given.stem, given)]
        else:
            raise MissingPathError(f"{given} does not exist.", "check the path; `ls` its folder.")
        for video_id, path in items:
            if found.setdefault(video_id, path).resolve() != path.resolve():
                raise MissingPathError(
                    f"{found[video_id]} and {path} would both be called {video_id!r}.",
                    "give their common folder instead, so that the ids keep the folder names.",
                )
    return found
