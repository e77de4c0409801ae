"""Feature folders: what is read of one, and every fault in its arrays and records found."""

import json
import shutil

import fsspec
import numpy as np
import pytest
import torch

from lstr.errors import MissingPathError, RecipeError
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.files.arrays import RowFile, fingerprints
from lstr.files.content import read_jsonl, write_json
from lstr.files.remote import RemoteFile
from lstr.pipelines.features.folder import open_features, verify
from lstr.pipelines.features.output_folder import create_output, open_output, read_calibration

LENGTH = 12


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
            for row in rng.random((LENGTH, width), np.float32):
                file.append(row)
            file.finish()
            arrays[stream] = fingerprints(path)
        source = tmp_path / f"v{i}.mp4"
        source.write_text("pixels")
        stat = source.stat()
        made = {"recipe": recipe.id, "chunks": LENGTH, "arrays": arrays, "bytes": stat.st_size, "mtime": stat.st_mtime}
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


def flip_byte(path):
    with path.open("r+b") as file:
        file.seek(128 + 4 * 1024 * 2 + 2)
        file.write(b"\x11")


def test_the_folder_of_an_extraction(small_set):
    folder = open_features(small_set.features)
    assert folder.names == ("rgb_random_mobilenetv3", "flow_random_shufflenetv2")
    assert folder.ids() == [f"scene_{i:02d}" for i in range(4)]
    rgb, flow = folder.load("scene_00")
    assert rgb.shape == (20, 576) and flow.shape == (20, 1024) and rgb.dtype == flow.dtype == np.float32
    assert np.isfinite(rgb).all() and rgb[:].std(0).mean() > 0.01 and flow[:].std(0).mean() > 0.01
    record = json.loads(folder.record("scene_00").read_text())
    wanted = {"id", "source", "bytes", "mtime", "recipe", "duration", "chunks", "decoded_frames", "header_frames"}
    wanted |= {"decode_errors", "flow_backend", "device", "decoder", "seconds"}
    assert wanted <= record.keys() and record["recipe"] == folder.recipe.id and record["chunks"] == 20
    assert [entry["id"] for entry in read_jsonl(folder.path / "videos.jsonl")] == folder.ids()
    assert not (folder.path / "failed.jsonl").exists()


def test_what_is_no_feature_folder(tmp_path):
    with pytest.raises(MissingPathError):
        open_features(tmp_path / "none")
    with pytest.raises(RecipeError):
        open_features(tmp_path)
    for name, length in (("rgb_x", 4), ("flow_x", 9)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "v.npy", np.zeros((length, 3)))
    with pytest.raises(RecipeError, match="v"):
        open_features(tmp_path).load("v")


def test_a_whole_folder_and_one_with_a_fault(folder, lstr):
    chunks, faults, n_hashed = verify(open_features(folder.path))
    assert faults == [] and chunks == {f"set a/v{i}": LENGTH for i in range(3)} and n_hashed == 6
    code, out, err = lstr("info", folder.path, "--json")
    described = json.loads(out)
    assert code == 0 and err == "" and described["faults"] == described["damaged"] == []
    assert (described["videos"], described["chunks"], described["arrays_checked_by_hash"]) == (3, 3 * LENGTH, 6)
    edit(folder.array("flow", "set a/v1"), zero_row)
    code, out, err = lstr("info", folder.path)
    assert code == 3 and "set a/v1\tflow\t" in out and err.count("failed: ") == err.count("hint: ") == 1


HARMS = {
    "missing": lambda f: f.array("flow", "set a/v1").unlink(),
    "cut": lambda f: cut(f.array("flow", "set a/v1")),
    "a row of zeros": lambda f: edit(f.array("flow", "set a/v1"), zero_row),
    "not finite": lambda f: edit(f.array("flow", "set a/v1"), not_a_number),
    "one byte": lambda f: flip_byte(f.array("flow", "set a/v1")),
    "one array shorter": lambda f: edit(f.array("flow", "set a/v1"), lambda a: a[:9]),
    "both arrays shorter": lambda f: [edit(f.array(s, "set a/v1"), lambda a: a[:9]) for s in ("rgb", "flow")],
    "another width": lambda f: edit(f.array("flow", "set a/v1"), lambda a: a[:, :1000]),
    "no rows": lambda f: edit(f.array("flow", "set a/v1"), lambda a: a.ravel()),
    "another type": lambda f: edit(f.array("flow", "set a/v1"), lambda a: a.astype(np.float64)),
    "longer": lambda f: edit(f.array("flow", "set a/v1"), lambda a: np.concatenate([a, a])),
    "the array of another": lambda f: shutil.copy(f.array("flow", "set a/v0"), f.array("flow", "set a/v1")),
    "no record": lambda f: f.record("set a/v1").unlink(),
    "record cut": lambda f: f.record("set a/v1").write_text('{"recipe": '),
    "record of another recipe": lambda f: write_json(f.record("set a/v1"), {"recipe": "other", "chunks": LENGTH}),
    **{
        f"record {text!r}": lambda f, text=text: f.record("set a/v1").write_text(text)
        for text in ("", "[]", "{}", '{"arrays": 3}', "null", "\x00")
    },
}
INSIDE = ("a row of zeros", "not finite", "one byte")
"""Inside an array: for these the whole file must be read."""


