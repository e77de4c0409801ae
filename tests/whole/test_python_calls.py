"""What programs do to the jobs: threads, generators that are left, forks, and pickles."""

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


def segments_of(path, options) -> list:
    """Everything that is found."""
    timelines = result_of(detect_sources([path], options)).timelines
    return [timeline["segments"] for timeline in timelines.values()]


def in_a_fork(call) -> int:
    """The exit code of a fork in which the call returns True; it must end in a minute."""
    child = os.fork()
    if not child:
        code = 7
        try:
            code = 0 if call() else 8
        finally:
            os._exit(code)
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the fork waits forever")
    return os.waitstatus_to_exitcode(ended[1])


@pytest.mark.long
def test_a_fork_detects_on_features_and_says_that_it_cannot_compute_them(small_set, options):
    """The threads that a detection of its parent began are not in it: it waited for them until it was killed."""
    alone, video = segments_of(small_set.features, options), small_set.videos / "scene_00.mp4"
    assert in_a_fork(lambda: segments_of(small_set.features, options) == alone) == 0
    segments_of(video, options)

    def refused() -> bool:
        with pytest.raises(ExtractorError) as caught:
            segments_of(video, options)
        return "spawn" in caught.value.hint

    assert in_a_fork(refused) == 0


@pytest.mark.long
def test_a_job_that_is_left_leaves_no_thread(small_set, options):
    """Also where another thread closes it."""
    before = {thread.ident for thread in threading.enumerate()}
    job = detect_sources([small_set.videos / "scene_00.mp4"], options)
    next(event for event in job if isinstance(event, Decision))
    thread = threading.Thread(target=job.close)
    thread.start()
    thread.join()
    assert {thread.ident for thread in threading.enumerate()} <= before


def test_events_and_errors_travel_between_processes(small_set, options):
    """A queue of multiprocessing pickles what goes through it; an error keeps its hint."""
    for event in detect_sources([small_set.features], options):
        assert type(pickle.loads(pickle.dumps(event))) is type(event)
    for error in (ConfigError("wrong.", "do."), VideoError("wrong.", "do.")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.hint) == (type(error), "wrong.", "do.")
