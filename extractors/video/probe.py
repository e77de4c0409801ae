"""What a video file holds, from its packets: frame times, size, damage; only its first picture is decoded."""

import errno
import math
import shlex
from array import array
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from lstr.errors import MissingPathError, VideoError
from lstr.extractors.stages import PROBE
from lstr.extractors.video.containers import best_video, open_container
from lstr.extractors.video.frames import CHUNK, FPS, n_frames_until, upright, working_size
from lstr.files.names import STDIN

MISSING_SECONDS = 0.5  # a container that ends earlier than it announces by more than this was cut off
AVERAGE_RATE = "average rate"
DIGITS = 6  # decimals of a second: microseconds tell any two frames apart
LABELS = "this is a label file; name the video itself."
OTHERS = dict.fromkeys((".pt", ".pth"), "name the video itself; use options for checkpoints and weights.")
OTHERS |= dict.fromkeys((".json", ".csv", ".txt", ".eaf", ".vtt", ".srt"), LABELS)
"""Hints for files that are not videos, by suffix."""
# Errors of an address that may answer later.
LATER = {
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT, errno.EHOSTDOWN),
    *(errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.EADDRNOTAVAIL),
    errno.EIO,  # FFmpeg's for a host whose name nobody knows, as before a router is up
}


@dataclass(frozen=True)
class Video:
    """What the container holds of its video stream."""

    path: Path
    width: int
    height: int
    """Size of the coded picture, before sample aspect and rotation are applied."""
    codec: str
    bits: int
    """Bits of a sample."""
    sample_aspect: Fraction
    rotation: int
    ticks: NDArray[np.int64]
    """(n,) start of each frame on the container's clock, in units of `time_base`, in display order, from the first one
    that decodes on; numbers of frames where the clock is `average rate`. A day at 25 frames per second takes 17 MB."""
    time_base: Fraction
    last_duration: Fraction
    """Seconds that the last frame is shown."""
    header_frames: int
    clock: str
    """`container`, or `average rate` where the timestamps are missing or not in the order of the frames."""
    damage: str
    """What is wrong with the packets, in a phrase; empty when nothing is."""
    left_out: int
    """Packets that are shown before the first picture that decodes, and so not at all."""
    keys: NDArray[np.int64]
    """Times of the key frames, increasing, in the units of `ticks`."""
    start: float
    """Seconds by which a player's clock is ahead when the first frame is shown."""

    @property
    def end(self) -> Fraction:
        """Seconds from the first frame's start to the last frame's end, exactly."""
        return self.time(-1) + self.last_duration

    @property
    def duration(self) -> float:
        """Seconds from the first frame's start to the last frame's end."""
        return float(self.end)

    @property
    def n_frames(self) -> int:
        """Number of frames at 24 FPS: floor(duration · 24 + 1/2)."""
        return n_frames_until(self.end)

    @property
    def n_chunks(self) -> int:
        """Number of whole chunks; the short tail is dropped."""
        return self.n_frames // CHUNK

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """(n,) seconds from the first frame, to the microsecond."""
        exact = (self.ticks - self.ticks[0]) * self.time_base.numerator / self.time_base.denominator
        return np.round(exact, DIGITS)

    def time(self, number: int) -> Fraction:
        """Exact seconds from the first frame's start to that of frame `number`, of the last one where it is -1."""
        return (int(self.ticks[number]) - int(self.ticks[0])) * self.time_base

    def size(self, long_side: int) -> tuple[int, int]:
        """(width, height) of the frames as read: square samples, upright, at the working size."""
        return upright(working_size(self.width, self.height, long_side, self.sample_aspect), self.rotation)


@dataclass(frozen=True)
class FirstPicture:
    """The first picture of a file that decodes, at which its time begins; it need not be of its first packet.

    A recording that was cut out of another one begins with packets whose key frame is not in it: those before the next
    key frame, and those after it that are shown before it. No decoder makes pictures of them.
    """

    rotation: int
    """Degrees by which pictures must be turned."""
    bits: int
    """Bits of a sample."""
    start: Fraction | None
    """Its time, in seconds of the container; None where it has none."""
    lost: int
    """Packets before it that give no picture, in a file that does not begin with a key frame."""

    def onwards(self, ticks: NDArray[np.int64], time_base: Fraction) -> NDArray[np.int64]:
        """Sorted times of packets, in units of `time_base`, without those before it."""
        if self.start is None:
            return ticks
        tick = self.start / time_base
        number = int(np.searchsorted(ticks, math.ceil(tick)))
        # a decoder that tells another time than its packet has says nothing of where the file begins
        return ticks[number:] if number < len(ticks) and int(ticks[number]) == tick else ticks


