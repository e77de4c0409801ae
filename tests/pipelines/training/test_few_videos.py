"""The settings for few videos: rates of body and head, power of balance, chunks as samples, loss as judge."""

import json
from dataclasses import replace

import pytest
import torch

from lstr.errors import CheckpointError, ConfigError
from lstr.extractors.devices import fast_precision
from lstr.extractors.presets import PRESETS, StreamPreset
from lstr.pipelines.progress import Progress, result_of
from lstr.pipelines.training.network_config import PICTURES, FinetuneConfig, defaults, resolve
from lstr.pipelines.training.network_samples import Sample, SampleSet, single_chunks
from lstr.pipelines.training.networks import train_networks
from lstr.pipelines.training.recogniser import FACTOR, initial_weights, make_optimiser, recogniser
from lstr.pipelines.training.run_folder import CONFIG, Step
from tests.support.planted import planted_training

LITE = replace(PRESETS["fast"].narrowed(["rgb"]), rgb=StreamPreset("efficientnet-lite0"))


def test_imagenet_weights_have_defaults_of_their_own():
    begins = initial_weights(LITE, "imagenet", {})["rgb"]
    assert begins.dataset == "imagenet"
    preset, configs = resolve(LITE, {"rgb": begins.dataset}, {}, "cpu")
    assert configs["rgb"] == PICTURES.replace(precision=fast_precision("cpu")) and preset.crop == PICTURES.crop == 112
    both = replace(PRESETS["fast"], rgb=LITE.rgb)  # whose flow network takes multiples of 32 alone
    assert resolve(both, {"rgb": "imagenet", "flow": None}, {}, "cpu")[0].crop == 128
    assert defaults("flow", "imagenet").brightness == 0 < PICTURES.brightness
    n_chunks = 1781  # of the probe, in steps of its count
    data = SampleSet([Sample("v", 0, 1, 0)], {"v": range(n_chunks)}, "rgb", configs["rgb"])
    assert data.n_batches * PICTURES.epochs == 448


def test_single_chunks_of_segments():
    segments = [Sample("v", 2, 5, 1), Sample("v", 4, 6, 1), Sample("v", 4, 5, 2)]
    assert {(s.start, s.end, s.label) for s in single_chunks(segments)} == {
        (2, 3, 1), (3, 4, 1), (4, 5, 1), (5, 6, 1), (4, 5, 2)
    }  # fmt: skip
    assert len(single_chunks(segments)) == 5
    with pytest.raises(ConfigError, match="one chunk has no 3 segments"):
        FinetuneConfig(samples="chunks", segments=3)


def test_rates_of_body_and_head():
    preset = StreamPreset("efficientnet-lite0")
    config = FinetuneConfig(lr=1e-3, head_lr=5e-3)
    model = recogniser("rgb", preset, 3, config)
    optimiser = make_optimiser(model, config)
    rates = {id(p): group[FACTOR] for group in optimiser.param_groups for p in group["params"]}
    found = {name: rates.pop(id(p)) for name, p in model.named_parameters()}
    assert not rates and found.pop("cls_head.fc_cls.weight") == found.pop("cls_head.fc_cls.bias") == 5
    assert set(found.values()) == {1}
    plain = make_optimiser(recogniser("rgb", preset, 3, FinetuneConfig()), FinetuneConfig())
    assert len(plain.param_groups) == 1


def test_a_run_from_before_there_was_a_setting_resumes(tmp_path):
    job = planted_training(("flow",), epochs=1, draws=8)
    training = train_networks(job, tmp_path)
    while not isinstance(next(training), Step):
        pass
    training.close()
    settings = json.loads((tmp_path / CONFIG).read_text())
    for name in ("head_lr", "samples"):
        del settings["streams"]["flow"][name]
    settings["streams"]["flow"] |= {"warmup": 0.05, "clip": 20.0, "eval_every": 2, "patience": 0, "chosen_by": "mAP"}
    (tmp_path / CONFIG).write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=r"flow\.head_lr was 0\.0, is 1\.0"):
        list(train_networks(planted_training(("flow",), epochs=1, draws=8, head_lr=1.0), tmp_path, resume=True))
    result_of(train_networks(job, tmp_path, resume=True), lambda event: None)


@pytest.mark.slow
def test_a_stopped_run_with_every_setting_goes_on_to_the_bit(tmp_path):
    settings = dict(epochs=2, draws=8, samples="chunks", balanced=0.5, head_lr=1e-2)
    settings |= dict(mixup=0.4, warmup_steps=2, contrast=0.3, brightness=20, crop_range=1.15)
    settings |= dict(zoom=1.3)
    job = planted_training(("flow",), **settings)

    def stop(event):
        if isinstance(event, Progress) and event.done == 3:
            raise KeyboardInterrupt

    whole = result_of(train_networks(job, tmp_path / "whole"), lambda event: None)
    with pytest.raises(KeyboardInterrupt):
        result_of(train_networks(job, tmp_path / "parts"), stop)
    parts = result_of(train_networks(job, tmp_path / "parts", resume=True), lambda event: None)
    a, b = (torch.load(w.file("flow"), weights_only=True)["state_dict"] for w in (whole, parts))
    assert all(torch.equal(a[name], b[name]) for name in a)
