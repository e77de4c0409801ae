"""Arrays of a feature folder: every fault found and named, and any type of number read as the same features."""

import json
import shutil

import numpy as np
import pytest

from lstr.errors import RecipeError
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.files.arrays import RowFile, fingerprints
from lstr.files.content import write_json
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.features.folder import FeatureFolder, open_features, verify
from lstr.pipelines.features.output_folder import create_output

L = 12


@pytest.fixture
def folder(tmp_path):
    """Three videos, as extraction stores them, of numbers instead of pixels."""
    rng = np.random.default_rng(0)
    recipe = Recipe(
        NetworkRecipe("resnet50", "custom", "0" * 16, 1, (0.0,), (1.0,)),
        NetworkRecipe("bninception", "custom", "1" * 16, 1, (0.0,), (1.0,)),
    )
    folder = create_output(tmp_path / "features", recipe, {})
    for i in range(3):
        arrays = {}
        for stream, width in (("rgb", 2048), ("flow", 1024)):
            path = folder.array(stream, f"set a/v{i}")
            path.parent.mkdir(parents=True, exist_ok=True)
            file = RowFile(path, (width,))
            for row in rng.random((L, width), np.float32):
                file.append(row)
            file.finish()
            arrays[stream] = fingerprints(path)
        source = tmp_path / f"v{i}.mp4"
        source.write_text("pixels")
        stat = source.stat()
        made = {"recipe": recipe.id, "chunks": L, "arrays": arrays, "bytes": stat.st_size, "mtime": stat.st_mtime}
        write_json(folder.record(f"set a/v{i}"), made)
    return folder


def edit(path, change):
    """Change an array in place, as a program that knows nothing of records would."""
    np.save(path, change(np.load(path)))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def zero_row(array):
    array[3] = 0
    return array


def not_a_number(array):
    array[5, 7] = np.nan
    return array


def test_a_whole_folder(folder, lstr):
    chunks, faults, n_hashed = verify(open_features(folder.path))
    assert faults == [] and chunks == {f"set a/v{i}": L for i in range(3)} and n_hashed == 6
    code, out, err = lstr("info", folder.path, "--json")
    described = json.loads(out)
    assert code == 0 and err == "" and described["faults"] == described["damaged"] == []
    assert (described["videos"], described["chunks"], described["arrays_checked_by_hash"]) == (3, 3 * L, 6)


HARMS = {
    "is missing": lambda f: f.array("flow", "set a/v1").unlink(),
    "cannot be used: its header claims": lambda f: cut(f.array("flow", "set a/v1")),
    "rows are all zero": lambda f: edit(f.array("flow", "set a/v1"), zero_row),
    "not finite": lambda f: edit(f.array("flow", "set a/v1"), not_a_number),
    "lengths differ: rgb 12, flow 9": lambda f: edit(f.array("flow", "set a/v1"), lambda a: a[:9]),
    "its record says 12 chunks": lambda f: [edit(f.array(s, "set a/v1"), lambda a: a[:9]) for s in ("rgb", "flow")],
    "width 1000, not 1024": lambda f: edit(f.array("flow", "set a/v1"), lambda a: a[:, :1000]),
    "not rows of features": lambda f: edit(f.array("flow", "set a/v1"), lambda a: a.ravel()),
    "(SHA-256)": lambda f: shutil.copy(f.array("flow", "set a/v0"), f.array("flow", "set a/v1")),
    "it has no record": lambda f: f.record("set a/v1").unlink(),
    "its record is damaged": lambda f: f.record("set a/v1").write_text('{"recipe": '),
    "its record has recipe other": lambda f: write_json(f.record("set a/v1"), {"recipe": "other", "chunks": L}),
}  # fmt: skip


@pytest.mark.parametrize("words", HARMS)
def test_each_fault_is_named(folder, words, lstr):
    HARMS[words](folder)
    chunks, faults, n_hashed = verify(open_features(folder.path))
    assert {fault["id"] for fault in faults} == {"set a/v1"} and set(chunks) == {"set a/v0", "set a/v2"}
    assert any(words in fault["what"] for fault in faults), faults


def test_lengths_of_other_streams_than_the_usual_two(folder):
    """Their names were taken for rgb and flow, which was a KeyError."""
    edit(folder.array("flow", "set a/v1"), lambda rows: rows[:9])
    read = open_features(folder.path)
    folders, files = ({"grey": one["rgb"], "change": one["flow"]} for one in (read.folders, read.files))
    grey = FeatureFolder((folder.path,), folders, files, None)
    assert "lengths differ: grey 12, change 9" in [fault["what"] for fault in verify(grey)[1]]


