"""What programs do to the jobs: threads, generators that are left, forks, interrupts in a loop, and pickles."""

import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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


def segments_of(small_set, options) -> list:
    """Everything that is found."""
    timelines = result_of(detect_sources([small_set.features], options)).timelines
    return [timeline["segments"] for timeline in timelines.values()]


def test_threads_share_a_model(small_set, options):
    alone = segments_of(small_set, options)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: segments_of(small_set, options), range(4))) == [alone] * 4


def test_a_fork_goes_on(small_set, options):
    alone, child = segments_of(small_set, options), os.fork()
    if not child:
        found = None
        try:
            found = segments_of(small_set, options)
        finally:
            os._exit(0 if found == alone else 7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.long
def test_a_fork_says_that_it_cannot_compute_features(small_set, options):
    """The threads that a detection of its parent began are not in it: it waited for them until it was killed."""
    video = small_set.videos / "scene_00.mp4"
    result_of(detect_sources([video], options))
    child = os.fork()
    if not child:
        code = 7
        try:
            result_of(detect_sources([video], options))
        except ExtractorError as error:
            code = 0 if "was forked" in str(error) and "spawn" in error.hint else 8
        finally:
            os._exit(code)
    for _ in range(300):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.2)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the fork waits forever")
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.long
@pytest.mark.parametrize("how", ["close", "another thread"])
def test_a_job_that_is_left_leaves_no_thread(small_set, options, how):
    before = {thread.ident for thread in threading.enumerate()}
    job = detect_sources([small_set.videos / "scene_00.mp4"], options)
    next(event for event in job if isinstance(event, Decision))
    if how == "close":
        job.close()
    else:
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
