"""Training of networks on planted patterns, what they begin with and resume, and `lstr finetune`."""

import json
import shutil
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr.errors import CacheError, CheckpointError, LstrError, WeightsError
from lstr.extractors.networks.build import identify
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
from lstr.pipelines.training.run import RunFolder, Step
from lstr.pipelines.training.training_videos import check_blind
from tests.support.backbones import build_backbone, vary_batch_norms
from tests.support.errors import assert_error
from tests.support.learning import change_labels
from tests.support.planted import CLASSES, SMALL, planted, planted_training
from tests.support.training import read_log


def train(job, folder, resume=False, on_event=lambda event: None, **options):
    return result_of(train_networks(job, folder, resume=resume, **options), on_event)


def check_equal(weights, expected, job):
    """Check that two trainings of a network and two folds have the same results."""
    for fold in (None, 1, 2):
        a, b = (read_state_dict(folder.file("flow", fold)) for folder in (weights, expected))
        assert all(torch.equal(a[name], b[name]) for name in a)
        unseen = {i for i, own in job.folds.items() if fold and own == fold}
        assert set(read_card(weights.file("flow", fold)).seen) == set(job.videos) - unseen
    assert len(open_weights(weights.path).recipe.flow.folds) == 2
    logs = [{(line["stage"], line["epoch"]): line for line in read_log(w.path)} for w in (weights, expected)]
    assert logs[0] == logs[1]


@pytest.mark.long
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("stream", ["flow", pytest.param("rgb", marks=pytest.mark.slow)])
def test_a_planted_pattern_is_recognised_in_another_video(stream, device, tmp_path):
    """Sixty steps from random weights suffice on any processor; chance has an mAP of 0.25."""
    job = planted_training((stream,), epochs=10, draws=48, batch_size=8, dropout=0)
    weights = train(job, tmp_path / "weights", device=device)
    lines, best = read_log(weights.path), weights.about["metrics"][stream]["all"]["mAP"]
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]
    assert best > 0.6 and best == max(line.get("evaluation", {}).get("mAP") or 0 for line in lines)
    card = read_card(weights.file(stream))
    assert card.mAP == best and card.classes == CLASSES and len(card.seen) == 4
    assert not (weights.path / "training").exists()
    state = read_state_dict(weights.file(stream))
    means = [tensor for name, tensor in state.items() if name.endswith("running_mean")]
    assert len(means) > 50 and all(mean.abs().sum() > 0 for mean in means), "no batch norm is frozen"


def test_a_time_limit_ends_training_after_the_first_epoch(tmp_path):
    job = replace(planted_training(("flow",), epochs=50, draws=16), limit=TimeLimit(1e-3))
    (line,) = read_log(train(job, tmp_path / "weights").path)
    assert line["epoch"] == 1 and 0 < line["lr"] < job.networks.configs["flow"].lr / 4, "the rate falls within it"
    limit = TimeLimit(100, later=20, planned={"flow": 50})
    assert [limit.spent("flow", 25, share) for share in (0.05, 0.5, 0.6, 0.125)] == [25 / 76] * 3 + [25 / 60]


@pytest.mark.long
def test_a_stopped_run_resumes_bit_for_bit(tmp_path, capfd, monkeypatch):
    """With all settings; stopped before an epoch is saved, within an epoch, and at the end of the last network."""
    settings = dict(samples="chunks", balanced=0.5, head_lr=1e-2, warmup_steps=2, contrast=0.3, brightness=20)
    settings |= dict(crop_range=1.15, zoom=1.3, mixup=0.4)
    job = planted_training(("flow",), 3, 2, epochs=2, draws=8, **settings)  # two steps per epoch
    steps = []
    whole = train(job, tmp_path / "whole", on_event=lambda event: isinstance(event, Step) and steps.append(event))
    stages = ("flow", "flow without fold 1", "flow without fold 2")
    assert [(step.stage, step.epoch) for step in steps] == [(stage, epoch) for stage in stages for epoch in (1, 2)]
    assert capfd.readouterr().out == ""

    stops = {("epoch", "flow", 1), ("step", "flow without fold 1", 3), ("epoch", "flow without fold 2", 2)}

    def stop_once(*event):
        if event in stops:
            stops.remove(event)
            raise KeyboardInterrupt

    log_step = RunFolder.log

    def log_and_stop(self, step):  # the state of the epoch is saved after this
        log_step(self, step)
        stop_once("epoch", self.stage, step.epoch)

    def stop_in_epoch(event):
        if isinstance(event, Progress):
            stop_once("step", event.what, event.done)

    monkeypatch.setattr(RunFolder, "log", log_and_stop)
    for attempt in range(4):
        with suppress(KeyboardInterrupt):
            parts = train(job, tmp_path / "parts", attempt > 0, stop_in_epoch)
        torch.rand(7)  # random numbers of other code must not matter
    assert not stops
    check_equal(parts, whole, job)
    of_whole, of_parts = (weights.about["metrics"]["flow"] for weights in (whole, parts))
    assert {pair: of_whole[pair]["mAP"] for pair in of_whole} == {pair: of_parts[pair]["mAP"] for pair in of_parts}


