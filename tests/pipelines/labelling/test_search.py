"""A model that searches for proposals in a process of its own: it ends when it is told to, and reports failures."""

import shutil
import time

import pytest

from lstr.errors import CheckpointError
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.search import HASH_DIGITS, Proposer, check_model
from lstr.pipelines.labelling.values import About
from tests.support.labelling import put
from tests.support.training_page import until

pytestmark = pytest.mark.long


@pytest.fixture
def proposer(small_set, tmp_path):
    videos = {path.stem: path for path in sorted(small_set.videos.iterdir())}
    with Project(tmp_path / "labels.json") as project:
        with Proposer(project, videos) as opened:
            yield opened
        assert not opened.process or opened.process.process.poll() is not None, "its process ends with it"


def process_of(proposer):
    until(lambda: proposer.process is not None, "the process")
    return proposer.process.process


def test_it_ends_at_once(proposer, small_set):
    proposer.begin(small_set.checkpoint)
    process, began = process_of(proposer), time.monotonic()
    proposer.__exit__()
    assert process.poll() is not None and time.monotonic() - began < 20
    assert not proposer.status.is_running and proposer.status.trouble == ""


@pytest.mark.slow
def test_a_model_replaces_another(proposer, small_set, tmp_path):
    import torch

    second = tmp_path / "second.pt"
    content = torch.load(small_set.checkpoint, weights_only=True)
    torch.save({**content, "extra": content["extra"].replace("{", '{"more": 1, ', 1)}, second)
    for video in list(proposer.videos)[1:]:
        put(proposer.project, About(complete=True), video)
    proposer.begin(small_set.checkpoint)
    first = process_of(proposer)
    proposer.begin(second)
    until(lambda: not proposer.status.is_running, "the end of the search")
    status = proposer.status
    assert first.poll() is not None and status.model == "second.pt"
    assert (status.done, status.total, status.trouble) == (1, 1, ""), "complete videos are not searched"
    (search,) = proposer.project.state.searches.values()
    assert len(search.model) == HASH_DIGITS and list(proposer.project.state.proposals) == list(proposer.videos)[:1]


def test_a_killed_process_is_reported(proposer, small_set):
    proposer.begin(small_set.checkpoint)
    process_of(proposer).kill()
    until(lambda: not proposer.status.is_running, "the end of the search")
    assert "signal SIGKILL" in proposer.status.trouble


def test_what_is_not_a_model_is_reported(proposer, tmp_path, small_set):
    with pytest.raises(CheckpointError, match="Model file not found"):
        check_model(tmp_path / "nowhere.lstr")
    shutil.copy(small_set.labels, tmp_path / "bad.pt")
    check_model(tmp_path / "bad.pt")
    proposer.begin(tmp_path / "bad.pt")
    until(lambda: not proposer.status.is_running, "the end of the search")
    assert "bad.pt" in proposer.status.trouble and "[[" not in proposer.status.trouble
