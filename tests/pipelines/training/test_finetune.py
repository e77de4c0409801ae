"""The networks learn what is planted, from any first weights; a stopped run resumes to the bit."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr.errors import CacheError, CheckpointError, LstrError, WeightsError
from lstr.extractors.networks.weights_file import read_card, read_state_dict
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.presets import PRESETS, StreamPreset
from lstr.extractors.stages import torch_threads
from lstr.pipelines.child_process import ChildProcess
from lstr.pipelines.progress import Progress, result_of
from lstr.pipelines.training import networks
from lstr.pipelines.training.network_config import FinetuneConfig
from lstr.pipelines.training.network_run import TimeLimit
from lstr.pipelines.training.networks import MIN_IMAGES, best_at_once, threads_of, train_networks
from lstr.pipelines.training.recogniser import Initial, initial_weights, recogniser
from lstr.pipelines.training.run_folder import RunFolder, Step
from lstr.pipelines.training.training_videos import check_blind
from tests.support.backbones import build_backbone
from tests.support.planted import CLASSES, planted, planted_training

MEASURED = ("rate", "waiting", "memory_mb")


def train(job, folder, resume=False, tell=lambda event: None, device="cpu"):
    return result_of(train_networks(job, folder, device, resume), tell)


def stop_at_step(event):
    if isinstance(event, Step):
        raise KeyboardInterrupt


def log(folder) -> list[dict]:
    """The lines of metrics.jsonl without what a clock measured."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in MEASURED} for line in lines]


