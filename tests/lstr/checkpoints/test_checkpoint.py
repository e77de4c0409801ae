"""Checkpoints: saving, loading, files of the published code, and files that are refused."""

import json
import pickle
import sys

import pytest
import torch

from lstr import checkpoint
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import configure
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.models.lstr import LSTR
from tests.support.processes import check_process
from tests.support.tiny_models import TINY, tiny

CLASSES = ("Background", "A", "B")
MEAN = torch.ones(3, requires_grad=True)


@pytest.fixture
def model():
    return tiny(n_classes=3)


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "best.pt"
    calibration = {"flow": {"bn.running_mean": MEAN}}
    checkpoint.save(path, model, CLASSES, {"flow": "tvl1"}, {"mAP": 0.5}, {"epoch": 3}, calibration)
    return path


def write_published(path, n_classes=22, tensors=None, **settings):
    """A checkpoint with random weights in the format of the published code; a tensor of None is missing."""
    model = LSTR(configure(**{**TINY, "rgb_dim": 2048, "flow_dim": 1024, **settings}), n_classes)
    state = {name: tensor for name, tensor in {**model.state_dict(), **(tensors or {})}.items() if tensor is not None}
    optimizer = {"state": {}, "param_groups": [{"lr": 7e-5}]}
    torch.save({"epoch": 7, "model_state_dict": state, "optimizer_state_dict": optimizer}, path)
    return model.eval()


def test_a_file_of_tensors_and_json_has_the_saved_values(model, saved):
    loaded = checkpoint.load(saved)
    assert (loaded.config, loaded.classes) == (model.config, CLASSES)
    assert (loaded.recipe, loaded.metrics, loaded.extra) == ({"flow": "tvl1"}, {"mAP": 0.5}, {"epoch": 3})
    assert torch.equal(loaded.calibration["flow"]["bn.running_mean"], MEAN)
    assert loaded.versions.keys() == {"lstr", "python", "torch", "numpy"}
    assert loaded.format == "lstr-checkpoint/1"
    content = torch.load(saved, weights_only=True)
    assert "enc_modules.0.layers.0.multihead_attn.in_proj_weight" in content.pop("model_state_dict")
    assert content.pop("calibration") and all(isinstance(value, str) for value in content.values())
    assert json.loads(content["classes"]) == list(CLASSES)


@pytest.mark.parametrize(
    ("changes", "overrides", "values"),
    [
        ({"encoder": "one-stage"}, {"encoder": "none"}, "enc_modules.0"),
        ({}, {"anticipation": 3}, "future_tokens.weight"),
        ({"anticipation": 3}, {"anticipation": 2}, "anticipation"),
        ({"kind": "rnn"}, {"cell": "gru"}, r"\(48, 16\)"),
        ({"kind": "trn"}, {"kind": "rnn"}, "tensors"),
        ({"kind": "testra", "grid": "anchored"}, {"kind": "lstr", "grid": "fixed"}, "testra"),
        ({}, {"d_model": "32"}, "d_model.* 32 .* 16"),
        ({}, {"rgb_dim": 6}, " 9 .* 8"),
        (None, {"d_feedforward": 16}, "d_feedforward.* 16 .* 24"),
        (None, {"n0": "5"}, "n0.* 5 .* 3"),
        (None, {"n1": 8}, "n1.* 8 .* 4"),
        (None, {"l_enc": 1}, "l_enc.* 1 .* 2"),
        (None, {"l_dec": "4"}, "l_dec.* 4 .* 2"),
        (None, {"rgb_dim": 1024, "flow_dim": 1024}, "2048 .* 3072"),
        (None, {"gru": "true"}, "gru"),
    ],
    ids=str,
)
def test_settings_that_contradict_the_tensors_are_refused(tmp_path, changes, overrides, values):
    """With `changes` a checkpoint of this project, with None one of the published code."""
    if changes is None:
        write_published(tmp_path / "a.pt")
    else:
        checkpoint.save(tmp_path / "a.pt", tiny(n_classes=3, **changes), CLASSES, None, {})
    with pytest.raises((CheckpointError, ConfigError), match=values):
        checkpoint.load(tmp_path / "a.pt", {"n_heads": 4, **overrides})


