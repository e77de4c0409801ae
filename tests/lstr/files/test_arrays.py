"""Arrays as anybody may have stored them: real numbers of any type are read, everything else is refused in a phrase."""

import re
from io import BytesIO

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.batch import predict
from lstr.errors import LstrError
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
