"""Feature folders whose arrays anybody may have written: of any type of number they are the same features."""

import numpy as np
import pytest

from lstr.errors import RecipeError
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.features.folder import open_features, verify


def rewritten(feature_set, change) -> None:
    for path in feature_set.features.glob("*/*.npy"):
        array = change(np.load(path).round())
        path.unlink()
        np.save(path, array)


@pytest.mark.parametrize(
    ("dtype", "order"), [("<f2", "F"), (">f4", "C"), ("<f8", "F"), (">f8", "C"), ("i1", "F"), ("<i8", "C")]
)
def test_types_of_numbers_are_the_same_features(feature_set, dtype, order):
    rewritten(feature_set, lambda array: array)
    rows = np.arange(64)
    expected = [v.features[rows] for v in read_split(feature_set.features, feature_set.labels, "training").videos]
    rewritten(feature_set, lambda array: array.astype(dtype, order=order))
    found = read_split(feature_set.features, feature_set.labels, "training").videos
    for exact, video in zip(expected, found, strict=True):
        mine = video.features[rows]
        assert mine.dtype == np.float32 and mine.dtype.isnative and np.array_equal(mine, exact)
        assert np.array_equal(video.features[3:9], exact[3:9])
    faults = verify(open_features(feature_set.features)).faults
    assert all(fault.what.endswith("rows are all zero") for fault in faults), "rounding has made them"


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        (lambda path: np.save(path, np.zeros((64, 6), np.complex64)), "complex numbers (complex64)"),
        (lambda path: np.save(path, np.full((64, 6), "x")), "text"),
        (lambda path: np.save(path, np.full((64, 6), None), allow_pickle=True), "Python objects"),
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: np.savez(path.open("wb"), rgb=np.zeros((64, 6))), "an .npz archive"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"(64, 6)", b"(%d, 6)" % 10**13)), "claims 2.4e+14"),
        (lambda path: path.unlink(), "No such file"),
    ],
)  # fmt: skip
def test_what_is_no_array_is_named(feature_set, content, phrase):
    """A header that claims a terabyte is held against the file before anything is allocated."""
    path = feature_set.features / "rgb_x" / "v1.npy"
    content(path)
    with pytest.raises(RecipeError) as caught:
        open_features(feature_set.features).load("v1")
    assert phrase in str(caught.value) and str(path) in str(caught.value) and caught.value.hint
    faults = verify(open_features(feature_set.features)).faults
    assert [(fault.id, fault.stream) for fault in faults] == [("v1", "rgb")]


def test_commands_name_the_file(lstr, feature_set):
    np.save(feature_set.features / "rgb_x" / "v1.npy", np.zeros((64, 6), np.complex64))
    output = feature_set.features.parent / "run"
    code, out, err = lstr("train", feature_set.features, "--labels", feature_set.labels, "-o", output)
    assert code == 4 and out == "" and err.count("hint: ") == 1 and "v1.npy" in err and "complex64" in err
