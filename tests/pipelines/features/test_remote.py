"""Extraction by this machine, with sources and features elsewhere."""

import json

import fsspec
import pytest

from lstr.files.remote import RemoteFile
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
    """A folder of videos in a file system in this process: a good one, and one of text."""
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
    (tmp_path / "list.txt").write_text("memory://videos/a/good.mp4\ntext\n")
    gone = elsewhere.joinpath("gone.mp4")
    code, out, err = lstr(*command, gone, "--calibrate", tmp_path / "list.txt", "--json")
    told = json.loads(out)
    assert code == 3 and {failure["id"] for failure in told["failures"]} == {"text", "gone"}, err
    assert "memory://videos/text.mp4" in err and "memory://videos/gone.mp4" in err
    recipe = json.loads(features.joinpath("recipe.json").read())
    assert recipe["rgb"]["calibrated_on"] == ["a/good", "text"]
    record = json.loads(features.joinpath("records", "a", "good.json").read())
    assert (record["source"], record["bytes"]) == ("memory://videos/a/good.mp4", scene.stat().st_size)
    stat = elsewhere.joinpath("a", "good.mp4").stat()
    assert record["mtime"] == stat.st_mtime and record["chunks"] == 16
    assert json.loads(features.joinpath("videos.jsonl").read()) == record
    failures = [json.loads(line) for line in features.joinpath("failed.jsonl").read().splitlines()]
    assert {f["id"]: f["source"] for f in failures}["text"] == "memory://videos/text.mp4" and len(failures) == 2

    elsewhere.joinpath("text.mp4").unlink()
    code, out, err = lstr(*command, "--json")
    assert code == 0 and json.loads(out)["kept"] == 1, err
    elsewhere.joinpath("a", "good.mp4").put(scene)  # a later file of the same name and size
    code, out, err = lstr(*command, "--dry-run", "--json")
    plan = json.loads(out)
    assert code == 0 and (plan["to_do"], plan["chunks_to_do"], plan["free_bytes"]) == (1, 16, None), err


@pytest.mark.long
def test_one_side_elsewhere(lstr, elsewhere, how, scene, tmp_path):
    """The same features, whichever side is here; a damaged source is named, not the copy that was made of it."""
    features = RemoteFile("memory://out/features")
    assert lstr("extract", scene, "-o", features, *how)[0] == 0
    assert lstr("extract", elsewhere.joinpath("a"), "-o", tmp_path / "f", *how)[0] == 0
    record = json.loads((tmp_path / "f" / "records" / "good.json").read_text())
    mine = json.loads(features.joinpath("records", "scene_00.json").read())
    assert record["arrays"] == mine["arrays"]
    assert (record["source"], mine["source"]) == ("memory://videos/a/good.mp4", str(scene))
    content = scene.read_bytes()
    elsewhere.joinpath("a", "good.mp4").write(content[: len(content) // 2])
    code, _, err = lstr("extract", elsewhere.joinpath("a"), "-o", "memory://out/f", *how)
    assert code == 3 and "memory://videos/a/good.mp4" in err and "lstr-scratch" not in err, err
    assert [p for p in RemoteFile("memory://out/f").below() if p.endswith(".npy")] == []
