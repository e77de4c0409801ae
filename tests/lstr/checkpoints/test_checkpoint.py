"""Checkpoints and saved streams: what comes back, and how a bad file is told from a good one."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest
import torch

from lstr import batch, checkpoint, streaming
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import configure, make_model
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.models.lstr import LSTR

TINY = dict(d_model=16, n_heads=4, d_feedforward=24, work_length=6, long_length=16, n0=3, n1=4)
CLASSES = ("Background", "A", "B")
DESIGNS = [
    {},
    {"encoder": "one-stage", "gru": True, "grid": "sliding", "positions": "distance"},
    {"encoder": "stage2-self-attention", "integration": "average"},
    {"encoder": "projection", "integration": "concatenation", "anticipation": 2},
    {"encoder": "none", "gru": True, "anticipation": 2},
    {"encoder": "joined"},
    {"encoder": "self-attention", "integration": "mlp"},
    {"long_length": 0},
    *({"kind": "rnn", "cell": cell} for cell in ("lstm", "gru")),
    *({"kind": kind} for kind in ("trn", "lfb", "miniroad", "testra", "gatehub", "oadtr", "colar")),
    {"kind": "trn", "d_token": 6, "shared_classifier": True, "decoder_from": 0},
]


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    return make_model(configure(**{"rgb_dim": 5, "flow_dim": 3, **TINY, **changes}), 3).eval()


def video(length, seed=0):
    return torch.randn(length, 8, generator=torch.Generator().manual_seed(seed))


def run(model, features, state):
    """Scores of features (T, B, 8) of a state of B streams."""
    return torch.stack([streaming.step_ahead(model, state, row[:, :5], row[:, 5:]) for row in features])


@pytest.fixture
def model():
    return tiny()


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "best.pt"
    checkpoint.save(path, model, CLASSES, {"flow": "tvl1"}, {"mAP": 0.5}, {"epoch": 3})
    return path


def published(path, n_classes=22, config=None, **changes):
    """A file as the published code leaves it, of random weights."""
    model = LSTR(config or configure(rgb_dim=2048, flow_dim=1024, **TINY), n_classes)
    tensors = {**model.state_dict(), **changes}
    content = {"epoch": 7, "model_state_dict": {k: v for k, v in tensors.items() if v is not None}}
    torch.save({**content, "optimizer_state_dict": {"state": {}, "param_groups": [{"lr": 7e-5}]}}, path)
    return model.eval()


def test_round_trip(model, saved):
    loaded = checkpoint.load(saved)
    assert (loaded.config, loaded.classes) == (model.config, CLASSES)
    assert (loaded.recipe, loaded.metrics, loaded.extra) == ({"flow": "tvl1"}, {"mAP": 0.5}, {"epoch": 3})
    assert loaded.versions.keys() == {"lstr", "python", "torch", "numpy"}
    assert loaded.format == "lstr-checkpoint/1"


@pytest.mark.parametrize("changes", DESIGNS, ids=str)
def test_round_trip_of_every_kind(changes, tmp_path):
    model = tiny(**changes)
    checkpoint.save(tmp_path / "a.pt", model, CLASSES, None, {})
    loaded = checkpoint.load(tmp_path / "a.pt")
    assert type(loaded.model) is type(model) and loaded.config == model.config == loaded.model.config
    assert not loaded.model.training and loaded.assumed == {}
    assert torch.equal(batch.predict_ahead(loaded.model, video(40)), batch.predict_ahead(model, video(40)))


def test_a_model_of_another_kind_is_refused_by_its_tensors(tmp_path):
    """A design says less by its shapes than the proposed one, but its tensors have names."""
    for changes, overrides, words in (
        ({"encoder": "one-stage"}, {"encoder": "none"}, r"unknown tensors: enc_modules\.0"),
        ({"integration": "average"}, {"integration": "concatenation"}, r"classifier\.weight has shape \(3, 16\)"),
        ({"encoder": "projection"}, {"n1": 5}, r"enc_projection\.weight has shape \(4, 4\), the model takes \(5, 4\)"),
        ({}, {"gru": True}, r"lacks tensors: gru\.bias_hh_l0"),
        ({}, {"anticipation": 3}, r"lacks tensors: future_tokens\.weight"),
        ({"anticipation": 3}, {"anticipation": 2}, "anticipation is 2 in the configuration but 3 in the"),
        ({"kind": "rnn"}, {"cell": "gru"}, r"shape \(64, 16\), the model takes \(48, 16\)"),
        ({"kind": "trn"}, {"kind": "rnn"}, "lacks tensors"),
        ({"kind": "lfb"}, {"l_dec": 3}, r"lacks tensors: blocks\.2"),
        ({}, {"kind": "lfb"}, "lacks tensors: blocks"),
    ):
        checkpoint.save(tmp_path / "a.pt", tiny(**changes), CLASSES, None, {})
        with pytest.raises(CheckpointError, match=words) as caught:
            checkpoint.load(tmp_path / "a.pt", overrides)
        assert caught.value.hint


def test_the_file_holds_only_tensors_and_json_text(saved):
    content = torch.load(saved, weights_only=True)
    tensors = content.pop("model_state_dict")
    assert content.pop("calibration") == {}
    assert all(isinstance(value, str) for value in content.values())
    assert json.loads(content["classes"]) == list(CLASSES)
    assert "enc_modules.0.layers.0.multihead_attn.in_proj_weight" in tensors


def test_statistics_of_untrained_backbones_travel_with_the_model(model, tmp_path):
    path = tmp_path / "a.pt"
    mean = torch.randn(3, requires_grad=True)
    checkpoint.save(path, model, CLASSES, None, {}, None, {"flow": {"bn.running_mean": mean}})
    assert torch.equal(checkpoint.load(path).calibration["flow"]["bn.running_mean"], mean)
    torch.save({**torch.load(path, weights_only=True), "calibration": {"flow": 3}}, path)
    with pytest.raises(CheckpointError, match="calibration"):
        checkpoint.load(path)


def test_a_failed_save_leaves_the_old_file(model, saved, monkeypatch):
    before = saved.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space"):
        checkpoint.save(saved, model, CLASSES, None, {})
    assert saved.read_bytes() == before and os.listdir(saved.parent) == ["best.pt"]


def test_what_cannot_be_saved_is_refused(model, tmp_path):
    with pytest.raises(CheckpointError, match="2 names"):
        checkpoint.save(tmp_path / "a.pt", model, ("Background", "A"), None, {})
    with pytest.raises(CheckpointError, match="metrics"):
        checkpoint.save(tmp_path / "a.pt", model, CLASSES, None, {"mAP": object()})
    with pytest.raises(CheckpointError, match="written"):
        checkpoint.save(tmp_path / "none" / "a.pt", model, CLASSES, None, {})
    assert not list(tmp_path.iterdir())


def test_published_file(tmp_path):
    model = published(tmp_path / "epoch-7.pth")
    loaded = checkpoint.load(tmp_path / "epoch-7.pth", {"n_heads": "4", "work_length": "6", "long_length": 16})
    assert (loaded.config.grid, loaded.config.positions) == ("sliding", "slot")
    known = {name: getattr(loaded.config, name) for name in ("d_model", "d_feedforward", "n0", "n1", "l_enc", "l_dec")}
    assert known == dict(d_model=16, d_feedforward=24, n0=3, n1=4, l_enc=2, l_dec=2)
    assert (loaded.config.rgb_dim, loaded.config.flow_dim) == (2048, 1024)
    assert loaded.classes == THUMOS_CLASSES and len(set(loaded.classes)) == 22
    assert (
        loaded.extra == {"epoch": 7}
        and loaded.format == "published"
        and loaded.assumed == {"kind": "lstr", "long_stride": 4}
    )
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor), name


def test_published_file_of_other_widths_and_classes(tmp_path):
    path = tmp_path / "a.pth"
    published(path, 31, configure(rgb_dim=2048, flow_dim=2048, **{**TINY, "l_enc": 1, "l_dec": 3}))
    loaded = checkpoint.load(path)
    assert (loaded.config.rgb_dim, loaded.config.flow_dim) == (2048, 2048)
    assert (loaded.config.l_enc, loaded.config.l_dec) == (1, 3)
    assert loaded.classes[:2] == ("Background", "class_1") and len(loaded.classes) == 31
    published(path, 31, configure(rgb_dim=5, flow_dim=3, **TINY))
    with pytest.raises(CheckpointError, match="8 wide"):
        checkpoint.load(path)
    assert checkpoint.load(path, {"rgb_dim": 3, "flow_dim": 5}).config.flow_dim == 5
    published(path, 31, configure(rgb_dim=2048, flow_dim=1024, **{**TINY, "long_length": 0}))
    assert checkpoint.load(path).config.n_long == 0


def test_positions_beyond_the_published_table(tmp_path):
    published(tmp_path / "a.pth")
    loaded = checkpoint.load(tmp_path / "a.pth", {"long_length": 24_000, "long_stride": 4})
    assert loaded.model.pos_encoding.pe.shape[0] == 6032


@pytest.mark.parametrize(
    ("overrides", "words"),
    [({"d_model": "32"}, "32 .* but 16"), ({"rgb_dim": 6}, "9 .* but 8"), ({"heads": 2}, "heads")],
)
def test_contradictions_name_both_values(saved, overrides, words):
    with pytest.raises((CheckpointError, ConfigError), match=words):
        checkpoint.load(saved, overrides)


def test_what_a_published_file_contradicts(tmp_path):
    """Whoever runs it must learn that the setting is wrong, not see scores of something else."""
    published(tmp_path / "a.pth")
    for overrides, words in (
        ({"d_model": "32"}, "d_model is 32 .* but 16"),
        ({"d_feedforward": 16}, "d_feedforward is 16 .* but 24"),
        ({"n0": "5"}, "n0 is 5 .* but 3"),
        ({"n1": 8}, "n1 is 8 .* but 4"),
        ({"l_enc": 1}, "l_enc is 1 .* but 2"),
        ({"l_dec": "4"}, "l_dec is 4 .* but 2"),
        ({"rgb_dim": 1024, "flow_dim": 1024}, "input_dim is 2048 .* but 3072"),
        ({"long_length": 0}, "long_memory is 0 .* but 1"),
        ({"encoder": "none"}, r"unknown tensors: enc_modules\.0"),
        ({"kind": "rnn"}, "lacks tensors"),
        ({"gru": "true"}, r"lacks tensors: gru\."),
    ):
        with pytest.raises(CheckpointError, match=words) as caught:
            checkpoint.load(tmp_path / "a.pth", {"n_heads": 4, **overrides})
        assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dec_modules.norm.bias": None}, r"lacks tensors: dec_modules\.norm\.bias"),
        ({"final.weight": torch.zeros(3)}, r"unknown tensors: final\.weight"),
        ({"dec_modules.norm.bias": torch.zeros(3)}, r"dec_modules\.norm\.bias has shape \(3,\), .* \(16,\)"),
        ({"dec_modules.norm.bias": torch.full((16,), float("nan"))}, "finite"),
        ({"classifier.weight": None}, "lacks"),
    ],
    ids=range(5),
)
def test_missing_unknown_misshapen_and_broken_tensors_are_named(tmp_path, changes, words):
    published(tmp_path / "a.pth", **changes)
    with pytest.raises(CheckpointError, match=words):
        checkpoint.load(tmp_path / "a.pth")


def test_a_file_that_runs_code_is_refused(tmp_path):
    marker = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return (marker.touch, ())

    torch.save({"model_state_dict": {"a": torch.zeros(1)}, "trap": Trap()}, tmp_path / "zip.pt")
    with (tmp_path / "plain.pt").open("wb") as file:
        pickle.dump(Trap(), file, protocol=2)
    for name in ("zip.pt", "plain.pt"):
        with pytest.raises(CheckpointError, match="run any code"):
            checkpoint.load(tmp_path / name)
    assert not marker.exists()


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99, None])
def test_a_file_cut_short_or_changed_is_refused(saved, kept):
    data = bytearray(saved.read_bytes())
    if kept is None:
        start = data.index(b"lstr-checkpoint/1")
        data[start - 40 : start] = bytes(40)
    saved.write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    with pytest.raises(CheckpointError, match=r"best\.pt") as caught:
        checkpoint.load(saved)
    assert caught.value.hint


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="Checkpoint not found"):
        checkpoint.load(tmp_path / "none.pt")
    with pytest.raises(CheckpointError, match="folder"):
        checkpoint.load(tmp_path)
    (tmp_path / "a.txt").write_text("weights: none")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        checkpoint.load(tmp_path / "a.txt")
    for content in ([1, 2], {"epoch": 3}, {"model_state_dict": {}}, {"model_state_dict": {"a": 1}}):
        torch.save(content, tmp_path / "a.pt")
        with pytest.raises(CheckpointError, match="model_state_dict"):
            checkpoint.load(tmp_path / "a.pt")


@pytest.mark.parametrize(
    "change",
    [{"format": "lstr-checkpoint/9"}, {"classes": '["A"]'}, {"classes": "["}, {"metrics": 3}, {"recipe": None}],
)
def test_a_checkpoint_of_ours_that_is_not_whole_is_refused(saved, change):
    torch.save({**torch.load(saved, weights_only=True), **change}, saved)
    with pytest.raises(CheckpointError):
        checkpoint.load(saved)


@pytest.mark.long
def test_loading_imports_no_compiler(tmp_path):
    """It would take a second of each start."""
    checkpoint.save(tmp_path / "model.pt", tiny(), CLASSES, None, {})
    program = f"import sys; from lstr import checkpoint; checkpoint.load({str(tmp_path / 'model.pt')!r}); "
    program += "sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
