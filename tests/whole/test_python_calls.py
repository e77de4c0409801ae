"""Jobs in Python programs: threads, closed generators, forks, and pickles."""

import os
import pickle
import signal
import threading
import time

import pytest

from lstr.errors import ConfigError, ExtractorError, VideoError
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.model import load_checkpoint
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.progress import result_of


@pytest.fixture(scope="module")
def options(small_set):
    return DetectOptions(load_checkpoint(small_set.checkpoint), networks=NetworkOptions(flow_threads=1))


def detect_segments(path, options) -> list:
    timelines = result_of(detect_sources([path], options)).timelines
    return [timeline["segments"] for timeline in timelines.values()]


def run_in_fork(call) -> int:
    """Return 0 if the call returns True in a fork, which must end in a minute."""
    child = os.fork()
    if not child:
        code = 7
        try:
            code = 0 if call() else 8
        finally:
            os._exit(code)
    deadline = time.monotonic() + 60
    while not (result := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    if not result[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the fork does not end")
    return os.waitstatus_to_exitcode(result[1])


@pytest.mark.long
def test_a_fork_detects_on_features_and_refuses_to_compute_them(small_set, options):
    """A fork lacks the threads that an earlier detection started, and would wait for them."""
    expected, video = detect_segments(small_set.features, options), small_set.videos / "scene_00.mp4"
    assert run_in_fork(lambda: detect_segments(small_set.features, options) == expected) == 0
    detect_segments(video, options)

    def refused() -> bool:
        with pytest.raises(ExtractorError) as caught:
            detect_segments(video, options)
        return "spawn" in caught.value.hint

    assert run_in_fork(refused) == 0


@pytest.mark.long
def test_a_closed_job_leaves_no_thread(small_set, options):
    """Also if another thread closes it."""
    before = {thread.ident for thread in threading.enumerate()}
    job = detect_sources([small_set.videos / "scene_00.mp4"], options)
    next(event for event in job if isinstance(event, Decision))
    thread = threading.Thread(target=job.close)
    thread.start()
    thread.join()
    assert {thread.ident for thread in threading.enumerate()} <= before


def test_events_and_errors_can_be_pickled(small_set, options):
    for event in detect_sources([small_set.features], options):
        assert type(pickle.loads(pickle.dumps(event))) is type(event)
    for error in (ConfigError("wrong.", "do."), VideoError("wrong.", "do.")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.hint) == (type(error), "wrong.", "do.")
