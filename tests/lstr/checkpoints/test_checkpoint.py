"""Checkpoints: what comes back, and how a bad file is told from a good one."""

import json
import os
import pickle
import subprocess
import sys

import pytest
import torch

from lstr import checkpoint
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import configure
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.models.lstr import LSTR
from tests.support.tiny_models import TINY, tiny

CLASSES = ("Background", "A", "B")


@pytest.fixture
def model():
    return tiny(n_classes=3)


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "best.pt"
    checkpoint.save(path, model, CLASSES, {"flow": "tvl1"}, {"mAP": 0.5}, {"epoch": 3})
    return path


def published(path, n_classes=22, config=None, **changes):
    """A file as the published code leaves it, of random weights."""
    model = LSTR(config or configure(**{**TINY, "rgb_dim": 2048, "flow_dim": 1024}), n_classes)
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


def test_the_file_holds_only_tensors_and_json_text(saved):
    content = torch.load(saved, weights_only=True)
    tensors = content.pop("model_state_dict")
    assert content.pop("calibration") == {}
    assert all(isinstance(value, str) for value in content.values())
    assert json.loads(content["classes"]) == list(CLASSES)
    assert "enc_modules.0.layers.0.multihead_attn.in_proj_weight" in tensors


@pytest.mark.parametrize(
    "changes, overrides, named",
    [
        ({"encoder": "one-stage"}, {"encoder": "none"}, "enc_modules.0"),
        ({"integration": "average"}, {"integration": "concatenation"}, "classifier.weight"),
        ({"encoder": "projection"}, {"n1": 5}, "enc_projection.weight"),
        ({}, {"gru": True}, "gru.bias_hh_l0"),
        ({}, {"anticipation": 3}, "future_tokens.weight"),
        ({"anticipation": 3}, {"anticipation": 2}, "anticipation"),
        ({"kind": "rnn"}, {"cell": "gru"}, r"\(48, 16\)"),
        ({"kind": "trn"}, {"kind": "rnn"}, "tensors"),
        ({"kind": "lfb"}, {"l_dec": 3}, "blocks.2"),
        ({}, {"kind": "lfb"}, "blocks"),
        ({"kind": "testra", "grid": "anchored"}, {"kind": "lstr", "grid": "fixed"}, "testra"),
        ({}, {"d_model": "32"}, "d_model.* 32 .* 16"),
        ({}, {"rgb_dim": 6}, " 9 .* 8"),
        ({}, {"heads": 2}, "heads"),
        (None, {"d_model": "32"}, "d_model.* 32 .* 16"),
        (None, {"d_feedforward": 16}, "d_feedforward.* 16 .* 24"),
        (None, {"n0": "5"}, "n0.* 5 .* 3"),
        (None, {"n1": 8}, "n1.* 8 .* 4"),
        (None, {"l_enc": 1}, "l_enc.* 1 .* 2"),
        (None, {"l_dec": "4"}, "l_dec.* 4 .* 2"),
        (None, {"rgb_dim": 1024, "flow_dim": 1024}, "2048 .* 3072"),
        (None, {"long_length": 0}, "long_memory"),
        (None, {"encoder": "none"}, "enc_modules.0"),
        (None, {"kind": "rnn"}, "tensors"),
        (None, {"gru": "true"}, "gru"),
    ],
    ids=str,
)
def test_a_model_of_another_shape_or_kind_is_refused(tmp_path, changes, overrides, named):
    """Of ours, and of published code: whoever runs it must learn it, not see scores of something else."""
    if changes is None:
        published(tmp_path / "a.pt")
    else:
        checkpoint.save(tmp_path / "a.pt", tiny(n_classes=3, **changes), CLASSES, None, {})
    with pytest.raises((CheckpointError, ConfigError), match=named) as caught:
        checkpoint.load(tmp_path / "a.pt", {"n_heads": 4, **overrides})
    assert caught.value.hint


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
    for name, classes, metrics in (
        ("a.pt", ("Background", "A"), {}),
        ("a.pt", CLASSES, {"mAP": object()}),
        ("none/a.pt", CLASSES, {}),
    ):
        with pytest.raises(CheckpointError):
            checkpoint.save(tmp_path / name, model, classes, None, metrics)
    assert not list(tmp_path.iterdir())