@pytest.mark.parametrize("harm", HARMS)
def test_each_fault_is_found_and_redone(folder, tmp_path, harm):
    """A rerun reads three rows per array, and still tells any other array from the one that it wrote."""
    HARMS[harm](folder)
    chunks, faults, _ = verify(open_features(folder.path))
    assert {fault["id"] for fault in faults} == {"set a/v1"} and set(chunks) == {"set a/v0", "set a/v2"}
    done = [bool(folder.find_record(f"set a/v{i}", tmp_path / f"v{i}.mp4")) for i in range(3)]
    assert done == [True, harm in INSIDE, True]


def test_a_folder_from_elsewhere_has_no_records(folder, lstr):
    (folder.path / "recipe.json").unlink()
    shutil.rmtree(folder.path / "records")
    elsewhere = open_features(folder.path)
    chunks, faults, n_hashed = verify(elsewhere)
    assert elsewhere.recipe is None and faults == [] and len(chunks) == 3 and n_hashed == 0
    edit(elsewhere.array("rgb", "set a/v1"), not_a_number)
    edit(elsewhere.array("rgb", "set a/v2"), lambda a: a[:, :7])
    assert [fault["id"] for fault in verify(elsewhere)[1]] == ["set a/v1", "set a/v2"]
    code, _, err = lstr("info", folder.path)
    assert code == 3
    cut(elsewhere.array("rgb", "set a/v1"))
    with pytest.raises(RecipeError) as caught:
        elsewhere.load("set a/v1")
    assert "lstr extract" not in err + caught.value.hint, "it has not made them"


RECIPE = Recipe(
    NetworkRecipe("resnet50", "random", "0" * 16, 1, (0.0,), (1.0,)),
    NetworkRecipe("bninception", "random", "1" * 16, 1, (0.0,), (1.0,)),
)
SOURCE = RemoteFile("memory://videos/a/v 1.mp4")


@pytest.fixture
def features():
    """A new feature folder in a file system in this process, and beside it a source."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    SOURCE.write(b"0123456789")
    yield create_output(RemoteFile("memory://out/features"), RECIPE, {"rgb": {"mean": torch.ones(2)}})
    fs.store.clear()


def publish(features, n_chunks=9):
    """Extract as an extraction would, but with numbers for features."""
    stat, video_id = SOURCE.stat(), "a/v 1"
    with features.staged(video_id) as local:
        arrays = {}
        for stream, width in (("rgb", 2048), ("flow", 1024)):
            array = local.array(stream, video_id)
            array.parent.mkdir(parents=True)
            np.save(array, np.random.default_rng(0).random((n_chunks, width), dtype=np.float32))
            arrays[stream] = fingerprints(array)
        record = {"id": video_id, "source": str(SOURCE), "bytes": stat.st_size, "mtime": stat.st_mtime}
        write_json(local.record(video_id), record | {"recipe": RECIPE.id, "arrays": arrays, "chunks": n_chunks})


def ids_of(features) -> list[str]:
    features.compile()
    return [record["id"] for record in read_jsonl(features.path.joinpath("videos.jsonl"))]


@pytest.mark.parametrize("n_chunks", [1, 2, 9])
def test_what_was_put_is_done(features, n_chunks):
    assert not features.find_record("a/v 1", SOURCE)
    publish(features, n_chunks)
    assert features.find_record("a/v 1", SOURCE) and ids_of(features) == ["a/v 1"]
    assert sorted(features.path.below()) == [
        "calibration.pt",
        "flow_random_bninception/a/v 1.npy",
        "recipe.json",
        "records/a/v 1.json",
        "rgb_random_resnet50/a/v 1.npy",
        "videos.jsonl",
    ]


REMOTE_HARMS = {
    "array gone": lambda array, record: array.unlink(),
    "array cut": lambda array, record: array.write(array.read()[:-4]),
    "array of another": lambda array, record: array.write(array.read()[:-4] + b"\1\1\1\1"),
    "no array": lambda array, record: array.write(b"<html>"),
    "record gone": lambda array, record: record.unlink(),
    "record cut": lambda array, record: record.write(record.read()[:50]),
    "source changed": lambda array, record: SOURCE.write(b"01234567890"),
    "source gone": lambda array, record: SOURCE.unlink(),
}


@pytest.mark.parametrize("harm", REMOTE_HARMS)
def test_harm_elsewhere_is_found(features, harm):
    publish(features)
    REMOTE_HARMS[harm](features.array("flow", "a/v 1"), features.record("a/v 1"))
    assert not features.find_record("a/v 1", SOURCE)


def test_a_video_that_is_put_again_has_no_record_meanwhile(features):
    """Else a run that is killed between two arrays would leave old and new ones under the old record."""
    publish(features)
    with pytest.raises(InterruptedError), features.staged("a/v 1"):
        assert ids_of(features) == [] and not features.find_record("a/v 1", SOURCE)
        raise InterruptedError
    assert ids_of(features) == []


def test_a_folder_is_opened_as_it_was_begun(features):
    opened = open_output(features.path)
    assert opened == features and read_calibration(opened.path)["rgb"]["mean"].tolist() == [1, 1]
    assert create_output(features.path, RECIPE, {}) == features
    assert open_output(RemoteFile("memory://elsewhere")) is None
    with pytest.raises(RecipeError, match="long_side"):
        create_output(features.path, Recipe(RECIPE.rgb, RECIPE.flow, long_side=160), {})
    RemoteFile("memory://theirs/rgb_x/v.npy").write(b"1")
    with pytest.raises(RecipeError):
        create_output(RemoteFile("memory://theirs"), RECIPE, {})
    features.path.joinpath("recipe.json").write(b"{")
    with pytest.raises(RecipeError):
        open_output(features.path)