def first_picture(path: Path, skip_damaged: bool = False) -> FirstPicture:
    """Decode up to the first picture, or with `skip_damaged` up to the first one that is whole.

    Raises VideoError where there is none, else what PyAV raises.
    """
    with open_container(path) as container:
        stream = best_video(container, str(path))
        packets, is_cut = 0, False
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                is_cut = is_cut or not (packets or packet.is_keyframe)
                packets += 1
            try:
                pictures = [p for p in packet.decode() if not (skip_damaged and p.is_corrupt)]
            except av.error.InvalidDataError:
                if not skip_damaged:
                    raise
                continue
            if not pictures:
                continue
            first, made = pictures[0], len(pictures)
            if is_cut and packet.size:
                with suppress(av.error.InvalidDataError):
                    made += len(stream.codec_context.decode(None))  # those that it holds back
            bits = max(component.bits for component in first.format.components)
            start = None if first.pts is None or first.time_base is None else first.pts * first.time_base
            return FirstPicture(first.rotation, bits, start, max(0, packets - made) if is_cut else 0)
    raise VideoError(f"{path} contains no decodable frame.", "record or download the file again.")


def probe(path: str | Path, skip_damaged: bool = False) -> Video:
    """Read a file's packets for its frame times and decode its first picture, at which its time begins.

    With `skip_damaged` that is the first picture that is whole. Raises MissingPathError when the file does not exist,
    VideoError when it holds no readable video stream.
    """
    path = Path(path)
    if not path.exists():
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    if path.is_dir():
        raise MissingPathError(f"{path} is a folder, not a video.", "name a file in it.")
    if not path.is_file():  # a FIFO would be waited for
        hint = f"pipe it in, where it is a video: `lstr detect - < {shlex.quote(str(path))} -m MODEL`."
        raise VideoError(f"{path} is not a file on a disk, such as a pipe.", hint)
    if path.stat().st_size == 0:
        raise VideoError(f"{path} is empty (0 bytes).", "copy or record the file again.")
    try:
        first = first_picture(path, skip_damaged)
        with open_container(path) as container:
            stream = best_video(container, str(path))
            reached = Fraction(0)
            starts, keys = array("q"), array("q")
            latest, last_end, missing, bad = None, 0, 0, 0
            for packet in container.demux():
                if packet.size and packet.pts is not None and packet.time_base:
                    reached = max(reached, (packet.pts + (packet.duration or 0)) * packet.time_base)
                if packet.stream is not stream or packet.size == 0 or packet.is_discard:
                    continue
                bad += packet.is_corrupt
                if packet.pts is None:
                    missing += 1
                    continue
                if latest is None or packet.pts >= latest:
                    latest, last_end = packet.pts, packet.pts + (packet.duration or 0)
                starts.append(packet.pts)
                if packet.is_keyframe:
                    keys.append(packet.pts)
            began = container_start(container)
            damage = f"{bad} of its packets are damaged" if bad else missing_end(container, reached)
            base, step = stream.time_base, frame_step(stream)
            by_rate = base is None or missing > 0 or counts_frames(container, stream)
            context, codec = stream.codec_context, stream.codec.canonical_name
            facts = (context.width, context.height, codec, first.bits, aspect_of(stream), first.rotation)
            header_frames = stream.frames
    except PermissionError as error:
        raise VideoError(
            f"{path} cannot be read: permission denied.", f"`chmod u+r {shlex.quote(str(path))}`."
        ) from error
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
    if not starts and not missing:
        raise VideoError(f"{path} has a video stream without frames.", "record or download the file again.")
    n = len(starts) + missing
    if by_rate or base is None:
        base, ticks, last_duration, start = step, np.arange(n - first.lost), step, 0.0
        begins = ticks[:1]
    else:
        ticks = first.onwards(np.sort(np.frombuffer(starts, np.int64)), base)
        last = last_end - int(ticks[-1])
        last_duration = last * base if last > 0 else step
        start = round(float(int(ticks[0]) * base - began), DIGITS)
        begins = np.sort(np.frombuffer(keys, np.int64)) if keys else ticks[:0]
        begins = begins[begins >= ticks[0]]
    clock = AVERAGE_RATE if by_rate else "container"
    left_out = n - len(ticks)
    return Video(path, *facts, ticks, base, last_duration, header_frames, clock, damage, left_out, begins, start)