@pytest.mark.parametrize(
    ("name", "classes", "metrics"),
    [("a.pt", CLASSES[:2], {}), ("a.pt", CLASSES, {"mAP": object()}), ("missing/a.pt", CLASSES, {})],
)
def test_invalid_values_are_not_saved(model, tmp_path, name, classes, metrics):
    with pytest.raises(CheckpointError):
        checkpoint.save(tmp_path / name, model, classes, None, metrics)
    assert not list(tmp_path.iterdir())


def test_a_published_file_is_read(tmp_path):
    model = write_published(tmp_path / "epoch-7.pth")
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


def test_a_published_file_has_its_own_widths_and_classes(tmp_path):
    path = tmp_path / "a.pth"
    write_published(path, 31, flow_dim=2048, l_enc=1, l_dec=3)
    loaded = checkpoint.load(path)
    assert (loaded.config.rgb_dim, loaded.config.flow_dim) == (2048, 2048)
    assert (loaded.config.l_enc, loaded.config.l_dec) == (1, 3)
    assert loaded.classes[:2] == ("Background", "class_1") and len(loaded.classes) == 31
    write_published(path, 31, rgb_dim=5, flow_dim=3)
    with pytest.raises(CheckpointError, match="8"):
        checkpoint.load(path)
    assert checkpoint.load(path, {"rgb_dim": 3, "flow_dim": 5}).config.flow_dim == 5
    write_published(path, 31, long_length=0)
    assert checkpoint.load(path).config.n_long == 0


@pytest.mark.parametrize(
    ("name", "tensor", "value"),
    [
        ("dec_modules.norm.bias", None, ""),
        ("final.weight", torch.zeros(3), ""),
        ("dec_modules.norm.bias", torch.zeros(3), ""),
        ("dec_modules.norm.bias", torch.full((16,), float("nan")), ""),
        ("classifier.weight", None, "d_model"),
    ],
    ids=["missing", "unknown", "other shape", "not finite", "needed for the settings"],
)
def test_a_wrong_tensor_is_named(tmp_path, name, tensor, value):
    write_published(tmp_path / "a.pth", tensors={name: tensor})
    with pytest.raises(CheckpointError, match=value or name):
        checkpoint.load(tmp_path / "a.pth")


def test_code_in_a_file_is_not_run(tmp_path):
    marker = tmp_path / "marker"

    class Trap:
        def __reduce__(self):
            return (marker.touch, ())

    torch.save({"model_state_dict": {"a": torch.zeros(1)}, "trap": Trap()}, tmp_path / "zip.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Trap(), protocol=2))
    for name in ("zip.pt", "plain.pt"):
        with pytest.raises(CheckpointError):
            checkpoint.load(tmp_path / name)
    assert not marker.exists()


DAMAGES = {
    **{f"first {n} bytes": lambda content, n=n: content[:n] for n in (0, 1, 100)},
    "first half": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[: len(content) * 99 // 100],
    "zeros": lambda content: content[: (at := content.index(b"lstr-checkpoint/1")) - 40] + bytes(40) + content[at:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(saved, damage):
    saved.write_bytes(DAMAGES[damage](saved.read_bytes()))
    with pytest.raises(CheckpointError, match=r"best\.pt"):
        checkpoint.load(saved)


@pytest.mark.parametrize("name", ["missing.pt", ""])
def test_a_missing_file_and_a_folder_are_refused(tmp_path, name):
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / name)


OTHER_FILES = [[1, 2], {"epoch": 3}, {"model_state_dict": {}}, {"model_state_dict": {"a": 1}}]
CHANGES = [{"format": "lstr-checkpoint/9"}, {"classes": '["A"]'}, {"classes": "["}, {"metrics": 3}, {"recipe": None}]
CHANGES += [{"calibration": {"flow": 3}}, {"classes": '["Background", "A", "\\ud800"]'}]


@pytest.mark.parametrize("content", [*OTHER_FILES, *CHANGES], ids=str)
def test_other_content_is_refused(saved, content):
    torch.save({**torch.load(saved, weights_only=True), **content} if content in CHANGES else content, saved)
    with pytest.raises(CheckpointError):
        checkpoint.load(saved)


@pytest.mark.long
def test_loading_does_not_import_the_compiler_of_torch(saved):
    """The import takes a second of each start."""
    program = f"import sys; from lstr import checkpoint; checkpoint.load({str(saved)!r}); "
    check_process(sys.executable, "-c", program + "sys.exit('torch._dynamo' in sys.modules)")
