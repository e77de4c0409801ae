"""Any video as 24 FPS RGB frames in chunks of six.

Which reader, by measurement on the odd videos of `tests/extractors/video/test_odd_videos.py`: decord reads a file when

- all its decoded frames fit in AHEAD_BYTES: decord decodes ahead without bound while the consumer computes, and
  reopening it reads the whole index again. PyAV holds a few frames, and is faster (1,500 frames of 1080p: 1.9 s
  against 5.5 s);
- its samples have 8 bits and its sides are even and above 16 pixels: at 10 bits decord differs by 3.6 levels, at odd
  sizes by half a level, and frames up to 16 pixels wide come with too many channels;
- it is not AV1, which decord cannot decode, nor MPEG-4 part 2, which it decodes a level off;
- it begins as an MP4, QuickTime, Matroska, AVI, FLV or MPEG-TS file does, so that the old FFmpeg inside decord, which
  has no list of what it may open, takes it for nothing that names other files;
- it is installed, which it is on Linux on x86-64 alone;
- its packets have increasing times and none is damaged: times are read from the packets by PyAV, for decord
  returns them as floats, and a float cannot decide a slot whose border it sits on;
- no packet is shown before its first picture that decodes: of a file that was cut out of another one decord shows the
  pictures at the times of the first packets, which give none, and at the end copies of the last one.

PyAV reads every other file, and goes on with one at which decord fails: where decord raises, returns a frame of another
shape, counts other frames than the file has packets, or where the video decoder inside it logs anything, which is the
only sign of a frame it made up (of 66 files with bytes overwritten decord alone passed 14 as whole that PyAV knows
to be damaged; with its log watched, none). Everything else was equal to the bit, times included. decord runs in a
process of its own; waiting longer than `decord_process.SECONDS` for it is a VideoError. Sources without a file are
read by `PyAVReader`.

`nvdec` is PyAV with a GPU's decoder, by wish alone, until somebody has measured what it gains. What that decoder leaves
to the processor, the processor decodes.
"""

import os
from collections.abc import Generator, Iterator
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import av
from av.codec import Codec
from av.codec.hwaccel import HWAccel, hwdevices_available

from lstr.extractors.errors import VideoError
from lstr.extractors.stages import PROBE
from lstr.extractors.video.containers import PLAIN, Opening
from lstr.extractors.video.decord_process import DecordError, decord_frames
from lstr.extractors.video.frames import CHUNK, Chunk, Reader, SourceFrame, chunks_of
from lstr.extractors.video.probe import Video, damaged, probe
from lstr.extractors.video.pyav_reader import PyAVReader

AHEAD_BYTES = 256 * 2**20  # of decoded frames, all of which decord may hold at once
SMALLEST = 16  # pixels
DECODERS = ("decord", "pyav", "nvdec")
NVDEC = Opening(hardware="cuda")
BEGINNINGS = (b"\x1aE\xdf\xa3", b"RIFF", b"FLV")  # of Matroska, AVI and FLV
FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free")  # of MP4 and QuickTime, after four bytes of length
PROBED = 2**20  # bytes by which FFmpeg recognises what a file is


