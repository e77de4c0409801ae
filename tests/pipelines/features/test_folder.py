"""Feature folders, local and at URLs: their layout, and how damaged arrays and records are found."""

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

LENGTH = 9
RECIPE = Recipe(
    NetworkRecipe("resnet50", "random", "0" * 16, 1, (0.0,), (1.0,)),
    NetworkRecipe("bninception", "random", "1" * 16, 1, (0.0,), (1.0,)),
)


def write_video(output, video_id, source, length=LENGTH):
    """Write random features and the record of a video, like an extraction."""
    stat = source.stat()
    with output.staged(video_id) as local:
        arrays = {}
        for stream, width in (("rgb", 2048), ("flow", 1024)):
            path = local.array(stream, video_id)
            path.parent.mkdir(parents=True, exist_ok=True)
            file = RowFile(path, (width,))
            for row in np.random.default_rng([*video_id.encode()]).random((length, width), np.float32):
                file.append(row)
            file.finish()
            arrays[stream] = fingerprints(path)
        record = {"id": video_id, "source": str(source), "bytes": stat.st_size, "mtime": stat.st_mtime}
        write_json(local.record(video_id), record | {"recipe": RECIPE.id, "arrays": arrays, "chunks": length})


@pytest.fixture
def folder(tmp_path):
    folder = create_output(tmp_path / "features", RECIPE, {})
    for i in range(3):
        source = tmp_path / f"v{i}.mp4"
        source.write_text("pixels")
        write_video(folder, f"set a/v{i}", source)
    return folder


def edit(path, change):
    """Change an array without its record."""
    np.save(path, change(np.load(path)))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def set_value(path, index, value):
    array = np.load(path, mmap_mode="r+")
    array[index] = value
    array.flush()


def test_an_extraction_writes_arrays_and_records(small_set):
    folder = open_features(small_set.features)
    assert folder.names == ("rgb_random_efficientnet-lite0", "flow_random_resnet18")
    assert folder.ids() == [f"scene_{i:02d}" for i in range(4)]
    rgb, flow = folder.load("scene_00")
    assert rgb.shape == (20, 1280) and flow.shape == (20, 512) and rgb.dtype == flow.dtype == np.float32
    assert np.isfinite(rgb).all() and rgb[:].std(0).mean() > 0.01 and flow[:].std(0).mean() > 0.01
    record = json.loads(folder.record("scene_00").read_text())
    names = {"id", "source", "bytes", "mtime", "recipe", "duration", "chunks", "decoded_frames", "header_frames"}
    names |= {"decode_errors", "flow_backend", "device", "decoder", "seconds"}
    assert names <= record.keys() and record["recipe"] == folder.recipe.id and record["chunks"] == 20
    assert [entry["id"] for entry in read_jsonl(folder.path / "videos.jsonl")] == folder.ids()
    assert not (folder.path / "failed.jsonl").exists()


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(MissingPathError):
        open_features(tmp_path / "missing")
    with pytest.raises(RecipeError):
        open_features(tmp_path)
    for name, length in (("rgb_x", 4), ("flow_x", 9)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "v.npy", np.zeros((length, 3)))
    with pytest.raises(RecipeError, match="v"):
        open_features(tmp_path).load("v")


def test_info_reports_faults(folder, lstr):
    chunks, faults, n_hashed = verify(open_features(folder.path))
    assert faults == [] and chunks == {f"set a/v{i}": LENGTH for i in range(3)} and n_hashed == 6
    code, out, err = lstr("info", folder.path, "--json")
    described = json.loads(out)
    assert code == 0 and err == "" and described["faults"] == described["damaged"] == []
    assert (described["videos"], described["chunks"], described["arrays_checked_by_hash"]) == (3, 3 * LENGTH, 6)
    set_value(folder.array("flow", "set a/v1"), 3, 0)
    code, out, err = lstr("info", folder.path)
    assert code == 3 and "set a/v1\tflow\t" in out and err.count("failed: ") == err.count("hint: ") == 1


def change_flow(change):
    return lambda folder: edit(folder.array("flow", "set a/v1"), change)


