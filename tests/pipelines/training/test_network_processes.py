"""Networks that are trained at once: the same bits as one after the other, and what becomes of one that dies."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr.errors import LstrError
from lstr.extractors.networks.weights_file import read_state_dict
from lstr.extractors.stages import torch_threads
from lstr.pipelines.child_process import ChildProcess
from lstr.pipelines.progress import result_of
from lstr.pipelines.training import networks
from lstr.pipelines.training.networks import MIN_IMAGES, best_at_once, threads_of, train_networks
from lstr.pipelines.training.run_folder import Step
from tests.support.planted import planted_training


@pytest.fixture
def job(tmp_path):
    """A network of all videos and two of folds, of chunks in files, which other processes can read."""
    planted = planted_training(("flow",), 3, 2, n_validation=0, epochs=3, draws=8)
    videos = {}
    for video_id, cached in planted.videos.items():
        path = tmp_path / f"{video_id}.npy"
        np.save(path, cached.chunks)
        videos[video_id] = replace(cached, path=path)
    return replace(planted, videos=videos)


@pytest.fixture
def started(monkeypatch) -> list[ChildProcess]:
    """Every process that is started, as it starts."""
    made = []
    start = ChildProcess.__init__
    monkeypatch.setattr(ChildProcess, "__init__", lambda self, *given: (made.append(self), start(self, *given))[1])
    return made


def test_how_many_are_trained_at_once(monkeypatch):
    """As many as there are cores, in even rounds; one where each learns for moments, or on a GPU."""
    cases = {(2, 4): 2, (3, 4): 2, (4, 4): 4, (16, 4): 4, (8, 7): 4, (8, 6): 3, (8, 1): 1, (1, 4): 1, (4, 3): 3}
    for (cores, n_networks), wanted in cases.items():
        monkeypatch.setattr(networks, "default_workers", lambda cores=cores: cores)
        assert best_at_once(n_networks, MIN_IMAGES, "cpu") == wanted, (cores, n_networks)
        assert best_at_once(n_networks, MIN_IMAGES - 1, "cpu") == best_at_once(n_networks, 10**6, "cuda") == 1
    monkeypatch.setattr(networks, "default_workers", lambda: 7)
    assert [threads_of(n) for n in (1, 2, 3, 8)] == [7, 3, 2, 1]


@pytest.mark.slow
def test_networks_at_once_are_those_of_one_after_the_other(job, started, tmp_path, monkeypatch):
    """To the bit, also where one of them dies, which ends all in one sentence, and the training goes on."""
    monkeypatch.setattr(networks, "default_workers", lambda: 2)  # a thread for each
    folder = tmp_path / "at once"
    with pytest.raises(LstrError, match="flow without fold 1 .*SIGKILL") as caught:
        for event in train_networks(job, folder, at_once=2):
            if isinstance(event, Step) and event.stage == "flow without fold 1":
                started[1].process.kill()
    assert caught.value.hint
    assert len(started) == 2 and all(process.process.poll() is not None for process in started)
    with torch_threads(1):
        together = result_of(train_networks(job, folder, resume=True, at_once=2))
        apart = result_of(train_networks(job, tmp_path / "apart"))
    assert all(process.process.poll() is not None for process in started)
    for fold in (None, 1, 2):
        a, b = (read_state_dict(of.file("flow", fold)) for of in (together, apart))
        assert all(torch.equal(a[name], b[name]) for name in a)
    logs = []
    for of in (together, apart):
        lines = [json.loads(line) for line in (of.path / "metrics.jsonl").read_text().splitlines()]
        logs.append(sorted((line["stage"], line["epoch"], line["loss"]) for line in lines))
    assert logs[0] == logs[1] and len(logs[0]) == 9
