"""A model that searches for proposals in a process of its own: it ends when it is told to, and reports failures."""

import shutil
import time

import pytest

from lstr.errors import CheckpointError
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.search import HASH_DIGITS, Proposer, check_model
from lstr.pipelines.labelling.values import About
from tests.support.labelling import put
from tests.support.patience import until

pytestmark = pytest.mark.long


@pytest.fixture
def proposer(small_set, tmp_path):
    videos = {path.stem: path for path in sorted(small_set.videos.iterdir())}
    (tmp_path / "bad.mp4").write_bytes(b"no video at all")
    with Project(tmp_path / "labels.json") as project:
        with Proposer(project, videos | {"bad": tmp_path / "bad.mp4"}) as opened:
            yield opened
        assert not opened.process or opened.process.process.poll() is not None, "its process ends with it"


def process_of(proposer):
    until(lambda: proposer.process is not None, 300)
    return proposer.process.process


def test_a_model_replaces_another_and_searches_what_it_has_not_searched(proposer, small_set, tmp_path):
    first, *others = list(proposer.videos)[:-1]
    for video in others:
        put(proposer.project, About(complete=True), video)
    shutil.copy(small_set.checkpoint, tmp_path / "first.pt")
    proposer.begin(tmp_path / "first.pt")
    process = process_of(proposer)
    proposer.begin(small_set.checkpoint)
    until(lambda: not proposer.status.is_running, 300)
    status = proposer.status
    assert process.poll() is not None and (status.model, status.trouble) == (small_set.checkpoint.name, "")
    assert (status.done, status.total) == (2, 2), "complete videos are not searched"
    assert [video for video, _ in status.failed] == ["bad"]
    (search,) = proposer.project.state.searches.values()
    assert len(search.model) == HASH_DIGITS and list(proposer.project.state.proposals) == [first]
    proposer.begin(small_set.checkpoint)
    until(lambda: proposer.status.total == 1)  # only what could not be read


def test_it_ends_at_once_and_a_killed_process_is_reported(proposer, small_set):
    proposer.begin(small_set.checkpoint)
    process_of(proposer).kill()
    until(lambda: not proposer.status.is_running, 300)
    assert "SIGKILL" in proposer.status.trouble
    killed = proposer.process
    proposer.begin(small_set.checkpoint)
    until(lambda: proposer.process is not killed, 300)
    process, began = proposer.process.process, time.monotonic()
    proposer.__exit__()
    assert process.poll() is not None and time.monotonic() - began < 20
    assert not proposer.status.is_running and proposer.status.trouble == ""


def test_what_is_not_a_model_is_reported(proposer, tmp_path, small_set):
    with pytest.raises(CheckpointError):
        check_model(tmp_path / "nowhere.lstr")
    shutil.copy(small_set.labels, tmp_path / "bad.pt")
    check_model(tmp_path / "bad.pt")
    proposer.begin(tmp_path / "bad.pt")
    until(lambda: not proposer.status.is_running, 300)
    assert "bad.pt" in proposer.status.trouble