def test_published_file(tmp_path):
    model = published(tmp_path / "epoch-7.pth")
    loaded = checkpoint.load(tmp_path / "epoch-7.pth", {"n_heads": "4", "work_length": "6", "long_length": 16})
    published_grid = {"grid": "sliding", "positions": "slot", "dropout": loaded.config.dropout}
    assert loaded.config == model.config.replace(**published_grid)
    assert loaded.classes == THUMOS_CLASSES and len(set(loaded.classes)) == 22
    assert (loaded.extra, loaded.format) == ({"epoch": 7}, "published")
    assert loaded.assumed == {"kind": "lstr", "long_stride": 4}
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor), name
    longer = checkpoint.load(tmp_path / "epoch-7.pth", {"long_length": 24_000, "long_stride": 4})
    assert longer.model.pos_encoding.pe.shape[0] == 6032, "beyond the published table"


def test_published_file_of_other_widths_and_classes(tmp_path):
    path = tmp_path / "a.pth"
    sized = {**TINY, "rgb_dim": 2048, "flow_dim": 2048}
    published(path, 31, configure(**{**sized, "l_enc": 1, "l_dec": 3}))
    loaded = checkpoint.load(path)
    assert (loaded.config.rgb_dim, loaded.config.flow_dim) == (2048, 2048)
    assert (loaded.config.l_enc, loaded.config.l_dec) == (1, 3)
    assert loaded.classes[:2] == ("Background", "class_1") and len(loaded.classes) == 31
    published(path, 31, configure(**TINY))
    with pytest.raises(CheckpointError, match="8"):
        checkpoint.load(path)
    assert checkpoint.load(path, {"rgb_dim": 3, "flow_dim": 5}).config.flow_dim == 5
    published(path, 31, configure(**{**sized, "flow_dim": 1024, "long_length": 0}))
    assert checkpoint.load(path).config.n_long == 0


@pytest.mark.parametrize(
    ("name", "tensor", "named"),
    [
        ("dec_modules.norm.bias", None, ""),
        ("final.weight", torch.zeros(3), ""),
        ("dec_modules.norm.bias", torch.zeros(3), ""),
        ("dec_modules.norm.bias", torch.full((16,), float("nan")), ""),
        ("classifier.weight", None, "d_model"),
    ],
    ids=range(5),
)
def test_missing_unknown_misshapen_and_broken_tensors_are_named(tmp_path, name, tensor, named):
    published(tmp_path / "a.pth", **{name: tensor})
    with pytest.raises(CheckpointError, match=named or name):
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
        with pytest.raises(CheckpointError):
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
    (tmp_path / "a.txt").write_text("weights: none")
    contents = [[1, 2], {"epoch": 3}, {"model_state_dict": {}}, {"model_state_dict": {"a": 1}}]
    for n, content in enumerate(contents):
        torch.save(content, tmp_path / f"{n}.pt")
    for name in ("none.pt", "", "a.txt", *(f"{n}.pt" for n in range(len(contents)))):
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(tmp_path / name)
        assert caught.value.hint


@pytest.mark.parametrize(
    "change",
    [{"format": "lstr-checkpoint/9"}, {"classes": '["A"]'}, {"classes": "["}, {"metrics": 3}, {"recipe": None}],
)
def test_a_checkpoint_of_ours_that_is_not_whole_is_refused(saved, change):
    torch.save({**torch.load(saved, weights_only=True), **change}, saved)
    with pytest.raises(CheckpointError):
        checkpoint.load(saved)


@pytest.mark.long
def test_loading_imports_no_compiler(saved):
    """It would take a second of each start."""
    program = f"import sys; from lstr import checkpoint; checkpoint.load({str(saved)!r}); "
    program += "sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