SMALL = ("rows are all zero", "not finite")  # inside an array: for these the whole file must be read


@pytest.mark.parametrize("words", [w for w in HARMS if w not in SMALL])
def test_each_fault_is_redone(folder, words, tmp_path):
    """What a rerun looks at costs three rows an array, and still tells any other array from the one it wrote."""
    assert all(folder.find_record(f"set a/v{i}", tmp_path / f"v{i}.mp4") for i in range(3))
    HARMS[words](folder)
    assert [bool(folder.find_record(f"set a/v{i}", tmp_path / f"v{i}.mp4")) for i in range(3)] == [True, False, True]


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"arrays": 3}', "null", "\x00"])
def test_odd_records_are_no_records(folder, record, tmp_path):
    folder.record("set a/v1").write_text(record)
    assert not folder.find_record("set a/v1", tmp_path / "v1.mp4")
    assert {fault["id"] for fault in verify(open_features(folder.path))[1]} == {"set a/v1"}


def test_other_kinds_and_more_bytes_are_redone(folder, tmp_path):
    for change in (lambda a: a.astype(np.float64), lambda a: a[:, ::-1], lambda a: np.concatenate([a, a])):
        kept = folder.array("rgb", "set a/v1").read_bytes()
        edit(folder.array("rgb", "set a/v1"), change)
        assert not folder.find_record("set a/v1", tmp_path / "v1.mp4")
        folder.array("rgb", "set a/v1").write_bytes(kept)
    assert folder.find_record("set a/v1", tmp_path / "v1.mp4")
    folder.array("rgb", "set a/v1").write_bytes(kept + b"\0")
    assert not folder.find_record("set a/v1", tmp_path / "v1.mp4")


def test_faults_leave_with_three(folder, lstr):
    edit(folder.array("flow", "set a/v1"), zero_row)
    code, out, err = lstr("info", folder.path)
    assert code == 3 and "set a/v1\tflow\t1 of 12 rows are all zero" in out
    assert err.count("failed: ") == err.count("hint: ") == 1 and "lstr extract" in err


def test_a_byte_in_the_middle_is_found_by_the_hash(folder):
    path = folder.array("rgb", "set a/v2")
    with path.open("r+b") as file:
        file.seek(128 + 4 * 2048 * 2 + 2)
        file.write(b"\x11")
    (fault,) = verify(open_features(folder.path))[1]
    assert (fault["id"], fault["stream"]) == ("set a/v2", "rgb") and "SHA-256" in fault["what"]


def test_a_folder_from_elsewhere_has_no_records(folder, lstr):
    (folder.path / "recipe.json").unlink()
    shutil.rmtree(folder.path / "records")
    elsewhere = open_features(folder.path)
    chunks, faults, n_hashed = verify(elsewhere)
    assert faults == [] and len(chunks) == 3 and n_hashed == 0
    edit(elsewhere.array("rgb", "set a/v1"), not_a_number)
    edit(elsewhere.array("rgb", "set a/v2"), lambda a: a[:, :7])
    assert [fault["id"] for fault in verify(elsewhere)[1]] == ["set a/v1", "set a/v2"]
    code, _, err = lstr("info", folder.path)
    assert code == 3 and "failed: 2 videos" in err and "make the features of these videos again" in err
    cut(elsewhere.array("rgb", "set a/v1"))
    with pytest.raises(RecipeError, match="cannot be used") as caught:
        elsewhere.load("set a/v1")
    assert "extract" not in err + caught.value.hint, "nothing here has made them, nor has records of them"


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
    faults = verify(open_features(feature_set.features))[1]
    assert all(fault["what"].endswith("rows are all zero") for fault in faults), "rounding has made them"


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
    faults = verify(open_features(feature_set.features))[1]
    assert [(fault["id"], fault["stream"]) for fault in faults] == [("v1", "rgb")]


def test_commands_name_the_file(lstr, feature_set):
    np.save(feature_set.features / "rgb_x" / "v1.npy", np.zeros((64, 6), np.complex64))
    output = feature_set.features.parent / "run"
    code, out, err = lstr("train", feature_set.features, "--labels", feature_set.labels, "-o", output)
    assert code == 4 and out == "" and err.count("hint: ") == 1 and "v1.npy" in err and "complex64" in err
