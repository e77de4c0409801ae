"""The search for proposals, in another process: how it starts, ends and reports failures."""

import shutil
import time

import pytest

from lstr.errors import CheckpointError
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.search import HASH_DIGITS, Proposer, check_model
from lstr.pipelines.labelling.values import About
from tests.support.labelling import put
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long


@pytest.fixture
def proposer(small_set, tmp_path):
    videos = {path.stem: path for path in sorted(small_set.videos.iterdir())}
    (tmp_path / "bad.mp4").write_bytes(b"no video at all")
    with Project(tmp_path / "labels.json") as project:
        with Proposer(project, videos | {"bad": tmp_path / "bad.mp4"}) as opened:
            yield opened
        assert not opened.process or opened.process.process.poll() is not None, "its process has ended"


def begin(proposer, model):
    """Start a search; return its process."""
    before = proposer.process
    proposer.begin(model)
    wait_until(lambda: proposer.process is not before, 300)
    return proposer.process.process


def wait(proposer):
    wait_until(lambda: not proposer.status.is_running, 300)
    return proposer.status


def test_a_new_model_searches_videos_that_it_has_not_searched(proposer, small_set, tmp_path):
    first, *complete = list(proposer.videos)[:-1]
    for video in complete:
        put(proposer.project, About(complete=True), video)
    shutil.copy(small_set.checkpoint, tmp_path / "first.pt")
    process = begin(proposer, tmp_path / "first.pt")
    proposer.begin(small_set.checkpoint)
    status = wait(proposer)
    assert process.poll() is not None and (status.model, status.trouble) == (small_set.checkpoint.name, "")
    assert (status.done, status.total) == (2, 2), "complete videos are not searched"
    assert [video for video, _ in status.failed] == ["bad"]
    (search,) = proposer.project.state.searches.values()
    assert len(search.model) == HASH_DIGITS and list(proposer.project.state.proposals) == [first]
    proposer.begin(small_set.checkpoint)
    wait_until(lambda: proposer.status.total == 1)  # only the unreadable video


def test_a_killed_process_is_reported_and_closing_ends_a_search_at_once(proposer, small_set):
    begin(proposer, small_set.checkpoint).kill()
    assert "SIGKILL" in wait(proposer).trouble
    process, began = begin(proposer, small_set.checkpoint), time.monotonic()
    proposer.__exit__()
    assert process.poll() is not None and time.monotonic() - began < 20
    assert not proposer.status.is_running and proposer.status.trouble == ""


def test_an_invalid_model_is_reported(proposer, tmp_path, small_set):
    with pytest.raises(CheckpointError):
        check_model(tmp_path / "nowhere.lstr")
    shutil.copy(small_set.labels, tmp_path / "bad.pt")
    check_model(tmp_path / "bad.pt")
    proposer.begin(tmp_path / "bad.pt")
    assert "bad.pt" in wait(proposer).trouble
