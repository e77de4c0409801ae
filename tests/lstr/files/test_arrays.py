"""Arrays as anybody may have stored them: real numbers of any type are read, everything else is refused in a phrase."""

import re
from io import BytesIO

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.batch import predict
from lstr.errors import CheckpointError, LstrError
from lstr.files.arrays import open_array, tensor_of
from lstr.kinds import configure, make_model
from tests.support.feature_set import TINY

ROWS = np.random.default_rng(0).integers(-90, 90, (24, 8)).astype(np.float32)  # exact in every type below
TYPES = ["<f4", ">f4", "<f2", ">f2", "<f8", ">f8", "g", "i1", ">i2", "<i4", ">i8"]
CLAIMED = "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000, 3072)}"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return make_model(configure(rgb_dim=5, flow_dim=3, **TINY), 3).eval()


def header(text: str, data: bytes = b"\0" * 64) -> bytes:
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.encode().ljust(117) + b"\n" + data


def saved(array: np.ndarray) -> bytes:
    content = BytesIO()
    np.save(content, array, allow_pickle=True)
    return content.getvalue()


def archived() -> bytes:
    content = BytesIO()
    np.savez(content, rgb=ROWS)
    return content.getvalue()


REFUSED = {
    "empty": (b"", "empty"),
    "npz": (archived(), ".npz archive"),
    "text file": (b"this is no array", "no .npy"),
    "complex": (saved(ROWS.astype(np.complex64)), "complex64"),
    "strings": (saved(ROWS.astype("U5")), "text"),
    "objects": (saved(np.array([{}, 1], object)), "Python objects"),
    "records": (saved(np.zeros(3, "i4,f4")), "records"),
    "times": (saved(np.zeros(3, "M8[s]")), "datetime64"),
    "1.2 TB": (header(CLAIMED), "claims 1.23e+12 bytes"),
    "more than 64 bits": (header(CLAIMED.replace("100000000", "9" * 30)), "bytes"),
    "negative": (header(CLAIMED.replace("100000000", "-4")), "shape"),
    "cut": (saved(ROWS)[:-1], "claims"),
    "no literal": (header("{'descr': " + "[" * 90), "header"),
    "cut header": (saved(ROWS)[:40], "header"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_array_of_numbers_is_refused(tmp_path, name):
    content, phrase = REFUSED[name]
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(phrase)):
        open_array(tmp_path / "x.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_gives_the_same_scores(tmp_path, model, dtype, order):
    np.save(tmp_path / "x.npy", ROWS.astype(dtype, order=order))
    array = open_array(tmp_path / "x.npy")
    assert np.array_equal(np.asarray(array, np.float32), ROWS)
    assert torch.equal(predict(model, array), predict(model, ROWS))
    state, expected = streaming.create(model), streaming.create(model)
    for row, exact in zip(array[:3], ROWS, strict=False):
        scores = streaming.step(model, state, row[:5], row[5:])
        assert torch.equal(scores, streaming.step(model, expected, exact[:5], exact[5:]))


@pytest.mark.parametrize(
    "values", [ROWS[0].astype(np.complex64), ROWS[0].astype("U5"), torch.zeros(8, dtype=torch.cfloat)]
)
def test_a_chunk_of_no_numbers_is_refused(model, values):
    with pytest.raises(ValueError):
        tensor_of(values)
    with pytest.raises(LstrError, match="rgb features are no numbers"):
        streaming.step(model, streaming.create(model), values[:5], values[5:])


@pytest.mark.parametrize(
    "chunks",
    [2**70, [2**70], torch.tensor([2**63], dtype=torch.uint64), torch.tensor([-1]), torch.tensor([1.5]), "many",
     torch.zeros(1, dtype=torch.int64).expand(10**12), torch.tensor(3)],
)  # fmt: skip
def test_a_state_with_numbers_that_are_no_counts(model, tmp_path, chunks):
    streaming.save(tmp_path / "state.pt", streaming.create(model))
    content = torch.load(tmp_path / "state.pt", weights_only=True)
    torch.save({**content, "chunks": chunks}, tmp_path / "state.pt")
    with pytest.raises(CheckpointError, match=r"state.pt is damaged") as caught:
        streaming.restore(tmp_path / "state.pt", model)
    assert caught.value.hint


@pytest.mark.parametrize("tensor", [2**70, None, torch.zeros(1, dtype=torch.cfloat), "x"])
def test_a_state_with_other_tensors(model, tmp_path, tensor):
    streaming.save(tmp_path / "state.pt", streaming.create(model))
    content = torch.load(tmp_path / "state.pt", weights_only=True)
    for part in (dict.fromkeys(content["tensors"], tensor), {}, 2**70):
        torch.save({**content, "tensors": part}, tmp_path / "state.pt")
        with pytest.raises(CheckpointError, match=r"state.pt is damaged"):
            streaming.restore(tmp_path / "state.pt", model)


@pytest.mark.parametrize("number", [str(10**400), "9" * 5000, "1e400", "NaN", "-3", str(2**63), "1.5", "[1]", '"x"'])
@pytest.mark.parametrize("name", ["long_length", "dropout"])
def test_a_state_of_a_model_of_such_sizes(model, tmp_path, name, number):
    streaming.save(tmp_path / "state.pt", streaming.create(model))
    content = torch.load(tmp_path / "state.pt", weights_only=True)
    config = re.sub(rf'"{name}":[^,}}]*', f'"{name}":{number}', content["config"])
    torch.save({**content, "config": config}, tmp_path / "state.pt")
    with pytest.raises(LstrError) as caught:
        streaming.restore(tmp_path / "state.pt", model)
    assert len(str(caught.value)) < 300 and caught.value.hint
