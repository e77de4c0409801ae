"""Settings of a training: defaults by what the networks begin with, one stream or both, sizes, precision."""

from dataclasses import replace

import pytest

from lstr.errors import ConfigError, RecipeError
from lstr.extractors.presets import PRESETS
from lstr.pipelines.training import network_config as finetune_config
from lstr.pipelines.training.network_config import FinetuneConfig, defaults, resolve, trainable
from lstr.pipelines.training.recogniser import NetworksToTrain

FAST = PRESETS["fast"]
NOTHING = dict.fromkeys(("rgb", "flow"))


def test_defaults_follow_from_the_first_weights():
    _, configs = resolve(FAST, NOTHING, {"precision": "float32"}, "cpu")
    assert configs == {s: defaults(s, None).replace(precision="float32") for s in ("rgb", "flow")}
    assert not configs["rgb"].partial_bn and defaults("rgb", "custom").partial_bn


def test_one_stream_or_both_are_set():
    _, configs = resolve(FAST, NOTHING, {"epochs": "7", "flow.lr": "0.5", "rgb.epochs": "3"}, "cpu")
    assert (configs["rgb"].epochs, configs["flow"].epochs, configs["flow"].lr) == (3, 7, 0.5)
    assert configs["rgb"].lr == defaults("rgb", None).lr


def test_features_will_have_the_size_of_the_images():
    """Trained weights know images of one size, and both streams have it; a recipe file's own comes before a default."""
    for begun in ({"rgb": "custom", "flow": None}, {"rgb": None, "flow": "kinetics"}):
        preset, configs = resolve(FAST, begun, {}, "cpu")
        assert preset.crop == configs["rgb"].crop == configs["flow"].crop == defaults("rgb", "custom").crop
    preset, configs = resolve(replace(FAST, short_side=112, crop=96), NOTHING, {}, "cpu")
    assert (preset.short_side, preset.crop) == (configs["rgb"].short_side, configs["rgb"].crop) == (112, 96)
    preset, _ = resolve(replace(FAST, short_side=112, crop=96), NOTHING, {"short_side": "64", "crop": "32"}, "cpu")
    assert (preset.short_side, preset.crop) == (64, 32)
    with pytest.raises(ConfigError, match="different sizes"):
        resolve(FAST, NOTHING, {"rgb.crop": "32"}, "cpu")
    with pytest.raises(ConfigError, match="do not meet"):
        resolve(FAST, NOTHING, {"crop": "48"}, "cpu")
    live, configs = resolve(PRESETS["smallest"], {"flow": None}, {"crop": "48"}, "cpu")
    assert (live.short_side, live.crop) == (64, 48)
    assert configs["flow"].precision == finetune_config.fast_precision("cpu")
    assert live.flow.crops == 2
    assert resolve(PRESETS["smallest"], {"flow": None}, {"mirror": "false"}, "cpu")[0].flow.crops == 1


def test_sizes_follow_the_videos_but_where_one_is_named():
    begun = dict.fromkeys(("grey", "difference"), "imagenet")
    preset, configs = resolve(PRESETS["pretrained"], begun, {"grey.height": "64", "grey.width": "85"}, "cpu")
    networks = NetworksToTrain(preset, configs, {}).seeing(16 / 9)
    sizes = {"grey": (64, 85), "difference": (97, 172)}
    assert {stream: part.size for stream, part in networks.preset.parts.items()} == sizes
    assert {stream: config.size for stream, config in networks.configs.items()} == sizes
    assert networks.configs["difference"].margin == 1.15


@pytest.mark.parametrize("there", ["bf16", "float32"])
def test_bfloat16_where_the_processor_has_it(monkeypatch, there):
    monkeypatch.setattr(finetune_config, "fast_precision", lambda device: there)
    assert resolve(FAST, NOTHING, {}, "cpu")[1]["rgb"].precision == there
    assert resolve(FAST, NOTHING, {"precision": "bf16"}, "cpu")[1]["rgb"].precision == "bf16"


@pytest.mark.parametrize(
    "wrong",
    [{"precision": "half"}, {"partial_bn": "maybe"}, {"epochs": -1}, {"lr": 0.0}, {"crop": 31}]
    + [{"optimiser": "lion"}, {"mixup": -1.0}, {"short_side": 32, "crop": 64}]
    + [{"height": 64}, {"height": 31, "width": 64}, {"margin": 0.9}],
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ConfigError) as failed:
        FinetuneConfig(**wrong)
    assert failed.value.hint


def test_what_can_be_trained(tmp_path):
    assert trainable("fast", "flow", {}, "dis").streams == ("flow",)
    assert trainable("activitynet", "both", {"rgb": "bninception"}, None).rgb.network == "bninception"
    with pytest.raises(RecipeError, match="cannot be trained here"):
        trainable("fast", "both", {"rgb": "tsn_mobilenet.py"}, None)
    with pytest.raises(RecipeError, match="no recipe.json"):
        trainable(str(tmp_path), "both", {}, None)
