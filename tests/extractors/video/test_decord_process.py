"""decord's process: kept, ended, never stuck, never left behind."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from lstr.extractors.errors import VideoError
from lstr.extractors.video import decord_process
from lstr.extractors.video.decord_process import decord_frames
from lstr.extractors.video.file_reader import FrameReader
from lstr.extractors.video.probe import probe
from tests.support.videos import FULL, write_video

FAKE = """
import ctypes, os
class logging:
    INFO = 32
    set_level = staticmethod(lambda level: None)
class VideoReader:
    def __init__(self, path, num_threads): pass
    def __len__(self): return 30
    def next(self): {next}
"""


@pytest.fixture
def video(tmp_path):
    decord_process.close_idle()
    return probe(write_video(tmp_path / "v.mp4", range(0, 600, 20)))


@pytest.fixture
def waiting(video, tmp_path):
    """A video that decord waits for without end: a pipe that is open and empty."""
    os.mkfifo(tmp_path / "pipe.mp4")
    held = os.open(tmp_path / "pipe.mp4", os.O_RDWR)
    yield replace(video, path=tmp_path / "pipe.mp4")
    os.close(held)


def fake_decord(tmp_path, monkeypatch, body: str) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "decord.py").write_text(FAKE.format(next=body))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))


def test_one_process_reads_one_video_after_the_other(video):
    pids = set()
    for _ in range(3):
        assert len(list(decord_frames(video, FULL))) == 30
        pids |= {process.pid for process in decord_process._idle}
    assert len(pids) == 1


def test_two_videos_at_once(video):
    pairs = list(zip(decord_frames(video, FULL), decord_frames(video, 32), strict=True))
    assert [(a.image.shape, b.image.shape) for a, b in pairs] == [((48, 64, 3), (24, 32, 3))] * 30
    assert len(decord_process._idle) == 1


def test_an_unfinished_reading_ends_its_process(video):
    list(decord_frames(video, FULL))
    process = decord_process._idle[0]
    frames = decord_frames(video, FULL)
    next(frames)
    frames.close()
    assert process._process.returncode is not None and not decord_process._idle


def test_a_stuck_decord_is_a_typed_error(waiting):
    with pytest.raises(VideoError, match="makes decord hang") as caught:
        next(decord_frames(waiting, FULL, seconds=1))
    assert "LSTR_DECODER=pyav" in caught.value.hint and not decord_process._idle


def test_a_decord_that_holds_the_interpreter_is_a_typed_error(video, tmp_path, monkeypatch):
    """As `get_batch` does: no thread and no signal handler of that process could run."""
    fake_decord(tmp_path, monkeypatch, "ctypes.PyDLL(None).pause()")
    with pytest.raises(VideoError, match="makes decord hang"):
        next(decord_frames(video, FULL, seconds=1))


def test_a_decord_that_crashes_is_replaced(video, tmp_path, monkeypatch):
    fake_decord(tmp_path, monkeypatch, "os.abort()")
    reader = FrameReader(video)
    assert reader.decoder == "decord"
    images = [frame.image for frame in reader.frames(FULL)]
    assert reader.decoder == "pyav" and len(images) == 30 and np.abs(images[2].astype(int) - 14).max() < 3


@pytest.mark.long
@pytest.mark.parametrize("state", ["stuck", "idle"])
def test_nothing_is_left_behind_by_a_kill(video, waiting, state):
    code = (
        "import sys\n"
        "from dataclasses import replace\n"
        "from lstr.extractors.video import decord_process\n"
        "from lstr.extractors.video.probe import probe\n"
        "decord_process.ALARM = 1.5\n"
        "start = decord_process.DecordProcess.__init__\n"
        "def start_and_print(self):\n"
        "    start(self)\n"
        "    print(self.pid, flush=True)\n"
        "decord_process.DecordProcess.__init__ = start_and_print\n"
        "video = probe(sys.argv[1])\n"
        "list(decord_process.decord_frames(video, 64))\n"
        "print('idle', flush=True)\n"
        "if sys.argv[3] == 'idle': input()\n"
        "next(decord_process.decord_frames(replace(video, path=sys.argv[2]), 64, 2))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(video.path), str(waiting.path), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(parent.stdout.readline())
    assert parent.stdout.readline() == "idle\n"
    time.sleep(0.2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 60
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_process_loads_neither_pyav_nor_torch():
    """It starts in a third of a second, and decord's FFmpeg meets no other one in it."""
    code = (
        "import sys\n"
        "import lstr.extractors.video.decord_process\n"
        "print(*sorted({'av', 'torch', 'mmaction', 'mmcv', 'mmengine'} & sys.modules.keys()))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "\n"
