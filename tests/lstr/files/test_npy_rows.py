"""Arrays that many threads read at once."""

import ast
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import numpy as np
import pytest

from lstr.files.arrays import open_array
from lstr.pipelines.features.feature_files import open_file


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    return tmp_path / "x.npy"


def test_readers_of_windows_parse_no_header(path, monkeypatch):
    """Reading threads of a training parsed numpy's headers at once, which Python 3.11 answers with a SystemError."""
    array = open_file(path)

    def refuse(*_):
        raise AssertionError("source is parsed")

    monkeypatch.setattr(ast, "parse", refuse)
    assert np.array_equal(array.open()[1:3], [[3, 4, 5], [6, 7, 8]])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_mapped_again_is_the_same(tmp_path, order, dtype):
    rows = np.random.default_rng(0).normal(size=(7, 5)).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", rows)
    assert np.array_equal(open_file(tmp_path / "x.npy").open()[np.array([6, 0, 3])], rows[[6, 0, 3]])


def test_one_header_at_a_time(path, monkeypatch):
    together, read = Barrier(2), np.lib.format.read_array_header_1_0

    def meet(file):
        with pytest.raises(BrokenBarrierError):
            together.wait(0.2)  # nobody else comes
        return read(file)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", meet)
    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(open_array, [path, path]))) == 2
