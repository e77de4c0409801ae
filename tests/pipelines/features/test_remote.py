"""Extraction with videos and features at URLs."""

import json

import fsspec
import pytest

from lstr.files.remote import RemoteFile

pytestmark = pytest.mark.long


@pytest.fixture
def options(small_set):
    return "--recipe", small_set.recipe, "--set", "recipe.flow_algorithm=dis", "--workers", "1"


@pytest.fixture
def videos(small_set):
    """A folder in a file system in memory, with a video and a text."""
    store = fsspec.filesystem("memory").store
    store.clear()
    folder = RemoteFile("memory://videos")
    folder.joinpath("a", "good.mp4").put(small_set.videos / "scene_00.mp4")
    folder.joinpath("text.mp4").write(b"not a video")
    yield folder
    store.clear()


def test_videos_and_features_at_urls(lstr, run, videos, options, small_set, tmp_path):
    features, good = RemoteFile("memory://out/features"), videos.joinpath("a", "good.mp4")
    command = ("extract", videos, "-o", features, *options)
    (tmp_path / "labels.csv").write_text("video,start,end,label\na/good,0,1,walk\ntext,0,1,walk\n")
    code, out, err = lstr(*command, videos.joinpath("gone.mp4"), "--calibrate", tmp_path / "labels.csv", "--json")
    assert code == 3 and {failure["id"] for failure in json.loads(out)["failures"]} == {"text", "gone"}, err
    assert "memory://videos/text.mp4" in err and "memory://videos/gone.mp4" in err
    recipe = json.loads(features.joinpath("recipe.json").read())
    assert recipe["rgb"]["calibrated_on"] == ["a/good", "text"]
    record = json.loads(features.joinpath("records", "a", "good.json").read())
    stat = good.stat()
    assert (record["source"], record["bytes"], record["mtime"]) == (str(good), stat.st_size, stat.st_mtime)
    assert record["chunks"] == 20 and json.loads(features.joinpath("videos.jsonl").read()) == record
    failures = [json.loads(line) for line in features.joinpath("failed.jsonl").read().splitlines()]
    assert {f["id"]: f["source"] for f in failures}["text"] == "memory://videos/text.mp4" and len(failures) == 2

    videos.joinpath("text.mp4").unlink()
    assert json.loads(run(*command, "--json")[0])["kept"] == 1
    good.put(small_set.videos / "scene_00.mp4")  # a later file of the same name and size
    plan = json.loads(run(*command, "--dry-run", "--json")[0])
    assert (plan["to_do"], plan["chunks_to_do"], plan["free_bytes"]) == (1, 20, None)


def test_only_videos_or_only_features_at_urls(lstr, videos, options, small_set, tmp_path):
    features, video = RemoteFile("memory://out/features"), small_set.videos / "scene_00.mp4"
    assert lstr("extract", video, "-o", features, *options)[0] == 0
    assert lstr("extract", videos.joinpath("a"), "-o", tmp_path / "f", *options)[0] == 0
    downloaded = json.loads((tmp_path / "f" / "records" / "good.json").read_text())
    uploaded = json.loads(features.joinpath("records", "scene_00.json").read())
    assert downloaded["arrays"] == uploaded["arrays"]
    assert (downloaded["source"], uploaded["source"]) == ("memory://videos/a/good.mp4", str(video))
    content = video.read_bytes()
    videos.joinpath("a", "good.mp4").write(content[: len(content) // 2])
    code, _, err = lstr("extract", videos.joinpath("a"), "-o", "memory://out/f", *options)
    assert code == 3 and "memory://videos/a/good.mp4" in err and "lstr-scratch" not in err, err
    assert [path for path in RemoteFile("memory://out/f").below() if path.endswith(".npy")] == []
