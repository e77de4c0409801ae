"""Arrays of real numbers of any type are read; other files are refused."""

from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from threading import Barrier, BrokenBarrierError

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.batch import predict
from lstr.errors import LstrError
from lstr.files.arrays import open_array
from lstr.pipelines.features.feature_files import open_file
from tests.support.tiny_models import tiny

ROWS = np.random.default_rng(0).integers(-90, 90, (24, 8)).astype(np.float32)  # exact in every type below
TYPES = ["<f4", ">f4", "<f2", ">f2", "<f8", ">f8", "g", "i1", ">i2", "<i4", ">i8"]
CLAIMED = "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000, 3072)}"


def header(text: str, data: bytes = b"\0" * 64) -> bytes:
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.encode().ljust(117) + b"\n" + data


def saved(array: np.ndarray, save=np.save) -> bytes:
    content = BytesIO()
    save(content, array)
    return content.getvalue()


REFUSED = {
    "empty": b"",
    "npz": saved(ROWS, np.savez),
    "text file": b"not an array",
    "complex": saved(ROWS.astype(np.complex64)),
    "strings": saved(ROWS.astype("U5")),
    "objects": saved(np.array([{}, 1], object)),
    "1.2 TB": header(CLAIMED),
    "more than 64 bits": header(CLAIMED.replace("100000000", "9" * 30)),
    "negative": header(CLAIMED.replace("100000000", "-4")),
    "cut": saved(ROWS)[:-1],
    "no literal": header("{'descr': " + "[" * 90),
    "cut header": saved(ROWS)[:40],
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_are_refused(tmp_path, name):
    (tmp_path / "x.npy").write_bytes(REFUSED[name])
    with pytest.raises(ValueError):
        open_array(tmp_path / "x.npy")


@pytest.mark.filterwarnings("error")  # torch warns of read-only memory maps
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", TYPES)
def test_scores_do_not_depend_on_the_type_of_the_array(tmp_path, dtype, order):
    np.save(tmp_path / "x.npy", ROWS.astype(dtype, order=order))
    array, model = open_array(tmp_path / "x.npy"), tiny(kind="rnn")
    assert np.array_equal(np.asarray(array, np.float32), ROWS)
    assert torch.equal(predict(model, array), predict(model, ROWS))
    state, expected = streaming.create(model), streaming.create(model)
    for row, float_row in zip(array[:3], ROWS[:3], strict=True):
        scores = streaming.step(model, state, row[:5], row[5:])
        assert torch.equal(scores, streaming.step(model, expected, float_row[:5], float_row[5:]))
    assert np.array_equal(open_file(tmp_path / "x.npy").open()[np.array([6, 0, 3])], ROWS[[6, 0, 3]])


@pytest.mark.parametrize(
    "values", [ROWS[0].astype(np.complex64), ROWS[0].astype("U5"), torch.zeros(8, dtype=torch.cfloat)]
)
def test_a_chunk_of_other_values_is_refused(values):
    model = tiny(kind="rnn")
    with pytest.raises(LstrError, match="rgb"):
        streaming.step(model, streaming.create(model), values[:5], values[5:])


def test_threads_parse_headers_in_turn(tmp_path, monkeypatch):
    """Python 3.11 raises SystemError if two threads parse headers at once."""
    both_inside, read = Barrier(2), np.lib.format.read_array_header_1_0
    np.save(tmp_path / "x.npy", ROWS)

    def read_checked(file):
        with pytest.raises(BrokenBarrierError):
            both_inside.wait(0.2)
        return read(file)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", read_checked)
    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(open_array, [tmp_path / "x.npy"] * 2))) == 2
