"""decord in a process of its own, which can be ended; `python -m lstr.extractors.video.decord_process` is that process.

decord decodes ahead, and can hang for ever in a call that no thread can break off; so whoever waits for it ends the
process. It ends with its parent; should a call hold Python's lock, the kernel ends it by an alarm. FFmpeg inside decord
conceals damage and makes a frame all the same; only its log shows that, so the first line that its video decoder logs
ends the reading.
"""

import atexit
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.errors import VideoError
from lstr.extractors.lifeline import end_with_parent, package_environment
from lstr.extractors.video.frames import SourceFrame, shrink, upright

if TYPE_CHECKING:  # the child needs no PyAV
    from lstr.extractors.video.probe import Video

SECONDS = 30.0  # per decord call; opening reads the whole index
TICK = 1.0  # seconds between two looks at the clock: a machine that slept meanwhile has not waited
MEMORY = 4 * 2**30  # bytes that it may map: a stream can declare larger pictures than its container did
ALARM = 10  # times as long until the alarm rings, which cannot tell waiting from sleeping
FRAME, END, FAILED = b"F", b"E", b"X"
LENGTH = struct.Struct(">I")


class DecordError(Exception):
    """decord cannot read this file, or not to be trusted with it."""


class DecordProcess:
    """A child process that reads one video after the other."""

    def __init__(self):
        # a group of its own: Ctrl-C is this process's to hear, which then ends the child
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=package_environment(),
            process_group=0,
            bufsize=0,
        )
        assert self._process.stdin and self._process.stdout  # both are pipes
        self._requests, self._frames = self._process.stdin, self._process.stdout
        self.owner = os.getpid()
        self.pid = self._process.pid

    def read(self, video: "Video", size: tuple[int, int], seconds: float) -> Generator[NDArray[np.uint8], None, None]:
        """Every frame as (H, W, 3) RGB of `size` (width, height).

        Raises DecordError where decord fails, makes other frames than the video has, or its decoder logs anything;
        VideoError when a call takes more than `seconds`.
        """
        request = {
            "path": os.path.abspath(video.path),  # a bare name could be a protocol's, as concat:a|b is
            "codec": video.codec,
            "n_frames": len(video.ticks),
            "shape": upright((video.width, video.height), video.rotation),
            "size": size,
            "alarm": ALARM * seconds,
        }
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            while (kind := self._take(1, seconds)) == FRAME:
                image = self._take(size[0] * size[1] * 3, seconds)
                yield np.frombuffer(image, np.uint8).reshape(size[1], size[0], 3)
            if kind == FAILED:
                (length,) = LENGTH.unpack(self._take(LENGTH.size, seconds))
                raise DecordError(self._take(length, seconds).decode())
        except TimeoutError as error:
            raise VideoError(
                f"{video.path} makes decord hang: it sent nothing for {seconds} s.",
                "read it by PyAV: set LSTR_DECODER=pyav and run it again.",
            ) from error
        except (BrokenPipeError, EOFError) as error:
            raise DecordError(f"decord's process ended with {self._process.wait()}") from error

    def _take(self, n: int, seconds: float) -> bytes:
        """The next n bytes of the process. Raises TimeoutError, or EOFError when it ends before."""
        taken = bytearray()
        while len(taken) < n:
            ticks, tick = 0, min(TICK, seconds)
            while not select.select([self._frames], [], [], tick)[0]:
                ticks += 1
                if ticks * tick >= seconds:
                    raise TimeoutError
            some = os.read(self._frames.fileno(), n - len(taken))
            if not some:
                raise EOFError
            taken += some
        return bytes(taken)

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        with suppress(BrokenPipeError):
            self._requests.close()
        self._frames.close()


def decord_frames(video: "Video", long_side: int, seconds: float = SECONDS) -> Generator[SourceFrame, None, None]:
    """Each frame of a probed file at the working size, at the times of its packets.

    Raises DecordError where decord fails or is not to be trusted, VideoError where a call takes more than `seconds`.
    """
    n = len(video.ticks)
    with decord_process() as process, closing(process.read(video, video.size(long_side), seconds)) as images:
        for number, image in zip(range(n), images, strict=True):
            time = video.time(number)
            end = video.time(number + 1) if number + 1 < n else video.end
            yield SourceFrame(time, end - time, partial(np.asarray, image))


_idle: list[DecordProcess] = []  # at most one, because starting it takes a third of a second


@contextmanager
def decord_process() -> Iterator[DecordProcess]:
    """A process for one video: the idle one, else a new one. Kept when all went well, ended otherwise."""
    process = None
    while _idle and process is None:
        process = _idle.pop()
        if process.owner != os.getpid():  # it is the parent's of this fork
            process = None
    process = process or DecordProcess()
    try:
        yield process
    except BaseException:
        process.close()
        raise
    if _idle:
        process.close()
    else:
        _idle.append(process)


@atexit.register
def close_idle() -> None:
    """End the idle process."""
    while _idle:
        process = _idle.pop()
        if process.owner == os.getpid():
            process.close()


def logged() -> str:
    """What was written to standard error, which `main` has made a file."""
    return os.pread(2, os.fstat(2).st_size, 0).decode(errors="replace")


def serve(request: Mapping, out: BinaryIO) -> None:
    """Read one video with decord and write its frames."""
    import decord

    signal.setitimer(signal.ITIMER_REAL, request["alarm"])
    try:
        reader = decord.VideoReader(request["path"], num_threads=1)
        if len(reader) != request["n_frames"]:
            raise DecordError(f"decord counts {len(reader)} frames, the container {request['n_frames']}")
        for i in range(request["n_frames"]):
            signal.setitimer(signal.ITIMER_REAL, request["alarm"])
            image = reader.next().asnumpy()
            if i == 0 and image.shape != (request["shape"][1], request["shape"][0], 3):
                raise DecordError(f"decord's frames are {image.shape}")
            if f"[{request['codec']} @" in logged():
                raise DecordError("FFmpeg in decord found damage")
            image = shrink(image, tuple(request["size"]))
            signal.setitimer(signal.ITIMER_REAL, 0)
            out.write(FRAME)
            out.write(image.data)
            out.flush()
    except BrokenPipeError:
        raise
    except Exception as error:  # decord raises bare RuntimeErrors and its own types for every kind of trouble
        signal.setitimer(signal.ITIMER_REAL, 0)
        reason = (str(error) or type(error).__name__).encode()
        out.write(FAILED + LENGTH.pack(len(reason)) + reason)
    else:
        out.write(END)
    out.flush()


def main() -> None:
    """Serve requests from standard input until it ends, or the process whose number is the argument."""
    end_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its parent ends it
    out = os.fdopen(os.dup(1), "wb")
    log = tempfile.TemporaryFile()  # noqa: SIM115 (standard error, for as long as the process lives)
    os.dup2(log.fileno(), 2)
    os.dup2(2, 1)

    import decord

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    decord.logging.set_level(decord.logging.INFO)  # concealment is logged as information
    for line in sys.stdin.buffer:
        os.ftruncate(2, 0)
        try:
            serve(json.loads(line), out)
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
