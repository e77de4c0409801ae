"""Settings of the training of networks: defaults, streams, sizes and precision."""

from dataclasses import replace

import pytest
import torch

from lstr.errors import ConfigError
from lstr.extractors.devices import fast_precision
from lstr.extractors.presets import PRESETS, StreamPreset
from lstr.pipelines.training.network_config import PICTURES, FinetuneConfig, defaults, resolve
from lstr.pipelines.training.recogniser import (
    FACTOR,
    Initial,
    NetworksToTrain,
    initial_weights,
    make_optimiser,
    recogniser,
)

FAST = PRESETS["fast"]
RANDOM = dict.fromkeys(("rgb", "flow"))
LITE = replace(FAST.narrowed(["rgb"]), rgb=StreamPreset("efficientnet-lite0"))


def test_defaults_depend_on_the_initial_weights():
    _, configs = resolve(FAST, RANDOM, {"precision": "float32"}, "cpu")
    assert configs == {s: defaults(s, None).replace(precision="float32") for s in ("rgb", "flow")}
    assert not configs["rgb"].partial_bn and defaults("rgb", "custom").partial_bn
    assert initial_weights(LITE, "imagenet", {})["rgb"].dataset == "imagenet"
    preset, configs = resolve(LITE, {"rgb": "imagenet"}, {}, "cpu")
    assert configs["rgb"] == PICTURES.replace(precision=fast_precision("cpu")) and preset.crop == PICTURES.crop == 112
    both = replace(FAST, rgb=LITE.rgb)  # its flow network takes multiples of 32 only
    assert resolve(both, {"rgb": "imagenet", "flow": None}, {}, "cpu")[0].crop == 128
    assert defaults("flow", "imagenet").brightness == 0 < PICTURES.brightness


def test_settings_of_a_stream_override_shared_ones():
    _, configs = resolve(FAST, RANDOM, {"epochs": "7", "flow.lr": "0.5", "rgb.epochs": "3"}, "cpu")
    assert (configs["rgb"].epochs, configs["flow"].epochs, configs["flow"].lr) == (3, 7, 0.5)


def test_the_image_size_of_trained_weights_a_recipe_and_settings():
    for initial in ({"rgb": "custom", "flow": None}, {"rgb": None, "flow": "kinetics"}):
        preset, configs = resolve(FAST, initial, {}, "cpu")
        assert preset.crop == configs["rgb"].crop == configs["flow"].crop == defaults("rgb", "custom").crop
    small = replace(FAST, short_side=112, crop=96)
    preset, configs = resolve(small, RANDOM, {}, "cpu")
    assert (preset.short_side, preset.crop) == (configs["rgb"].short_side, configs["rgb"].crop) == (112, 96)
    preset, _ = resolve(small, RANDOM, {"short_side": "64", "crop": "32"}, "cpu")
    assert (preset.short_side, preset.crop) == (64, 32)
    for settings in ({"rgb.crop": "32"}, {"crop": "48"}):  # two sizes, and one that the networks do not take
        with pytest.raises(ConfigError):
            resolve(FAST, RANDOM, settings, "cpu")
    live, _ = resolve(PRESETS["smallest"], {"flow": None}, {"crop": "48"}, "cpu")
    assert (live.short_side, live.crop, live.flow.crops) == (64, 48, 2)
    assert resolve(PRESETS["smallest"], {"flow": None}, {"mirror": "false"}, "cpu")[0].flow.crops == 1


def test_unset_image_sizes_have_the_shape_of_the_videos():
    initial = dict.fromkeys(("grey", "difference"), "imagenet")
    preset, configs = resolve(PRESETS["pretrained"], initial, {"grey.size": "64,85"}, "cpu")
    networks = NetworksToTrain(preset, configs, {}).seeing(16 / 9)
    sizes = {"grey": (64, 85), "difference": (97, 172)}
    assert {stream: part.size for stream, part in networks.preset.parts.items()} == sizes
    assert {stream: config.input_size for stream, config in networks.configs.items()} == sizes


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": -1},
        {"crop": 31},
        {"short_side": 32, "crop": 64},
        {"crop_range": 0.5},
        {"zoom": 2.0},
        {"early_size": 1.5},
    ]
    + [{"size": (64,)}, {"size": (31, 64)}, {"samples": "chunks", "segments": 3}],
)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        FinetuneConfig(**settings)


def test_learning_rates_of_body_and_head():
    config, plain = FinetuneConfig(lr=1e-3, head_lr=5e-3), FinetuneConfig()
    model = recogniser("rgb", StreamPreset("efficientnet-lite0"), 3, config, Initial())
    factors = {id(p): group[FACTOR] for group in make_optimiser(model, config).param_groups for p in group["params"]}
    expected = {id(p): 5 if name.startswith("cls_head.") else 1 for name, p in model.named_parameters()}
    assert factors == expected and len(make_optimiser(model, plain).param_groups) == 1


def test_the_head_of_poses_takes_the_features_only():
    model = recogniser("pose", PRESETS["people"].pose, 3, FinetuneConfig(), Initial())
    assert model(*model.prepare(torch.zeros(1, 1, 6, 64, 64), torch.tensor([1]))).isfinite()
