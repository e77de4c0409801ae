"""Saved streams: they continue to the bit with the same weights, and other models and damaged files are refused."""

import pytest
import torch

import lstr
from lstr import checkpoint, streaming
from lstr.errors import CheckpointError, LstrError
from lstr.kinds import KINDS
from tests.support.exportable import write_exportable
from tests.support.tiny_models import AVERAGED, DESIGNS, tiny, video

CLASSES = ("Background", "a", "b", "c", "d")
DESIGN_NUMBERS = (1, 6, 11, 12, 17, 22, 24)  # each encoder and each integration once
CASES = [{}, *({"kind": kind} for kind in KINDS if kind != "lstr"), *(DESIGNS[n] for n in DESIGN_NUMBERS), AVERAGED]


def run(model, features, state):
    return torch.stack([streaming.step_ahead(model, state, row[:, :5], row[:, 5:]) for row in features])


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_a_saved_stream_continues_to_the_bit(changes, tmp_path):
    """With streams of different ages, and with the same weights loaded from a checkpoint."""
    model, path = tiny(**changes), tmp_path / "a.stream"
    checkpoint.save(tmp_path / "best.pt", model, CLASSES, None, {})
    features = torch.stack([video(34, seed) for seed in range(2)], dim=1)
    state = streaming.create(model, 2)
    run(model, features[:20], state)
    streaming.reset(state, [1])
    run(model, features[20:25], state)
    streaming.save(path, state)
    expected = run(model, features[25:], state)
    loaded = checkpoint.load(tmp_path / "best.pt").model
    restored = streaming.restore(path, loaded)
    assert restored.chunks.tolist() == [25, 5] and torch.equal(run(loaded, features[25:], restored), expected)


def test_a_model_file_has_the_weights_of_its_checkpoint(tmp_path):
    packed = write_exportable(tmp_path)
    model = checkpoint.load(tmp_path / "0.pt").model
    streaming.save(tmp_path / "a.stream", streaming.create(model, like=streaming.create(model)))
    with lstr.load(packed.path, device="cpu") as detector:
        assert streaming.restore(tmp_path / "a.stream", detector.model).chunks.tolist() == [0]


def test_streams_of_other_models_and_other_files_are_refused(tmp_path):
    model, path = tiny(), tmp_path / "a.stream"
    streaming.save(path, streaming.create(model))
    for changes in ({"grid": "sliding"}, {"n0": 4}, {"d_model": 32}, {"kind": "lfb"}, {"seed": 1}):
        with pytest.raises(LstrError) as caught:
            streaming.restore(path, tiny(**changes))
        assert caught.value.hint
    with pytest.raises(LstrError, match="training"):
        streaming.restore(path, tiny().train())
    checkpoint.save(tmp_path / "best.pt", model, CLASSES, None, {})
    torch.save({"format": "lstr-stream/1"}, tmp_path / "old.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    for name in ("best.pt", "old.pt", "list.pt"):
        with pytest.raises(LstrError, match=f"{name} is not a saved stream"):
            streaming.restore(tmp_path / name, model)
    with pytest.raises(CheckpointError, match="written"):
        streaming.save(tmp_path / "none" / "a.stream", streaming.create(model))
    data = path.read_bytes()
    for kept in (0, 1, 100, len(data) // 2, len(data) - 20):
        path.write_bytes(data[:kept])
        with pytest.raises(CheckpointError, match=r"a\.stream"):
            streaming.restore(path, model)


NUMBERS = [str(10**400), "9" * 5000, "1e400", "NaN", "-3", str(2**63), "1.5", "[1]", '"x"']
DAMAGE = [
    *({"chunks": chunks} for chunks in (3, 2**70, [2**70], "many", torch.tensor([-1]), torch.tensor([1.5]))),
    {"chunks": torch.tensor([2**63], dtype=torch.uint64)},
    {"chunks": torch.zeros(1, dtype=torch.int64).expand(10**12)},
    {"chunks": torch.tensor(3)},
    *({"tensors": tensors} for tensors in ({}, 2**70, None, torch.zeros(1, dtype=torch.cfloat), "narrow")),
    {"config": None},
    {"precision": "bf16"},
    *({"config": f'{{"kind":"lstr","{name}":{number}}}'} for name in ("long_length", "dropout") for number in NUMBERS),
    *({"missing": name} for name in ("config", "chunks", "tensors", "weights")),
]


@pytest.mark.parametrize("change", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_stream_is_refused(tmp_path, change):
    model, path = tiny(), tmp_path / "a.stream"
    streaming.save(path, streaming.create(model))
    content = torch.load(path, weights_only=True)
    if isinstance(change.get("tensors"), str):
        change = {"tensors": {name: tensor[..., :1].clone() for name, tensor in content["tensors"].items()}}
    content.pop(change.get("missing"), None)
    torch.save({**content, **change}, path)
    with pytest.raises(LstrError) as caught:
        streaming.restore(path, model)
    assert caught.value.hint and len(str(caught.value)) < 300