@pytest.mark.long
def test_a_resnet_keeps_its_initial_weights(tmp_path):
    """Training at almost no rate changes none, and with partial batch norm only the first statistics."""
    state = vary_batch_norms(build_backbone("resnet50", 3)).state_dict()
    torch.save(state, tmp_path / "resnet50.pth")
    initial = {"rgb": Initial(tmp_path / "resnet50.pth", "1" * 64, False, {"old": "0" * 64})}
    job = planted_training(("rgb",), 2, initial=initial, n_validation=0, epochs=1, lr=1e-12)
    trained = read_state_dict(train(job, tmp_path / "weights").file("rgb"))
    assert job.networks.configs["rgb"].partial_bn
    changed = {name for name in state if not torch.allclose(trained[f"backbone.{name}"], state[name])}
    assert changed == {f"conv1.bn.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert set(read_card(tmp_path / "weights" / "rgb.pth").seen) == {"old", "v0", "v1"}


@pytest.mark.long
def test_rgb_weights_initialise_a_flow_network(tmp_path):
    """The first layer's kernels are averaged over the colours and repeated; other weights are copied."""
    state = {f"backbone.{name}": tensor for name, tensor in build_backbone("resnet50", 3).state_dict().items()}
    path = tmp_path / "rgb.pth"
    torch.save({"state_dict": state}, path)
    initial = Initial(path, "1" * 64, crossed=True)
    flow = recogniser("flow", StreamPreset("resnet50"), 3, FinetuneConfig(), initial).state_dict()
    kernels = state["backbone.conv1.conv.weight"].mean(1, keepdim=True).expand(64, 10, 7, 7)
    torch.testing.assert_close(flow["backbone.conv1.conv.weight"], kernels)
    assert torch.equal(flow["backbone.layer4.2.conv3.conv.weight"], state["backbone.layer4.2.conv3.conv.weight"])
    by_stream = initial_weights(PRESETS["fast"], str(path), {})
    assert by_stream["rgb"].path and by_stream["flow"].path is None, "fast has another network for flow"
    by_stream = initial_weights(PRESETS["activitynet"], str(path), {})
    assert not by_stream["rgb"].crossed and by_stream["flow"].crossed


def test_a_non_finite_loss_keeps_the_last_good_epoch(tmp_path):
    job = planted_training(("flow",), 2, n_validation=0, epochs=8, lr=1e25, optimiser="sgd")
    with pytest.raises(LstrError, match="flow.pth") as caught:
        train(job, tmp_path / "weights")
    state = tmp_path / "weights" / "training" / "flow.pth"
    assert f"--init {state}" in caught.value.hint and read_card(state).seen.keys() == {"v0", "v1"}
    assert initial_weights(job.networks.preset, str(state), {})["flow"].seen.keys() == {"v0", "v1"}


def test_a_run_resumes_only_with_the_same_inputs(tmp_path):
    job = planted_training(("flow",), epochs=2)
    with closing(train_networks(job, tmp_path / "weights")) as events:
        next(event for event in events if isinstance(event, Step))
    video = job.videos["v1"]
    other_file = {"v1": replace(video, record=video.record | {"sha256": "0" * 64})}
    changed_jobs = {
        r"flow\.lr .* 0\.02": planted_training(("flow",), epochs=2, lr=0.02),
        r"videos\.v1\.sha256": replace(job, videos={**job.videos, **other_file}),
        "folds .* 2": planted_training(("flow",), 3, 2, epochs=2),
        r"streams\.rgb": planted_training(("rgb", "flow"), epochs=2),
    }
    for value, changed_job in changed_jobs.items():
        with pytest.raises(CheckpointError, match=value):
            train(changed_job, tmp_path / "weights", resume=True)
    with pytest.raises(CheckpointError, match="weights"):
        train(job, tmp_path / "weights")


def test_folds_are_refused_if_the_initial_weights_were_trained_on_their_videos():
    hashes = {i: video.record["sha256"] for i, video in planted(3)[1].items()}
    for seen in ({"v1": "0" * 64}, {"other": hashes["v1"]}):
        with pytest.raises(WeightsError, match="1 .*'v1'"):
            check_blind({"flow": Initial(seen=seen)}, hashes)


def test_a_damaged_chunk_ends_the_run(tmp_path):
    job = planted_training(("flow",), 2, epochs=1)
    video = job.videos["v0"]
    job.videos["v0"] = replace(video, record=video.record | {"crc32": [0] * len(video)})
    with pytest.raises(CacheError, match="v0.npy"):
        train(job, tmp_path / "weights")


def test_number_of_networks_trained_at_once(monkeypatch):
    """Up to the number of cores in even rounds, but one on a GPU or if each is trained on few images."""
    cases = {(2, 4): 2, (3, 4): 2, (4, 4): 4, (16, 4): 4, (8, 7): 4, (8, 6): 3, (8, 1): 1, (1, 4): 1, (4, 3): 3}
    for (cores, n_networks), expected in cases.items():
        monkeypatch.setattr(networks, "default_workers", lambda cores=cores: cores)
        assert best_at_once(n_networks, MIN_IMAGES, "cpu") == expected, (cores, n_networks)
        assert best_at_once(n_networks, MIN_IMAGES - 1, "cpu") == best_at_once(n_networks, 10**6, "cuda") == 1
    monkeypatch.setattr(networks, "default_workers", lambda: 7)
    assert [threads_of(n) for n in (1, 2, 3, 8)] == [7, 3, 2, 1]


@pytest.mark.slow
def test_parallel_and_sequential_training_are_equal(tmp_path, monkeypatch):
    """Also after one of their processes is killed, which ends the others."""
    job = planted_training(("flow",), 3, 2, n_validation=0, epochs=3, draws=8)
    for video_id, video in job.videos.items():  # other processes read the chunks from files
        job.videos[video_id] = replace(video, path=tmp_path / f"{video_id}.npy")
        np.save(tmp_path / f"{video_id}.npy", video.chunks)
    processes, start = [], ChildProcess.__init__

    def start_and_record(self, *arguments):
        processes.append(self)
        start(self, *arguments)

    monkeypatch.setattr(ChildProcess, "__init__", start_and_record)
    monkeypatch.setattr(networks, "default_workers", lambda: 2)  # a thread for each
    with pytest.raises(LstrError, match="flow without fold 1 .*SIGKILL"):
        for event in train_networks(job, tmp_path / "parallel", at_once=2):
            if isinstance(event, Step) and event.stage == "flow without fold 1":
                processes[1].process.kill()
    assert len(processes) == 2
    with torch_threads(1):
        parallel = train(job, tmp_path / "parallel", resume=True, at_once=2)
        sequential = train(job, tmp_path / "sequential")
    assert all(process.process.poll() is not None for process in processes)
    check_equal(parallel, sequential, job)


@pytest.fixture
def finetune(lstr, small_set):
    """Return finetune(output, *options), which runs the command on the small set or on other videos and labels."""

    def run(output, *options, videos=small_set.videos, labels=small_set.labels):
        settings = {**SMALL, "epochs": 2, "cache": small_set.features.parent / "chunks"}
        settings |= {} if "rgb" in options else {"recipe.flow_algorithm": "dis"}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        return lstr("finetune", videos, "--labels", labels, "-o", output, *words, *options)

    return run


@pytest.mark.slow
def test_both_streams_are_trained_without_a_damaged_video(finetune, small_set, tmp_path):
    """The damaged video is reported, and the exit code is 3. A second run has nothing to do."""
    videos = shutil.copytree(small_set.videos, tmp_path / "videos")
    labels = change_labels(small_set.labels.parent, tmp_path, lambda videos: videos.update(cut=videos["scene_00"]))
    whole = (videos / "scene_00.mp4").read_bytes()
    (videos / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    words = ("--json", "--set", "eval_subset=testing")
    code, out, err = finetune(tmp_path / "my weights", *words, videos=videos, labels=labels)
    assert code == 3 and "failed: cut: " in err and "hint: " in err and "epoch 2/2" in err, err
    result, weights = json.loads(out), open_weights(tmp_path / "my weights")
    assert result["name"] == weights.about["name"] == "my-weights" and result["streams"] == ["rgb", "flow"]
    assert [failed["id"] for failed in result["failed"]] == ["cut"]
    assert set(result["training"]) == {"scene_00", "scene_01", "scene_02"} and set(result["validation"]) == {"scene_03"}
    assert weights.recipe.crop == 32 and weights.recipe.algorithm == "dis"
    assert weights.recipe.rgb.folder("rgb") == "rgb_my-weights_resnet50"
    for stream, network in (("rgb", "resnet50"), ("flow", "bninception")):
        assert identify(weights.file(stream)) == (network, stream)
        assert set(read_card(weights.file(stream)).seen) == {f"scene_0{i}" for i in range(4)}
        assert result["metrics"][stream]["all"]["mAP"] == read_card(weights.file(stream)).mAP
    lines = read_log(weights.path)
    assert [(line["stage"], line["epoch"]) for line in lines] == [("flow", 1), ("flow", 2), ("rgb", 1), ("rgb", 2)]
    assert_error(finetune(tmp_path / "second", "--stream", "rgb", "--init", weights.file("flow")), 4, "bninception")
    code, out, err = finetune(weights.path, "--resume", videos=videos, labels=labels)
    assert code == 0 and "flow" in out and "epoch 1/" not in err


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        (("--stream", "flow", "--init", "resnet50.pth"), 4, "bninception"),
        (("--stream", "rgb", "--init", "missing.pth"), 2, "missing.pth"),
        (("--stream", "rgb", "--init", "flow=random"), 4, "--init flow"),
        (("--init", "kinetics"), 4, "lstr weights fetch"),
        (("--recipe", "videos"), 4, "recipe.json"),
        (("--set", "epoch=3", "--resume"), 2, "'epoch'"),
        (("--set", "crop=40"), 2, "crop"),
        (("--set", "depth.lr=1"), 2, "depth.lr"),
        (("--set", "subset=other"), 2, "other"),
        (("--set", "eval_subset=training"), 2, "training"),
        (("--set", "cache_size=1MB"), 2, "cache_size"),
    ],
    ids=str,
)
def test_invalid_options_are_refused(finetune, small_set, tmp_path, monkeypatch, options, code, value):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "videos").symlink_to(small_set.videos)
    if "resnet50.pth" in options:
        torch.save(build_backbone("resnet50", 3).state_dict(), "resnet50.pth")
    assert_error(finetune(tmp_path / "out", *options), code, value)
    assert not (tmp_path / "out").exists()


def test_outputs_videos_and_labels_that_cannot_be_used(finetune, lstr, small_set, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "scene_00.mp4").write_text("no video")
    assert_error(finetune(folder, "--resume"), 4, "-o")
    assert_error(finetune(folder), 4, "-o")
    assert_error(finetune(folder / "scene_00.mp4"), 2, "-o")
    assert_error(finetune("/proc/none"), 2, "-o")
    assert_error(lstr("finetune", "--labels", small_set.labels, "-o", tmp_path / "out"), 2)
    code, out, err = finetune(tmp_path / "out", videos=folder)
    assert code == 3 and out == "" and err.count("failed: ") == 1
    clear = lambda videos: [video["annotations"].clear() for video in videos.values()]  # noqa: E731
    assert_error(finetune(tmp_path / "weights", labels=change_labels(small_set.labels.parent, tmp_path, clear)), 2)
    assert not (tmp_path / "weights").exists()