VALUE_FAULTS = {
    "a row of zeros": lambda folder: set_value(folder.array("flow", "set a/v1"), 3, 0),
    "not finite": lambda folder: set_value(folder.array("flow", "set a/v1"), (5, 7), np.nan),
    "another value": lambda folder: set_value(folder.array("flow", "set a/v1"), (2, 0), 0.5),
}
"""Faults inside an array, which are only found if the whole file is read."""
FAULTS = VALUE_FAULTS | {
    "missing": lambda folder: folder.array("flow", "set a/v1").unlink(),
    "cut": lambda folder: cut(folder.array("flow", "set a/v1")),
    "one array shorter": change_flow(lambda array: array[:7]),
    "both arrays shorter": lambda folder: [edit(folder.array(s, "set a/v1"), lambda a: a[:7]) for s in ("rgb", "flow")],
    "another width": change_flow(lambda array: array[:, :1000]),
    "no rows": change_flow(np.ravel),
    "another type": change_flow(np.float64),
    "longer": change_flow(lambda array: np.concatenate([array, array])),
    "another array": lambda folder: shutil.copy(folder.array("flow", "set a/v0"), folder.array("flow", "set a/v1")),
    "no record": lambda folder: folder.record("set a/v1").unlink(),
    **{
        f"record {text!r}": lambda folder, text=text: folder.record("set a/v1").write_text(text)
        for text in ("", "null", '{"arrays": 3}', '{"recipe": "other", "chunks": 9}')
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_video_is_detected_and_extracted_in_the_next_run(folder, tmp_path, fault):
    """A second run reads three rows per array, and detects every other fault."""
    FAULTS[fault](folder)
    chunks, faults, _ = verify(open_features(folder.path))
    assert {entry["id"] for entry in faults} == {"set a/v1"} and set(chunks) == {"set a/v0", "set a/v2"}
    done = [bool(folder.find_record(f"set a/v{i}", tmp_path / f"v{i}.mp4")) for i in range(3)]
    assert done == [True, fault in VALUE_FAULTS, True]


def test_a_folder_of_another_program_has_no_records(folder, lstr):
    (folder.path / "recipe.json").unlink()
    shutil.rmtree(folder.path / "records")
    features = open_features(folder.path)
    chunks, faults, n_hashed = verify(features)
    assert features.recipe is None and faults == [] and len(chunks) == 3 and n_hashed == 0
    set_value(features.array("rgb", "set a/v1"), (5, 7), np.nan)
    edit(features.array("rgb", "set a/v2"), lambda array: array[:, :7])
    assert [fault["id"] for fault in verify(features)[1]] == ["set a/v1", "set a/v2"]
    code, _, err = lstr("info", folder.path)
    cut(features.array("rgb", "set a/v1"))
    with pytest.raises(RecipeError) as caught:
        features.load("set a/v1")
    assert code == 3 and "lstr extract" not in err + caught.value.hint


SOURCE = RemoteFile("memory://videos/a/v 1.mp4")


@pytest.fixture
def remote():
    """A new feature folder in a file system in memory, and a source."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    SOURCE.write(b"0123456789")
    yield create_output(RemoteFile("memory://out/features"), RECIPE, {"rgb": {"mean": torch.ones(2)}})
    fs.store.clear()


def recorded_ids(output) -> list[str]:
    output.compile()
    return [record["id"] for record in read_jsonl(output.path.joinpath("videos.jsonl"))]


@pytest.mark.parametrize("length", [1, 2, 9])
def test_an_uploaded_video_is_complete(remote, length):
    assert not remote.find_record("a/v 1", SOURCE)
    write_video(remote, "a/v 1", SOURCE, length)
    assert remote.find_record("a/v 1", SOURCE) and recorded_ids(remote) == ["a/v 1"]
    arrays = {f"{name}/a/v 1.npy" for name in ("rgb_random_resnet50", "flow_random_bninception")}
    files = {"calibration.pt", "recipe.json", "records/a/v 1.json", "videos.jsonl"}
    assert set(remote.path.below()) == arrays | files


REMOTE_FAULTS = {
    "no array": lambda array, record: array.unlink(),
    "cut array": lambda array, record: array.write(array.read()[:-4]),
    "another array": lambda array, record: array.write(array.read()[:-4] + b"\1\1\1\1"),
    "text": lambda array, record: array.write(b"<html>"),
    "no record": lambda array, record: record.unlink(),
    "cut record": lambda array, record: record.write(record.read()[:50]),
    "other source": lambda array, record: SOURCE.write(b"01234567890"),
    "no source": lambda array, record: SOURCE.unlink(),
}


@pytest.mark.parametrize("fault", REMOTE_FAULTS)
def test_a_faulty_remote_video_is_detected(remote, fault):
    write_video(remote, "a/v 1", SOURCE)
    REMOTE_FAULTS[fault](remote.array("flow", "a/v 1"), remote.record("a/v 1"))
    assert not remote.find_record("a/v 1", SOURCE)


def test_a_video_has_no_record_during_its_upload(remote):
    """Otherwise a killed run would leave old and new arrays with the old record."""
    write_video(remote, "a/v 1", SOURCE)
    with pytest.raises(InterruptedError), remote.staged("a/v 1"):
        assert recorded_ids(remote) == [] and not remote.find_record("a/v 1", SOURCE)
        raise InterruptedError
    assert recorded_ids(remote) == []


def test_an_existing_folder_keeps_its_recipe(remote):
    assert open_output(remote.path) == create_output(remote.path, RECIPE, {}) == remote
    assert read_calibration(remote.path)["rgb"]["mean"].tolist() == [1, 1]
    assert open_output(RemoteFile("memory://missing")) is None
    with pytest.raises(RecipeError, match="long_side"):
        create_output(remote.path, Recipe(RECIPE.rgb, RECIPE.flow, long_side=160), {})
    RemoteFile("memory://other/rgb_x/v.npy").write(b"1")
    with pytest.raises(RecipeError):
        create_output(RemoteFile("memory://other"), RECIPE, {})
    remote.path.joinpath("recipe.json").write(b"{")
    with pytest.raises(RecipeError):
        open_output(remote.path)
