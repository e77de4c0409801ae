"""Settings: refused values, text as typed values, JSON, and changes of the kind."""

import pytest

from lstr.errors import ConfigError
from lstr.kinds import change, configure, from_json, presets
from lstr.settings import Positive, Settings, Share, override, to_json

NAN = float("nan")
MAT = {"kind": "mat", "rgb_dim": 5, "flow_dim": 3, "d_model": 16, "n_heads": 4, "work_length": 4, "long_length": 64}
# Invalid values by setting, in addition to the other settings of a valid configuration.
INVALID = [
    ({}, {"d_model": [0, 1000, 1024.0], "n_heads": [7, True], "long_length": [2047, -4], "long_stride": [0]}),
    ({}, {"work_length": [0], "l_enc": [0], "n0": [0], "dropout": [1.0, NAN], "anticipation": [-1, 2.0, True]}),
    ({}, {"decay": [0.0, 1.01, NAN, "0.9", 0.9], "kind": ["lstm", None], "grid": ["loose"], "encoder": ["two stage"]}),
    ({"encoder": "joined"}, {"integration": ["average"]}),
    ({"integration": "mlp"}, {"anticipation": [4]}),
    ({"kind": "rnn"}, {"anticipation": [3]}),
    ({"kind": "trn"}, {"gru": [True]}),
    ({"kind": "testra"}, {"gru": [True], "encoder": ["none"], "positions": ["distance"]}),
    ({}, {"decoder_heads": [4]}),
    ({"kind": "oadtr", "n_heads": 4}, {"decoder_heads": [3, -1]}),
    (MAT, {"context": [2], "long_length": [0], "groups": [3, 8], "n_generated": [0]}),
    ({**MAT, "anticipation": 5}, {"future": [4]}),
    ({"flow_dim": 0}, {"rgb_dim": [0]}),
]
CASES = [(valid, name, value) for valid, settings in INVALID for name, values in settings.items() for value in values]


@pytest.mark.parametrize("valid, name, value", CASES, ids=str)
def test_invalid_and_conflicting_settings_are_named(valid, name, value):
    with pytest.raises(ConfigError) as caught:
        configure(**{**valid, name: value})
    words = [name, str(value), *map(str, valid.values() if len(valid) == 1 else ())]
    assert all(word.lower() in str(caught.value).lower() for word in words)


def test_override_reads_text_as_the_type_of_the_field():
    class Recipe(Settings, frozen=True):
        fast: bool = False
        crops: tuple[int, ...] = (1, 10)
        limit: Positive | None = None
        share: Share = 0.5

    changed = override(Recipe(), {"fast": "true", "crops": "3,4", "limit": "5", "share": "0"})
    assert changed == Recipe(fast=True, crops=(3, 4), limit=5, share=0.0)
    with pytest.raises(ConfigError, match="heads") as caught:
        override(configure(), {"heads": "8"})
    assert "n_heads" in caught.value.hint
    wrong = {"fast": ["perhaps"], "crops": ["1,b"], "limit": ["0", str(2**70)], "share": ["1", "inf"]}
    for name, value in [(name, value) for name, values in wrong.items() for value in values]:
        with pytest.raises(ConfigError, match=f"^{name} is ") as caught:
            override(Recipe(), {name: value})


def test_json_round_trip_and_refusals():
    for config in (
        configure(encoder="one-stage", integration="average", gru=True, anticipation=8, positions="distance"),
        *(preset.model for preset in presets().values()),
    ):
        assert from_json(to_json(config)) == config
    assert from_json("{}") == configure()
    refused = ("[]", "{", '{"colour": 1}', '{"d_model": "x"}', '{"d_model": null}', '{"gru": 1}', '{"gru": "perhaps"}')
    for text in (*refused, '{"anticipation": 1.5}', r'{"anticipation": "\ud800"}', '{"kind": "svm"}'):
        with pytest.raises(ConfigError):
            from_json(text)


@pytest.mark.parametrize(
    "before, changes, after",
    [
        (configure(dropout=0.5), {"kind": "rnn", "cell": "gru"}, configure(kind="rnn", dropout=0.5, cell="gru")),
        (configure(long_length=0), {"kind": "mat", "long_length": "64"}, configure(kind="mat", long_length=64)),
        (configure(kind="testra", decay=0.5), {"kind": "lstr", "decay": "1"}, configure()),
        (configure(), {"n0": "8", "decay": "1.0"}, configure(n0=8)),
        (configure(kind="testra", decay=0.5), {"kind": "lstr"}, ["decay", "0.5", "lstr"]),
        (configure(), {"exemplars": "3"}, ["exemplars", "3", "lstr"]),
        (configure(), {"kind": "svm"}, ["kind", "'svm'"]),
        (configure(), {"kind": "rnn", "colour": "red"}, ["'colour'"]),
    ],
    ids=str,
)
def test_a_change_of_kind_keeps_common_settings_and_names_foreign_settings(before, changes, after):
    if not isinstance(after, list):
        assert change(before, changes) == after
        return
    with pytest.raises(ConfigError) as caught:
        change(before, changes)
    assert all(word in str(caught.value) for word in after)
