"""Extraction by this machine, with sources and features elsewhere."""

import json

import fsspec
import pytest

from lstr.files.remote import RemoteFile
from lstr.pipelines.features.output_folder import open_output
from lstr.pipelines.scenes import SceneConfig, render_scenes


@pytest.fixture(scope="module")
def how(small_set):
    """By which recipe, and how."""
    return "--recipe", small_set.recipe, "--set", "recipe.flow_algorithm=dis", "--workers", "1"


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A video of four seconds."""
    root = tmp_path_factory.mktemp("scenes")
    render_scenes(root, SceneConfig(n_videos=2, n_testing=1, seconds=4.0, width=96, height=64))
    return root / "videos" / "scene_00.mp4"


@pytest.fixture
def elsewhere(scene):
    """A folder of videos in a file system in this process: a good one, one cut short, and one of text."""
    fsspec.filesystem("memory").store.clear()
    folder = RemoteFile("memory://videos")
    folder.joinpath("a", "good.mp4").put(scene)
    folder.joinpath("text.mp4").write(b"this is no video")
    yield folder
    fsspec.filesystem("memory").store.clear()


@pytest.mark.long
def test_sources_and_features_elsewhere(lstr, elsewhere, how, scene, tmp_path):
    features = RemoteFile("memory://out/features")
    command = ("extract", elsewhere, "-o", features, *how)
    code, out, err = lstr(*command, elsewhere.joinpath("gone.mp4"))
    assert code == 3 and out == "" and "1 done, 0 kept, 2 failed; features in memory://out/features" in err, err
    assert "failed: text: memory://videos/text.mp4 is not a readable video" in err
    assert "failed: gone: memory://videos/gone.mp4 is not there." in err
    record = json.loads(features.joinpath("records", "a", "good.json").read())
    stat = elsewhere.joinpath("a", "good.mp4").stat()
    assert (record["source"], record["bytes"]) == ("memory://videos/a/good.mp4", scene.stat().st_size)
    assert record["mtime"] == stat.st_mtime and record["chunks"] == 16
    assert json.loads(features.joinpath("videos.jsonl").read()) == record
    failures = [json.loads(line) for line in features.joinpath("failed.jsonl").read().splitlines()]
    assert {f["id"]: f["source"] for f in failures}["text"] == "memory://videos/text.mp4" and len(failures) == 2

    elsewhere.joinpath("text.mp4").unlink()
    code, _, err = lstr(*command)
    assert code == 0 and "0 done, 1 kept, 0 failed" in err, err
    elsewhere.joinpath("a", "good.mp4").put(scene)  # a later file of the same name and size
    code, out, err = lstr(*command, "--dry-run", "--json")
    plan = json.loads(out)
    assert code == 0 and (plan["to_do"], plan["chunks_to_do"], plan["free_bytes"]) == (1, 16, None), err
    assert plan["videos"][0]["source"] == "memory://videos/a/good.mp4"


@pytest.mark.long
def test_one_side_elsewhere(lstr, elsewhere, how, scene, tmp_path):
    """The same features, whichever side is here; several processes cannot share this process's file system."""
    features = RemoteFile("memory://out/features")
    assert lstr("extract", scene, "-o", features, *how)[0] == 0
    assert lstr("extract", elsewhere.joinpath("a"), "-o", tmp_path / "f", *how)[0] == 0
    record = json.loads((tmp_path / "f" / "records" / "good.json").read_text())
    assert record["source"] == "memory://videos/a/good.mp4"
    mine = json.loads(features.joinpath("records", "scene_00.json").read())
    assert record["arrays"] == mine["arrays"] and mine["source"] == str(scene)
    assert open_output(tmp_path / "f").find_record("good", elsewhere.joinpath("a", "good.mp4"))
    assert not open_output(tmp_path / "f").find_record("good", elsewhere.joinpath("text.mp4"))


@pytest.mark.slow
def test_random_networks_are_calibrated_on_videos_elsewhere(lstr, elsewhere, how, tmp_path):
    (tmp_path / "list.txt").write_text("memory://videos/a/good.mp4\ntext\n")
    code, _, err = lstr("extract", elsewhere, "-o", tmp_path / "f", *how, "--calibrate", tmp_path / "list.txt")
    assert code == 3 and "1 done, 0 kept, 1 failed" in err, err
    recipe = json.loads((tmp_path / "f" / "recipe.json").read_text())
    assert recipe["rgb"]["calibrated_on"] == ["a/good", "text"]


def test_addresses_that_cannot_be_meant(lstr, elsewhere, how, scene, tmp_path):
    for given, words in (("memory://none", "memory://none holds no video"), ("sss://x/y", "not a supported protocol")):
        code, out, err = lstr("extract", given, "-o", tmp_path / "f", *how)
        assert code == 2 and out == "" and words in err and err.count("hint: ") == 1, err
    code, out, err = lstr("extract", scene, "-o", "abfs://box/features", *how)
    assert code == 2 and "pip install adlfs" in err, err
    assert not (tmp_path / "f").exists()


@pytest.mark.long
def test_whole_videos_only(lstr, elsewhere, how, scene, tmp_path):
    """What is told of a damaged video names the source, not the copy that was made of it."""
    content = elsewhere.joinpath("a", "good.mp4").read()
    elsewhere.joinpath("a", "good.mp4").write(content[: len(content) // 2])
    code, _, err = lstr("extract", elsewhere.joinpath("a"), "-o", "memory://out/f", *how)
    assert code == 3 and "memory://videos/a/good.mp4" in err and "lstr-scratch" not in err, err
    assert [p for p in RemoteFile("memory://out/f").below() if p.endswith(".npy")] == []