@pytest.mark.long
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("stream", ["flow", pytest.param("rgb", marks=pytest.mark.slow)])
def test_a_planted_pattern_is_learnt(stream, device, tmp_path):
    """From nothing, in sixteen steps, and told in a video that it was not trained on."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    job = planted_training((stream,), epochs=4, draws=32, batch_size=8, dropout=0)
    weights = train(job, tmp_path / "weights", device=device)
    lines = log(weights.path)
    known = weights.about["metrics"][stream]["all"]
    told = [(line["loss"], line.get("evaluation", {}).get("mAP")) for line in lines]
    assert told[-1][0] < 0.7 * told[0][0], told
    assert known["mAP"] > 0.6 and known["mAP"] == max(score or 0 for _, score in told), told  # by chance about 0.25
    card = read_card(weights.file(stream))
    assert card.mAP == known["mAP"] and card.classes == CLASSES and len(card.seen) == 4
    assert not (weights.path / "training").exists()
    state = read_state_dict(weights.file(stream))
    means = [tensor for name, tensor in state.items() if name.endswith("running_mean")]
    assert len(means) > 50 and all(mean.abs().sum() > 0 for mean in means), "random weights learn all statistics"


def test_time_limit_ends_training_after_one_epoch(tmp_path):
    job = replace(planted_training(("flow",), epochs=50, draws=16), seconds=1e-3)
    (line,) = log(train(job, tmp_path / "weights").path)
    highest = job.networks.configs["flow"].lr
    assert line["epoch"] == 1 and 0 < line["lr"] < highest / 4, "the learning rate falls within the epoch"
    limit = TimeLimit(100, later=20, planned=50)
    assert [limit.spent(25, share) for share in (0.05, 0.5, 0.6, 0.25)] == [25 / 80] * 3 + [25 / 60], "half the speed"


@pytest.mark.long
def test_a_stopped_run_resumes_to_the_bit(tmp_path, capfd, monkeypatch):
    """With every setting; stopped before an epoch is saved, within one, and between networks."""
    settings = dict(samples="chunks", balanced=0.5, head_lr=1e-2, warmup_steps=2, contrast=0.3, brightness=20)
    settings |= dict(crop_range=1.15, zoom=1.3, mixup=0.4)
    job = planted_training(("flow",), 3, 2, epochs=2, draws=8, **settings)  # two steps an epoch

    def tell(event):
        if isinstance(event, Step):
            print(f"told {event.stage}: {event.epoch}")

    whole = train(job, tmp_path / "whole", tell=tell)
    out, _ = capfd.readouterr()
    stages = ("flow", "flow without fold 1", "flow without fold 2")
    assert out.splitlines() == [f"told {stage}: {epoch}" for stage in stages for epoch in (1, 2)], "and nothing else"

    stops = {("epoch", "flow", 1), ("step", "flow without fold 1", 3), ("epoch", "flow without fold 2", 2)}

    def maybe_stop(*event):
        if event in stops:
            stops.remove(event)
            raise KeyboardInterrupt

    log_step = RunFolder.log

    def log_and_stop(self, step):  # before the state of the epoch is saved
        log_step(self, step)
        maybe_stop("epoch", self.stage, step.epoch)

    def stop_within(event):
        if isinstance(event, Progress):
            maybe_stop("step", event.what, event.done)

    monkeypatch.setattr(RunFolder, "log", log_and_stop)
    for attempt in range(4):
        try:
            parts = train(job, tmp_path / "parts", attempt > 0, stop_within)
        except KeyboardInterrupt:
            torch.rand(7)  # whatever else the process did meanwhile
    assert not stops
    for fold in (None, 1, 2):
        a, b = (read_state_dict(weights.file("flow", fold)) for weights in (whole, parts))
        assert all(torch.equal(a[name], b[name]) for name in a)
        blind = {i for i, of in job.folds.items() if fold and of == fold}
        assert set(read_card(parts.file("flow", fold)).seen) == set(job.videos) - blind
    assert log(whole.path) == log(parts.path)
    one, other = ({pair: m["mAP"] for pair, m in of.about["metrics"]["flow"].items()} for of in (whole, parts))
    assert one == other and len(open_weights(parts.path).recipe.flow.folds) == 2


@pytest.mark.long
def test_a_resnet_keeps_the_weights_it_begins_with(tmp_path):
    """Nothing initialises a ResNet anew before the first step; and partial batch norm is on."""
    import torchvision

    torch.manual_seed(1)
    state = torchvision.models.resnet50(weights=None).state_dict()
    for name in state:
        if name.endswith("running_mean"):
            state[name] = torch.randn_like(state[name])
    torch.save(state, tmp_path / "resnet50.pth")
    initial = {"rgb": Initial(tmp_path / "resnet50.pth", "1" * 64, False, {"old": "0" * 64})}
    job = planted_training(("rgb",), 2, initial=initial, n_validation=0, epochs=1, lr=1e-12)  # next to no learning
    after = read_state_dict(train(job, tmp_path / "weights").file("rgb"))
    assert job.networks.configs["rgb"].partial_bn
    torch.testing.assert_close(after["backbone.layer3.2.conv2.conv.weight"], state["layer3.2.conv2.weight"])
    assert torch.equal(after["backbone.layer3.2.conv2.bn.running_mean"], state["layer3.2.bn2.running_mean"])
    assert torch.equal(after["backbone.layer1.0.conv1.bn.running_mean"], state["layer1.0.bn1.running_mean"])
    assert not torch.equal(after["backbone.conv1.bn.running_mean"], state["bn1.running_mean"])
    assert set(read_card(tmp_path / "weights" / "rgb.pth").seen) == {"old", "v0", "v1"}


def test_rgb_weights_begin_a_flow_network(tmp_path):
    """Kernels of the first layer are averaged over the colours and repeated; all others are as they were."""
    state = {f"backbone.{name}": tensor for name, tensor in build_backbone("resnet50", 3).state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "rgb.pth")
    initial = Initial(tmp_path / "rgb.pth", "1" * 64, crossed=True)
    model = recogniser("flow", StreamPreset("resnet50"), 3, FinetuneConfig(), initial)
    first, now = state["backbone.conv1.conv.weight"], model.state_dict()
    assert now["backbone.conv1.conv.weight"].shape == (64, 10, 7, 7)
    for plane in range(10):
        torch.testing.assert_close(now["backbone.conv1.conv.weight"][:, plane], first.mean(1))
    assert torch.equal(now["backbone.layer4.2.conv3.conv.weight"], state["backbone.layer4.2.conv3.conv.weight"])
    found = initial_weights(PRESETS["fast"], str(tmp_path / "rgb.pth"), {})
    assert found["rgb"].path and found["flow"].path is None, "a file of another network fits one stream alone"
    found = initial_weights(PRESETS["activitynet"], str(tmp_path / "rgb.pth"), {})
    assert not found["rgb"].crossed and found["flow"].crossed


def test_a_loss_that_is_not_finite_keeps_the_last_good_epoch(tmp_path):
    job = planted_training(("flow",), 2, n_validation=0, epochs=8, lr=1e25, optimiser="sgd")
    with pytest.raises(LstrError, match="flow.pth") as failed:
        train(job, tmp_path / "weights")
    state = tmp_path / "weights" / "training" / "flow.pth"
    assert f"--init {state}" in failed.value.hint and read_card(state).seen.keys() == {"v0", "v1"}
    assert initial_weights(job.networks.preset, str(state), {})["flow"].seen.keys() == {"v0", "v1"}


def test_what_changed_since_is_named(tmp_path):
    job = planted_training(("flow",), epochs=2)
    with pytest.raises(KeyboardInterrupt):
        train(job, tmp_path / "weights", tell=stop_at_step)
    videos = dict(job.videos)
    videos["v1"] = replace(videos["v1"], record=videos["v1"].record | {"sha256": "0" * 64})
    others = {
        r"flow\.lr .* 0\.02": planted_training(("flow",), epochs=2, lr=0.02),
        r"videos\.v1\.sha256": replace(job, videos=videos),
        r"videos\.v4": planted_training(("flow",), 4, epochs=2),
        "folds .* 2": planted_training(("flow",), 3, 2, epochs=2),
        r"streams\.rgb": planted_training(("rgb", "flow"), epochs=2),
    }
    for value, other in others.items():
        with pytest.raises(CheckpointError, match=value):
            train(other, tmp_path / "weights", resume=True)
    with pytest.raises(CheckpointError, match="weights"):
        train(job, tmp_path / "weights")


def test_folds_cannot_be_blind_to_what_the_first_weights_have_seen():
    hashes = {i: video.record["sha256"] for i, video in planted(3)[1].items()}
    for seen in ({"v1": "0" * 64}, {"other": hashes["v1"]}):
        with pytest.raises(WeightsError, match="1 .*'v1'"):
            check_blind({"flow": Initial(seen=seen)}, hashes)


def test_a_damaged_chunk_ends_the_run(tmp_path):
    job = planted_training(("flow",), 2, epochs=1)
    video = job.videos["v0"]
    job.videos["v0"] = replace(video, record=video.record | {"crc32": [0] * len(video)})
    with pytest.raises(CacheError, match="v0.npy") as failed:
        train(job, tmp_path / "weights")
    assert "--resume" in failed.value.hint


@pytest.fixture
def files_job(tmp_path):
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
def test_networks_at_once_are_those_of_one_after_the_other(files_job, started, tmp_path, monkeypatch):
    """To the bit, also where one of them dies, which ends all in one sentence, and the training goes on."""
    monkeypatch.setattr(networks, "default_workers", lambda: 2)  # a thread for each
    folder = tmp_path / "at once"
    with pytest.raises(LstrError, match="flow without fold 1 .*SIGKILL") as caught:
        for event in train_networks(files_job, folder, at_once=2):
            if isinstance(event, Step) and event.stage == "flow without fold 1":
                started[1].process.kill()
    assert caught.value.hint
    assert len(started) == 2 and all(process.process.poll() is not None for process in started)
    with torch_threads(1):
        together = result_of(train_networks(files_job, folder, resume=True, at_once=2))
        apart = result_of(train_networks(files_job, tmp_path / "apart"))
    assert all(process.process.poll() is not None for process in started)
    for fold in (None, 1, 2):
        a, b = (read_state_dict(of.file("flow", fold)) for of in (together, apart))
        assert all(torch.equal(a[name], b[name]) for name in a)
    logs = []
    for of in (together, apart):
        lines = [json.loads(line) for line in (of.path / "metrics.jsonl").read_text().splitlines()]
        logs.append(sorted((line["stage"], line["epoch"], line["loss"]) for line in lines))
    assert logs[0] == logs[1] and len(logs[0]) == 9