def find_start(path: Path) -> float:
    """`Video.start` of a file of which no more is read than its first frame that decodes.

    Raises VideoError where the file cannot be read or holds no such frame.
    """
    try:
        first = first_picture(path, skip_damaged=True)
        with open_container(path) as container:
            if first.start is None or counts_frames(container, best_video(container, str(path))):
                return 0.0
            return round(float(first.start - container_start(container)), DIGITS)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise unreadable(str(path), error) from error


def container_start(container: av.container.InputContainer) -> Fraction:
    """When a player's clock begins, in seconds of the container."""
    return Fraction(container.start_time or 0, av.time_base)


def seconds(ticks: int, time_base: Fraction | None) -> Fraction:
    """A time of FFmpeg's, in seconds."""
    assert time_base is not None  # where there is a time, its unit is known
    return ticks * time_base


def frame_step(stream: av.VideoStream) -> Fraction:
    """Seconds per frame at the stream's average rate."""
    rate = stream.average_rate or stream.guessed_rate
    return 1 / Fraction(rate) if rate else Fraction(1, FPS)


def aspect_of(stream: av.VideoStream) -> Fraction:
    """Width of a sample over its height; 1 where the stream has none."""
    return Fraction(stream.sample_aspect_ratio or 1)


def counts_frames(container: av.container.InputContainer, stream: av.VideoStream) -> bool:
    """Whether frame times are index / average rate: AVI numbers frames as they are coded, not as they are shown."""
    return container.format.name == "avi" and bool(stream.codec_context.has_b_frames)


def missing_end(container: av.container.InputContainer, reached: Fraction) -> str:
    """Return what is missing of a container whose packets end at `reached` seconds, in a phrase; empty if nothing is.

    It is taken as announced from zero, not from the start as in some containers, so that no whole file is accused.
    """
    announced = container.duration / av.time_base if container.duration else 0.0
    if announced - reached <= MISSING_SECONDS:
        return ""
    return f"it ends after {float(reached):.1f} of {announced:.1f} s"


def unreadable(name: str, error: Exception) -> VideoError:
    """The typed error of something that FFmpeg cannot open or read."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = text.strip().splitlines()[0].rstrip(".")
    if name.startswith("/dev/"):
        hint = "close other programs that use it, or run `sudo usermod -aG video $USER` and log in again."
        return VideoError(f"The camera {name} cannot be read ({reason}).", hint)
    if "://" in name:
        return VideoError(f"{name} cannot be read ({reason}).", "check that it is on, and its address.")
    if name == STDIN:
        return VideoError(
            f"{name} is not a readable video ({reason}).", "check the output of the command before the pipe."
        )
    hint = OTHERS.get(Path(name).suffix.lower(), "play it with `ffplay`, or convert it with `ffmpeg`.")
    return VideoError(f"{name} is not a readable video ({reason}).", hint)


def comes_later(error: VideoError) -> bool:
    """Whether what an address could not be opened for may pass by itself, as of a camera that is off: no mistake."""
    cause = error.__cause__
    return isinstance(cause, av.error.HTTPServerError) or (isinstance(cause, OSError) and cause.errno in LATER)


def damaged(name: str, what: str) -> VideoError:
    """The typed error of something that breaks while it is read; `what` is a phrase."""
    return VideoError(
        f"{name} is damaged: {what}.",
        "use `lstr extract --allow-damaged` to keep the part before the damage, or repair the file with "
        "`ffmpeg -i FILE -c:v libx264 repaired.mp4`.",
    )


def probe_chunks(path: Path) -> Video:
    """Return a video's facts. Raises MissingPathError or VideoError, also if it is shorter than one chunk."""
    with PROBE:
        video = probe(path)
    if video.n_chunks == 0:
        raise VideoError(
            f"{path} lasts {video.duration:.2f} s, less than one chunk of {CHUNK} frames at 24 per second.",
            "choose a video of at least a quarter of a second.",
        )
    return video
