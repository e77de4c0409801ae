"""Settings of the training of networks: defaults by their first weights, one stream or both, sizes, precision."""

from dataclasses import replace

import pytest

from lstr.errors import ConfigError, RecipeError
from lstr.extractors.devices import fast_precision
from lstr.extractors.presets import PRESETS, StreamPreset
from lstr.pipelines.training import network_config
from lstr.pipelines.training.network_config import PICTURES, FinetuneConfig, defaults, resolve, trainable
from lstr.pipelines.training.recogniser import FACTOR, NetworksToTrain, initial_weights, make_optimiser, recogniser

FAST = PRESETS["fast"]
NOTHING = dict.fromkeys(("rgb", "flow"))
LITE = replace(FAST.narrowed(["rgb"]), rgb=StreamPreset("efficientnet-lite0"))


def test_defaults_follow_from_the_first_weights():
    _, configs = resolve(FAST, NOTHING, {"precision": "float32"}, "cpu")
    assert configs == {s: defaults(s, None).replace(precision="float32") for s in ("rgb", "flow")}
    assert not configs["rgb"].partial_bn and defaults("rgb", "custom").partial_bn
    begins = initial_weights(LITE, "imagenet", {})["rgb"]
    assert begins.dataset == "imagenet"
    preset, configs = resolve(LITE, {"rgb": begins.dataset}, {}, "cpu")
    assert configs["rgb"] == PICTURES.replace(precision=fast_precision("cpu")) and preset.crop == PICTURES.crop == 112
    both = replace(FAST, rgb=LITE.rgb)  # whose flow network takes multiples of 32 alone
    assert resolve(both, {"rgb": "imagenet", "flow": None}, {}, "cpu")[0].crop == 128
    assert defaults("flow", "imagenet").brightness == 0 < PICTURES.brightness


def test_one_stream_or_both_are_set():
    _, configs = resolve(FAST, NOTHING, {"epochs": "7", "flow.lr": "0.5", "rgb.epochs": "3"}, "cpu")
    assert (configs["rgb"].epochs, configs["flow"].epochs, configs["flow"].lr) == (3, 7, 0.5)
    assert configs["rgb"].lr == defaults("rgb", None).lr


def test_features_will_have_the_size_of_the_images():
    """Trained weights know images of one size, and both streams have it; a recipe file's own comes before a default."""
    for begun in ({"rgb": "custom", "flow": None}, {"rgb": None, "flow": "kinetics"}):
        preset, configs = resolve(FAST, begun, {}, "cpu")
        assert preset.crop == configs["rgb"].crop == configs["flow"].crop == defaults("rgb", "custom").crop
    small = replace(FAST, short_side=112, crop=96)
    preset, configs = resolve(small, NOTHING, {}, "cpu")
    assert (preset.short_side, preset.crop) == (configs["rgb"].short_side, configs["rgb"].crop) == (112, 96)
    preset, _ = resolve(small, NOTHING, {"short_side": "64", "crop": "32"}, "cpu")
    assert (preset.short_side, preset.crop) == (64, 32)
    for wrong in ({"rgb.crop": "32"}, {"crop": "48"}):  # two sizes, and one that the networks do not take
        with pytest.raises(ConfigError):
            resolve(FAST, NOTHING, wrong, "cpu")
    live, configs = resolve(PRESETS["smallest"], {"flow": None}, {"crop": "48"}, "cpu")
    assert (live.short_side, live.crop) == (64, 48)
    assert configs["flow"].precision == network_config.fast_precision("cpu")
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
    monkeypatch.setattr(network_config, "fast_precision", lambda device: there)
    assert resolve(FAST, NOTHING, {}, "cpu")[1]["rgb"].precision == there
    assert resolve(FAST, NOTHING, {"precision": "bf16"}, "cpu")[1]["rgb"].precision == "bf16"


@pytest.mark.parametrize(
    "wrong",
    [{"precision": "half"}, {"partial_bn": "maybe"}, {"epochs": -1}, {"lr": 0.0}, {"crop": 31}]
    + [{"optimiser": "lion"}, {"mixup": -1.0}, {"short_side": 32, "crop": 64}]
    + [{"height": 64}, {"height": 31, "width": 64}, {"margin": 0.9}, {"samples": "chunks", "segments": 3}],
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ConfigError) as failed:
        FinetuneConfig(**wrong)
    assert failed.value.hint


def test_what_can_be_trained(tmp_path):
    assert trainable("fast", "flow", {}, "dis").streams == ("flow",)
    assert trainable("activitynet", "both", {"rgb": "bninception"}, None).rgb.network == "bninception"
    for recipe, networks in (("fast", {"rgb": "tsn_mobilenet.py"}), (str(tmp_path), {})):
        with pytest.raises(RecipeError):
            trainable(recipe, "both", networks, None)


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
