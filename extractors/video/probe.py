"""Read the metadata of a video file from its packets: frame times, size, damage. Only the first frame is decoded."""

import errno
import math
import shlex
import socket
from array import array
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import av
import numpy as np
from numpy.typing import NDArray

from lstr.errors import MissingPathError, VideoError, first_line
from lstr.extractors.stages import PROBE
from lstr.extractors.video.containers import best_video, decode, open_container
from lstr.extractors.video.frames import CHUNK, FPS, n_frames_until, working_size
from lstr.files.names import STDIN

MISSING_SECONDS = 0.5  # a container that ends earlier than its header announces by more than this is incomplete
AVERAGE_RATE = "average rate"
DIGITS = 6  # decimals of a second: microseconds distinguish any two frames
LABELS = "this is a label file; name the video itself."
OTHERS = dict.fromkeys((".pt", ".pth"), "name the video itself; use options for checkpoints and weights.")
OTHERS |= dict.fromkeys((".json", ".csv", ".txt", ".eaf", ".vtt", ".srt"), LABELS)
"""Hints for files that are not videos, by suffix."""
# Errors of a URL that may be available later.
LATER = {
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT, errno.EHOSTDOWN),
    *(errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.EADDRNOTAVAIL),
    errno.EIO,  # FFmpeg raises it if a host name cannot be resolved, for example before a router has started
}


@dataclass(frozen=True)
class Video:
    """Metadata of the video stream in a file."""

    path: Path
    width: int  # like the height, of the coded frame: before sample aspect ratio and rotation are applied
    height: int
    codec: str
    bits: int  # bits per sample
    sample_aspect: Fraction
    rotation: int
    ticks: NDArray[np.int64]
    """(n,) start of each frame on the container's clock, in units of `time_base`, in display order, beginning with the
    first decodable frame; frame numbers if the clock is `average rate`. A day at 25 frames per second takes 17 MB."""
    time_base: Fraction
    last_duration: Fraction  # duration of the last frame in seconds
    header_frames: int
    clock: str  # `container`, or `average rate` if the timestamps are missing or not in the order of the frames
    damage: str  # description of damaged packets, in a phrase; empty for a whole file
    left_out: int  # number of packets before the first decodable frame; they are never shown
    keys: NDArray[np.int64]  # times of the key frames, ascending, in units of `time_base`
    start: float  # time in seconds that a player displays for the first frame

    @property
    def end(self) -> Fraction:
        """Exact time in seconds from the first frame's start to the last frame's end."""
        return self.time(-1) + self.last_duration

    @property
    def duration(self) -> float:
        """Time in seconds from the first frame's start to the last frame's end."""
        return float(self.end)

    @property
    def n_frames(self) -> int:
        """Number of frames at 24 FPS: floor(duration · 24 + 1/2)."""
        return n_frames_until(self.end)

    @property
    def n_chunks(self) -> int:
        """Number of complete chunks; the incomplete tail is dropped."""
        return self.n_frames // CHUNK

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """Start of each frame (n,) in seconds from the first frame, rounded to microseconds."""
        exact = (self.ticks - self.ticks[0]) * self.time_base.numerator / self.time_base.denominator
        return np.round(exact, DIGITS)

    def time(self, number: int) -> Fraction:
        """Return the exact time in seconds from the first frame to frame `number`; -1 is the last frame."""
        return (int(self.ticks[number]) - int(self.ticks[0])) * self.time_base

    def size(self, long_side: int) -> tuple[int, int]:
        """Return (width, height) of the frames as they are read: square samples, upright, at the working size."""
        return working_size(self.width, self.height, long_side, self.sample_aspect, self.rotation)


