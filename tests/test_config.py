"""Settings: what is refused, and how text becomes a typed value."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass

import pytest

from lstr.config import PRESETS, LSTRConfig, from_json, override, to_json
from lstr.errors import CheckpointError, ConfigError, LabelsError, LstrError


def test_defaults_are_the_published_model():
    config = LSTRConfig()
    assert (config.n_long, config.input_dim) == (512, 3072)
    assert PRESETS["thumos14"] == PRESETS["tvseries"] == PRESETS["hacs"] == config
    assert PRESETS["small"].d_model == 128


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(FrozenInstanceError):
        LSTRConfig().d_model = 3


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
    ],
)
def test_an_impossible_value_is_refused_by_name(name, value):
    with pytest.raises(ConfigError) as caught:
        LSTRConfig(**{name: value})
    assert name in str(caught.value) and str(value) in str(caught.value)
    assert caught.value.hint


def test_one_stream_may_be_absent_but_not_both():
    assert LSTRConfig(flow_dim=0).input_dim == 2048
    with pytest.raises(ConfigError, match="rgb_dim"):
        LSTRConfig(rgb_dim=0, flow_dim=0)


def test_override_reads_text_as_the_type_of_the_field():
    config = override(LSTRConfig(), {"n_heads": "8", "dropout": "0", "grid": "sliding"})
    assert config == LSTRConfig(n_heads=8, dropout=0.0, grid="sliding")
    assert type(config.n_heads) is int and type(config.dropout) is float


def test_override_of_any_dataclass():
    @dataclass(frozen=True)
    class Recipe:
        fast: bool = False
        crops: tuple[int, ...] = (1, 10)
        limit: int | None = None

    assert override(Recipe(), {"fast": "yes", "crops": "3,4", "limit": "5"}) == Recipe(True, (3, 4), 5)
    with pytest.raises(ConfigError, match="fast"):
        override(Recipe(), {"fast": "perhaps"})


@pytest.mark.parametrize("value", ["many", "8.5", ""])
def test_override_refuses_text_of_another_type(value):
    with pytest.raises(ConfigError, match="n_heads"):
        override(LSTRConfig(), {"n_heads": value})


def test_override_of_an_unknown_name_lists_the_known():
    with pytest.raises(ConfigError) as caught:
        override(LSTRConfig(), {"heads": "8"})
    assert "heads" in str(caught.value) and "n_heads" in caught.value.hint


def test_override_still_validates():
    with pytest.raises(ConfigError, match="n_heads"):
        override(LSTRConfig(), {"n_heads": "7"})


def test_json_round_trip_and_refusals():
    config = LSTRConfig(d_model=64, grid="sliding", dropout=0.0)
    assert from_json(to_json(config)) == config
    assert from_json("{}") == LSTRConfig()
    for text in ("[]", "{", '{"colour": 1}', '{"d_model": "x"}', '{"d_model": null}'):
        with pytest.raises(ConfigError):
            from_json(text)


def test_exit_codes():
    codes = [kind("x", "y").exit_code for kind in (LstrError, ConfigError, LabelsError, CheckpointError)]
    assert codes == [1, 2, 2, 4]


def test_importing_the_package_does_not_import_torch():
    """`lstr --version` must answer at once."""
    code = "import sys, lstr, lstr.config, lstr.errors; print('torch' in sys.modules, 'numpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]
