"""Jobs in Python programs: threads, closed generators, forks, and pickles."""

import multiprocessing
import pickle
import threading

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


def run_in_fork(check) -> None:
    """Call `check` in a fork; fail if it raises an error or does not end."""
    child = multiprocessing.get_context("fork").Process(target=check)
    child.start()
    child.join(120)
    child.kill()
    child.join()
    assert child.exitcode == 0


@pytest.mark.long
def test_a_fork_detects_on_features_and_refuses_to_compute_them(small_set, options):
    """A fork lacks the threads that an earlier detection started, and would wait for them."""
    expected, video = detect_segments(small_set.features, options), small_set.videos / "scene_00.mp4"

    def detect_on_features() -> None:
        assert detect_segments(small_set.features, options) == expected

    def detect_on_video() -> None:
        with pytest.raises(ExtractorError):
            detect_segments(video, options)

    run_in_fork(detect_on_features)
    detect_segments(video, options)
    run_in_fork(detect_on_video)


@pytest.mark.long
def test_a_closed_job_leaves_no_thread_even_if_another_thread_closes_it(small_set, options):
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