class FrameReader:
    """The frames of a probed file, once, by the reader that suits it; `decoder` names it, also after a change.

    With `allow_damaged` a damaged file ends where the damage begins. `decoder` (or $LSTR_DECODER) overrules the rule.
    """

    def __init__(self, video: Video, allow_damaged: bool = False, decoder: str | None = None):
        self.video = video
        self.allow_damaged = allow_damaged
        forced = decoder or os.environ.get("LSTR_DECODER")
        if forced and forced not in DECODERS:
            raise VideoError(f"There is no decoder {forced!r}.", f"set LSTR_DECODER to {' or '.join(DECODERS)}.")
        if forced == "decord" and not has_decord():
            raise VideoError("decord is not installed.", "unset LSTR_DECODER: PyAV reads every video.")
        if forced == "nvdec" and not has_nvdec():
            raise VideoError("There is no NVDEC that PyAV can use here.", "unset LSTR_DECODER: PyAV reads every video.")
        self.decoder = "pyav" if video.damage else forced or ("decord" if suits_decord(video) else "pyav")
        self.decoded = 0
        self.decode_errors = 0
        self.end = Fraction(0)  # seconds from the first frame's start to the end of the last one so far
        self.clock = video.clock

    def frames(self, long_side: int) -> Generator[SourceFrame, None, None]:
        """Each frame at the working size, with its time.

        Raises VideoError where the file is damaged, or where decord hangs.
        """
        video = self.video
        if video.damage and not self.allow_damaged:
            raise damaged(str(video.path), video.damage)
        if self.decoder == "decord":
            try:
                for frame in decord_frames(video, long_side):
                    yield self._counted(frame)
                return
            except DecordError:
                self.decoder = "pyav"
        damage = "stop" if self.allow_damaged else "raise"
        reader = PyAVReader(video.path, damage, opening=NVDEC if self.decoder == "nvdec" else PLAIN)
        for frame in reader.frames(long_side):
            self.decode_errors, self.clock = reader.decode_errors, reader.clock
            if reader.decoded > self.decoded:  # those before came from decord
                yield self._counted(frame)
        self.decode_errors = reader.decode_errors

    def _counted(self, frame: SourceFrame) -> SourceFrame:
        self.decoded += 1
        self.end = frame.time + frame.duration
        return frame


def has_decord() -> bool:
    """Whether decord is installed; it has wheels for Linux on x86-64 alone."""
    return find_spec("decord") is not None


@cache
def has_nvdec() -> bool:
    """Whether there is a GPU whose decoder PyAV can use."""
    if "cuda" not in hwdevices_available():
        return False
    try:
        HWAccel("cuda").create(Codec("h264", "r"))
    except (av.error.FFmpegError, NotImplementedError):
        return False
    return True


def suits_decord(video: Video) -> bool:
    """Whether decord is to be trusted with a file; the rule is in this module's docstring."""
    sides = (video.width, video.height)
    return (
        has_decord()
        and video.width * video.height * 3 * len(video.ticks) <= AHEAD_BYTES
        and video.bits == 8
        and all(side > SMALLEST and side % 2 == 0 for side in sides)
        and video.codec not in ("av1", "mpeg4")
        and video.clock == "container"
        and bool((video.ticks[1:] > video.ticks[:-1]).all())
        and not video.damage
        and not video.left_out
        and _is_plain(video.path)
    )


def _is_plain(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(PROBED)
    # MPEG-TS is recognised by its packets, less surely than a session description (SDP) by a line
    is_ts = head.startswith(b"G") and b"c=IN IP" not in head
    return head.startswith(BEGINNINGS) or head[4:8] in FIRST_BOXES or is_ts


def read_chunks(reader: Reader, long_side: int) -> Iterator[Chunk]:
    """A reader's chunks in order, each as soon as a later frame closes it; the short tail is dropped.

    Raises what the reader raises.
    """
    return chunks_of(reader.frames(long_side))


def probe_chunks(path: Path) -> Video:
    """A video's facts. Raises MissingPathError or VideoError, also when it is shorter than one chunk."""
    with PROBE:
        video = probe(path)
    if video.n_chunks == 0:
        raise VideoError(
            f"{path} lasts {video.duration:.2f} s, less than one chunk of {CHUNK} frames at 24 per second.",
            "choose a video of at least a quarter of a second.",
        )
    return video


def decoder_beside(device: str) -> str | None:
    """The decoder to use beside networks on a device, None for the one by the rule.

    Beside a GPU it is PyAV: decord's pictures come through a pipe, about 300 a second, and 480 are 20 times real time.
    """
    return "pyav" if device != "cpu" and "LSTR_DECODER" not in os.environ else None


def open_chunks(
    path: Path, long_side: int, allow_damaged: bool = False, decoder: str | None = None
) -> tuple[Video, FrameReader, Iterator[Chunk]]:
    """A video's facts, its reader, and its chunks; of a damaged one those before the damage, where that is allowed.

    `decoder` as for FrameReader. Raises as `probe_chunks`.
    """
    video = probe_chunks(path)
    with PROBE:
        reader = FrameReader(video, allow_damaged, decoder)
    return video, reader, read_chunks(reader, long_side)