def first_picture(path: Path, skip_damaged: bool = False) -> tuple[av.VideoFrame, int]:
    """Decode up to the first frame, where the time of a video begins; with `skip_damaged` to the first undamaged one.

    A recording that was cut out of another one may begin with packets that need a key frame outside the file: packets
    before the next key frame, and packets after it that are shown before it. They cannot be decoded.

    Returns the frame, and the number of undecodable packets before it in a file that does not begin with a key frame.
    Raises VideoError without such a frame; errors of PyAV are passed on.
    """
    with open_container(path) as container:
        stream = best_video(container, str(path))
        packets, is_cut = 0, False
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                is_cut = is_cut or not (packets or packet.is_keyframe)
                packets += 1
            decoded = decode(stream.codec_context, packet) if skip_damaged else packet.decode()
            pictures = [picture for picture in decoded if not (skip_damaged and picture.is_corrupt)]
            if not pictures:
                continue
            made = len(pictures)
            if is_cut and packet.size:
                made += len(decode(stream.codec_context, None))
            return pictures[0], max(0, packets - made) if is_cut else 0
    raise VideoError(f"{path} contains no decodable frame.", "record or download the file again.")


def time_of(picture: av.VideoFrame) -> Fraction | None:
    """Return a frame's time in seconds on the container's clock; None without a timestamp."""
    return None if picture.pts is None or picture.time_base is None else picture.pts * picture.time_base


def probe(path: str | Path, skip_damaged: bool = False) -> Video:
    """Read the frame times from a file's packets, and decode its first frame, at which its time begins.

    Args:
        path: The video file.
        skip_damaged: Begin with the first undamaged frame.

    Raises:
        MissingPathError: The file does not exist.
        VideoError: The file has no readable video stream.
    """
    path = Path(path)
    if not path.exists():
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    if path.is_dir():
        raise MissingPathError(f"{path} is a folder, not a video.", "name a file in it.")
    if not path.is_file():  # opening a FIFO would block
        hint = f"pipe it in, where it is a video: `lstr detect - < {shlex.quote(str(path))} -m MODEL`."
        raise VideoError(f"{path} is not a regular file.", hint)
    if path.stat().st_size == 0:
        raise VideoError(f"{path} is empty (0 bytes).", "copy or record the file again.")
    try:
        first, n_lost = first_picture(path, skip_damaged)
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
            damage = f"{bad} broken packet{'s' * (bad > 1)}" if bad else missing_end(container, reached)
            base, step = stream.time_base, frame_step(stream)
            by_rate = base is None or missing > 0 or counts_frames(container, stream)
            context, codec = stream.codec_context, stream.codec.canonical_name
            bits = max(component.bits for component in first.format.components)
            facts = (context.width, context.height, codec, bits, aspect_of(stream), first.rotation)
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
        base, ticks, last_duration, start = step, np.arange(n - n_lost), step, 0.0
        begins = ticks[:1]
    else:
        ticks = np.sort(np.frombuffer(starts, np.int64))
        if (begin := time_of(first)) is not None:
            tick = begin / base
            number = int(np.searchsorted(ticks, math.ceil(tick)))
            # if the decoder reports another time than the packet, it is no evidence of where the file begins
            if number < n and int(ticks[number]) == tick:
                ticks = ticks[number:]
        last = last_end - int(ticks[-1])
        last_duration = last * base if last > 0 else step
        start = round(float(int(ticks[0]) * base - began), DIGITS)
        begins = np.sort(np.frombuffer(keys, np.int64)) if keys else ticks[:0]
        begins = begins[begins >= ticks[0]]
    clock = AVERAGE_RATE if by_rate else "container"
    left_out = n - len(ticks)
    return Video(path, *facts, ticks, base, last_duration, header_frames, clock, damage, left_out, begins, start)


def find_start(path: Path) -> float:
    """Return `Video.start` of a file; reads only up to the first decodable frame.

    Raises VideoError if the file cannot be read or has no decodable frame.
    """
    try:
        begin = time_of(first_picture(path, skip_damaged=True)[0])
        with open_container(path) as container:
            if begin is None or counts_frames(container, best_video(container, str(path))):
                return 0.0
            return round(float(begin - container_start(container)), DIGITS)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise unreadable(str(path), error) from error


