"""A model that looks for proposals in a process of its own: it ends when it is told to, and tells what goes wrong."""

import shutil
import time

import pytest
import torch

from lstr.errors import CheckpointError
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposer import HASH_DIGITS, Proposer, check_model
from lstr.pipelines.labelling.values import About
from tests.support.labelling import put

pytestmark = pytest.mark.long


def patiently(condition) -> None:
    for _ in range(2400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


@pytest.fixture
def proposer(small_set, tmp_path):
    videos = {path.stem: path for path in sorted(small_set.videos.iterdir())}
    with Project(tmp_path / "labels.json") as project, Proposer(project, videos) as opened:
        yield opened


def process_of(proposer):
    patiently(lambda: proposer.process is not None)
    return proposer.process


def test_it_ends_at_once(proposer, small_set):
    proposer.begin(small_set.checkpoint)
    process = process_of(proposer)
    began = time.monotonic()
    proposer.close()
    assert process.poll() is not None and time.monotonic() - began < 20 and not proposer.searched().is_running
    assert proposer.searched().trouble == ""


@pytest.mark.slow
def test_a_model_takes_the_place_of_another(proposer, small_set, tmp_path):
    second = tmp_path / "second.pt"
    content = torch.load(small_set.checkpoint, weights_only=True)
    torch.save({**content, "extra": content["extra"].replace("{", '{"more": 1, ', 1)}, second)
    for video in list(proposer.videos)[1:]:
        put(proposer.project, About(complete=True), video)
    proposer.begin(small_set.checkpoint)
    first = process_of(proposer)
    proposer.begin(second)
    proposer.settle()
    assert first.poll() is not None and proposer.searched().model == "second.pt"
    searched = proposer.searched()
    assert (searched.done, searched.total, searched.trouble) == (1, 1, ""), "complete videos are not looked through"
    (search,) = proposer.project.state.searches.values()
    assert len(search.model) == HASH_DIGITS and list(proposer.project.state.proposals) == list(proposer.videos)[:1]


def test_a_process_that_is_killed_is_told_of(proposer, small_set):
    proposer.begin(small_set.checkpoint)
    process_of(proposer).kill()
    proposer.settle()
    assert "signal SIGKILL" in proposer.searched().trouble and not proposer.searched().is_running


def test_what_is_no_model_is_told_of(proposer, tmp_path, small_set):
    with pytest.raises(CheckpointError, match="There is no model"):
        check_model(tmp_path / "nowhere.lstr")
    shutil.copy(small_set.labels, tmp_path / "bad.pt")
    check_model(tmp_path / "bad.pt")
    proposer.begin(tmp_path / "bad.pt")
    proposer.settle()
    assert "bad.pt" in proposer.searched().trouble and "[[" not in proposer.searched().trouble
