"""Settings: what is refused, and how text becomes a typed value."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal, get_args, get_origin

import pytest

from lstr.errors import CheckpointError, ConfigError, LabelsError, LstrError
from lstr.kinds import KINDS, change, configure, from_json, presets
from lstr.settings import Positive, Settings, Share, field_types, override, to_json


def test_defaults_are_the_published_model():
    config = configure()
    assert (config.n_long, config.input_dim) == (512, 3072)
    assert presets()["thumos14"].model == presets()["tvseries"].model == presets()["hacs"].model == config
    assert presets()["rnn-small"].model.d_model == 128
    assert (config.kind, config.encoder, config.integration) == ("lstr", "two-stage", "cross-attention")
    assert (config.gru, config.anticipation, config.n_ahead) == (False, 0, 0)


@pytest.mark.parametrize("name", ["thumos14-published", "tvseries-published"])
def test_published_presets_are_as_the_published_code_evaluates(name):
    config = presets()[name].model
    assert (config.grid, config.positions) == ("sliding", "slot")
    assert config.replace(grid="fixed") == configure()


@pytest.mark.parametrize(
    "name, value",
    [
        ("d_model", 0),
        ("d_model", 1000),
        ("d_model", 1024.0),
        ("n_heads", 7),
        ("n_heads", True),
        ("long_length", 2047),
        ("long_length", -4),
        ("long_stride", 0),
        ("work_length", 0),
        ("dropout", 1.0),
        ("dropout", float("nan")),
        ("grid", "loose"),
        ("positions", "absolute"),
        ("l_enc", 0),
        ("n0", 0),
        ("anticipation", -1),
        ("decay", 0.0),
        ("decay", 1.01),
        ("decay", float("nan")),
        ("decay", "0.9"),
        ("anticipation", 2.0),
        ("anticipation", True),
        ("kind", "lstm"),
        ("kind", None),
        ("encoder", "two stage"),
        ("encoder", "stage1"),
        ("integration", "sum"),
        ("cell", "rnn"),
    ],
)
def test_an_impossible_value_is_refused_by_name(name, value):
    with pytest.raises(ConfigError) as caught:
        configure(**{name: value})
    assert name in str(caught.value) and str(value) in str(caught.value)
    assert caught.value.hint


def choices_of(kind):
    """The values of the settings of text, by name."""
    types = field_types(KINDS[kind].config).items()
    return {name: get_args(one) for name, one in types if get_origin(one) is Literal and type(get_args(one)[0]) is str}


@pytest.mark.parametrize(
    "kind, name", [(kind, name) for kind in KINDS if kind != "testra" for name in ("kind", *choices_of(kind))]
)
def test_a_choice_lists_the_choices(kind, name):
    choices = KINDS if name == "kind" else choices_of(kind)[name]
    with pytest.raises(ConfigError) as caught:
        configure(**{"kind": kind, name: "other"})
    assert str(caught.value) == f"{name} is 'other'." and all(choice in caught.value.hint for choice in choices)
    for choice in choices:
        assert getattr(configure(**{"kind": kind, name: choice}), name) == choice


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"encoder": "joined", "integration": "average"}, ["joined", "integration", "average"]),
        ({"encoder": "joined", "integration": "mlp"}, ["joined", "integration", "mlp"]),
        ({"kind": "rnn", "anticipation": 3}, ["kind rnn", "anticipation is 3"]),
        ({"kind": "lfb", "anticipation": 1}, ["kind lfb", "anticipation is 1"]),
        ({"integration": "mlp", "anticipation": 4}, ["integration mlp", "anticipation is 4"]),
        ({"kind": "trn", "gru": True}, ["gru is true", "kind is trn"]),
        ({"kind": "lfb", "gru": True}, ["gru is true", "kind is lfb"]),
        ({"kind": "testra", "gru": True}, ["gru is true", "kind is testra"]),
        ({"kind": "testra", "encoder": "none"}, ["encoder is 'none'", "kind is testra"]),
        ({"kind": "testra", "integration": "mlp"}, ["integration is 'mlp'", "kind is testra"]),
        ({"kind": "testra", "positions": "distance"}, ["positions is 'distance'", "kind is testra"]),
        ({"decay": 0.9}, ["decay is 0.9", "kind is lstr"]),
    ],
    ids=str,
)
def test_settings_that_exclude_each_other_are_both_named(settings, words):
    with pytest.raises(ConfigError) as caught:
        configure(**settings)
    assert all(word in str(caught.value) for word in words) and caught.value.hint


@pytest.mark.parametrize(
    "settings, n_long, n_ahead",
    [
        ({}, 512, 0),
        ({"anticipation": 8}, 512, 8),
        ({"long_length": 0, "gru": True}, 0, 0),
        ({"long_stride": 1}, 2048, 0),
        ({"kind": "lfb"}, 512, 0),
        ({"kind": "testra", "anticipation": 8}, 512, 8),
        ({"kind": "rnn"}, 0, 0),
        ({"kind": "trn"}, 0, 8),
        ({"kind": "trn", "anticipation": 3}, 0, 3),
    ],
    ids=str,
)
def test_what_a_kind_remembers_and_foresees(settings, n_long, n_ahead):
    """A recurrent kind has no long memory; the decoder of a TRN looks ahead whether or not it is asked to."""
    config = configure(**settings)
    assert (config.n_long, config.n_ahead) == (n_long, n_ahead)


def test_one_stream_may_be_absent_but_not_both():
    assert configure(flow_dim=0).input_dim == 2048
    with pytest.raises(ConfigError, match="rgb_dim"):
        configure(rgb_dim=0, flow_dim=0)


def test_override_reads_text_as_the_type_of_the_field():
    config = override(configure(), {"n_heads": "8", "dropout": "0", "grid": "sliding", "gru": "true"})
    assert config == configure(n_heads=8, dropout=0.0, grid="sliding", gru=True)
    assert override(config, {"gru": "false", "anticipation": "8"}) == config.replace(gru=False, anticipation=8)
    assert type(config.n_heads) is int and type(config.dropout) is float


def test_override_of_any_settings():
    class Recipe(Settings, frozen=True):
        fast: bool = False
        crops: tuple[int, ...] = (1, 10)
        limit: Positive | None = None
        share: Share = 0.5

    made = override(Recipe(), {"fast": "true", "crops": "3,4", "limit": "5", "share": "0"})
    assert made == Recipe(fast=True, crops=(3, 4), limit=5, share=0.0)
    for name, value, hint in (
        ("fast", "perhaps", "Give true or false."),
        ("crops", "1,b", "Give a list."),
        ("limit", "0", "Give a whole number of at least 1."),
        ("limit", str(2**70), "Give a whole number of at least 1."),
        ("share", "1", "Give a number of at least 0 and below 1."),
        ("share", "inf", "Give a number of at least 0 and below 1."),
    ):
        with pytest.raises(ConfigError, match=f"^{name} is ") as caught:
            override(Recipe(), {name: value})
        assert caught.value.hint == hint


def test_override_of_an_unknown_name_lists_the_known():
    with pytest.raises(ConfigError) as caught:
        override(configure(), {"heads": "8"})
    assert "heads" in str(caught.value) and "n_heads" in caught.value.hint


def test_json_round_trip_and_refusals():
    for config in (
        configure(d_model=64, grid="sliding", dropout=0.0),
        configure(encoder="one-stage", integration="average", gru=True, anticipation=8, positions="distance"),
        configure(kind="rnn", cell="gru"),
        *(preset.model for preset in presets().values()),
    ):
        assert from_json(to_json(config)) == config
    assert from_json("{}") == configure()
    refused = ("[]", "{", '{"colour": 1}', '{"d_model": "x"}', '{"d_model": null}', '{"gru": 1}', '{"gru": "perhaps"}')
    for text in (*refused, '{"anticipation": 1.5}', '{"kind": "svm"}'):
        with pytest.raises(ConfigError):
            from_json(text)


@pytest.mark.parametrize(
    "before, changes, after",
    [
        (configure(dropout=0.5), {"kind": "rnn", "cell": "gru"}, configure(kind="rnn", dropout=0.5, cell="gru")),
        (configure(long_length=0), {"kind": "mat", "long_length": "64"}, configure(kind="mat", long_length=64)),
        (configure(kind="testra", decay=0.5), {"kind": "lstr", "decay": "1"}, configure()),
        (configure(), {"n0": "8", "decay": "1.0"}, configure(n0=8)),
    ],
    ids=str,
)
def test_another_kind_takes_the_settings_that_it_has(before, changes, after):
    assert change(before, changes) == after


@pytest.mark.parametrize(
    "before, changes, words",
    [
        (configure(kind="testra", decay=0.5), {"kind": "lstr"}, "decay is 0.5 and kind is lstr"),
        (configure(), {"exemplars": "3"}, "exemplars is '3' and kind is lstr"),
        (configure(), {"kind": "svm"}, "kind is 'svm'"),
        (configure(), {"kind": "rnn", "colour": "red"}, "Unknown setting: 'colour'"),
    ],
    ids=str,
)
def test_a_setting_that_a_kind_has_not_is_refused(before, changes, words):
    with pytest.raises(ConfigError, match=words):
        change(before, changes)


def test_exit_codes():
    codes = [kind("x", "y").exit_code for kind in (LstrError, ConfigError, LabelsError, CheckpointError)]
    assert codes == [1, 2, 2, 4]


def test_another_kind_is_taken_without_importing_all():
    code = """if True:
        import sys
        from lstr.kinds import change, configure
        change(configure(long_length=0), {"kind": "rnn"})
        print([name for name in sys.modules if name.startswith("lstr.models.foresight")])"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
