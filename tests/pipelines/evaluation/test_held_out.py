"""Scores and detections of held-out videos, kept in a file."""

import numpy as np
import pytest

from lstr.extractors.errors import MissingPathError
from lstr.labels.segment import Segment
from lstr.pipelines.evaluation.held_out import HeldOut, read_held_out, write_held_out


def test_it_comes_back_as_it_was(tmp_path):
    names = ["day 1/fall", "../etc", "0", "about", "ä\u2028<b>"]
    rng = np.random.default_rng(0)
    scores = {i: rng.random((at, 3), np.float32) for at, i in enumerate(names)}
    found = {i: (Segment(0.25, 1 / 3, "fall", 0.75),) * at for at, i in enumerate(names)}
    write_held_out(tmp_path / "x.npz", HeldOut(("Background", "fall", "sit"), scores, found))
    read = read_held_out(tmp_path / "x.npz")
    assert read.classes == ("Background", "fall", "sit") and read.detections == found
    assert [*read.scores] == names and all(np.array_equal(read.scores[i], rows) for i, rows in scores.items())


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04", b"no array"])
def test_what_is_none_is_one_sentence(tmp_path, content):
    if content is not None:
        (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(MissingPathError, match="holds no scores of held-out videos"):
        read_held_out(tmp_path / "x.npz")
