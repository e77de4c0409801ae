"""A kind that is named alone has its own settings at a small size, by every command."""

import json

import pytest
from msgspec import structs

from lstr.config import WindowConfig
from lstr.errors import ConfigError
from lstr.kinds import KINDS, make_model
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.training.config import (
    SMALL_SIZES,
    TrainConfig,
    changes_from,
    preset_for,
    preset_named,
    read_config,
    resolve,
)

OF_SIZE = {*SMALL_SIZES, "dropout", "groups", "rgb_dim", "flow_dim"}


def alone(kind: str) -> tuple[str, WindowConfig, TrainConfig]:
    """Preset, model and training of `--set model.kind=KIND` with minutes of video."""
    name = preset_for(1000, {"model.kind": kind})
    return name, *resolve(name, {"model.kind": kind}, (8, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_published_kind_but_for_its_size(kind):
    name, model, train = alone(kind)
    published = KINDS[kind].published_preset
    plain, training = preset_named(published) if published else (KINDS[kind].config(), TrainConfig())
    own = {field.name for field in structs.fields(model)} - OF_SIZE
    assert {n: getattr(model, n) for n in own} == {n: getattr(plain, n) for n in own}
    assert (train.windows, train.targets, train.ambiguous) == (training.windows, training.targets, training.ambiguous)
    assert name.endswith("small") and changes_from(name, model, train) == {}, "it is no other preset that was changed"
    assert bool(model.n_long) == (KINDS[kind].config.uses.long_memory and kind != "lstr")
    assert sum(p.numel() for p in make_model(model, 4).parameters()) < 2e6


def test_what_sets_a_kind_apart_is_its_own():
    """Each of these was that of LSTR before: a fixed grid, no context, random windows and multi-hot targets."""
    models = {kind: alone(kind)[1] for kind in KINDS}
    assert {kind for kind in KINDS if models[kind].grid == "anchored"} == {"testra", "cmert"}
    assert (models["mat"].grid, models["cmert"].context, models["gatehub"].long_stride) == ("sliding", 2, 1)
    assert (models["trn"].decoder_from, models["trn"].shared_classifier, models["cmert"].anticipation) == (0, True, 8)
    miniroad = alone("miniroad")[2]
    assert (miniroad.windows, miniroad.targets, miniroad.ambiguous) == ("every", "unit", "class")
    assert alone("cmert")[2].windows == "tiled"


def test_settings_go_on_top_and_a_named_preset_stays():
    model, train = resolve("cmert-small", {"model.context": "0", "train.windows": "random"}, (8, 4))
    assert (model.context, model.grid, train.windows) == (0, "anchored", "random")
    model, train = resolve("lstr-small", {"model.kind": "cmert"}, (8, 4))
    assert (model.grid, model.context, model.long_length, train.windows) == ("fixed", 0, 64, "random")
    for name in ("svm-small", "cmert", "-small"):
        with pytest.raises(ConfigError) as caught:
            preset_named(name)
        assert "KIND-small" in caught.value.hint


def test_train_and_learn_have_the_same(lstr, feature_set, tmp_path):
    kind = "testra"
    given = ("train", feature_set.features, "--labels", feature_set.labels, "-o", tmp_path / "run")
    code, out, err = lstr(*given, "--set", f"model.kind={kind}", "--print-config")
    assert code == 0, err
    shown, (name, model, train) = json.loads(out), alone(kind)
    of_features = {"rgb_dim": shown["model"]["rgb_dim"], "flow_dim": shown["model"]["flow_dim"]}
    assert shown["model"] == model.to_dict() | of_features and shown["train"] == train.to_dict()
    assert (shown["preset"], shown["changed"]) == (name, {})
    options = LearnOptions(["v"], "l", "m.lstr", settings={"model.kind": kind})
    assert options.model_settings == {"model.kind": kind} and preset_for(1000, options.model_settings) == name
    path = tmp_path / "config.json"
    path.write_text(out)
    assert read_config(path)["preset"] == name