def container_start(container: av.container.InputContainer) -> Fraction:
    """Return the time in seconds on the container's clock at which a player displays zero."""
    return Fraction(container.start_time or 0, av.time_base)


def frame_step(stream: av.VideoStream) -> Fraction:
    """Return the seconds per frame at the stream's average rate."""
    rate = stream.average_rate or stream.guessed_rate
    return 1 / Fraction(rate) if rate else Fraction(1, FPS)


def aspect_of(stream: av.VideoStream) -> Fraction:
    """Return the sample aspect ratio (width over height); 1 if the stream has none."""
    return Fraction(stream.sample_aspect_ratio or 1)


def counts_frames(container: av.container.InputContainer, stream: av.VideoStream) -> bool:
    """Return whether frame times are index / average rate: AVI numbers frames in coding order, not in display order."""
    return container.format.name == "avi" and bool(stream.codec_context.has_b_frames)


def missing_end(container: av.container.InputContainer, reached: Fraction) -> str:
    """Describe in a phrase how much is missing of a container that ends at `reached` seconds; empty if it is complete.

    The announced duration is counted from zero. Some containers count it from their start time, but then a complete
    file could be reported as incomplete. A start before zero, as of a transport stream with a 33-bit clock that wraps,
    does count.
    """
    announced = container.duration / av.time_base if container.duration else 0.0
    length = reached - min(container_start(container), Fraction(0))
    if announced - length <= MISSING_SECONDS:
        return ""
    return f"it ends after {float(length):.1f} of {announced:.1f} s"


def unreadable(name: str, error: Exception) -> VideoError:
    """Return a VideoError for a source that FFmpeg cannot open or read."""
    reason = getattr(error, "strerror", None) or first_line(error)
    if name.startswith("/dev/"):
        hint = "close other programs that use it, or run `sudo usermod -aG video $USER` and log in again."
        return VideoError(f"The camera {name} cannot be read ({reason}).", hint)
    if "://" in name:
        if isinstance(error, OSError) and error.errno == errno.EIO:
            try:
                socket.getaddrinfo(urlsplit(name).hostname, None)
            except (OSError, ValueError):  # ValueError for a name that is not valid in the domain name system
                return VideoError(f"The host of {name} is unknown.", "correct the host name, or use its IP address.")
        return VideoError(f"{name} cannot be read ({reason}).", "check that it is on, and its address.")
    if name == STDIN:
        return VideoError(
            f"{name} is not a readable video ({reason}).", "check the output of the command before the pipe."
        )
    hint = OTHERS.get(Path(name).suffix.lower(), "play it with `ffplay`, or convert it with `ffmpeg`.")
    return VideoError(f"{name} is not a readable video ({reason}).", hint)


def comes_later(error: VideoError) -> bool:
    """Return whether a URL that could not be opened may work later, for example a camera that is switched off."""
    cause = error.__cause__
    return isinstance(cause, av.error.HTTPServerError) or (isinstance(cause, OSError) and cause.errno in LATER)


def damaged(name: str, what: str) -> VideoError:
    """Return a VideoError for damage that was found while reading; `what` is a phrase."""
    return VideoError(
        f"{name} is damaged: {what}.",
        "use `lstr extract --allow-damaged` to keep the part before the damage, or repair the file with "
        "`ffmpeg -i FILE -c:v libx264 repaired.mp4`.",
    )


def probe_chunks(path: Path) -> Video:
    """Probe a video. Raises MissingPathError or VideoError, also if it is shorter than one chunk."""
    with PROBE:
        video = probe(path)
    if video.n_chunks == 0:
        raise VideoError(
            f"{path} lasts {video.duration:.2f} s, less than one chunk of {CHUNK} frames at 24 per second.",
            "choose a video of at least a quarter of a second.",
        )
    return video
