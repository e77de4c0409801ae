"""The feature folder on disk."""

import json

import numpy as np
import pytest

from lstr.errors import MissingPathError, RecipeError
from lstr.files.atomic import replacing
from lstr.pipelines.features.folder import open_features


def test_replacing_is_all_or_nothing(tmp_path):
    path = tmp_path / "a" / "b.txt"
    with replacing(path) as temporary:
        temporary.write_text("one")
        assert not path.exists()
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("two")
        raise RuntimeError
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]
    assert path.stat().st_mode & 0o077 == (0o666 & ~_umask()) & 0o077


def _umask():
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_our_folder(small_set):
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
    lines = (folder.path / "videos.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == folder.ids()
    assert not (folder.path / "failed.jsonl").exists()


def test_a_folder_from_elsewhere_is_accepted(tmp_path):
    for name, width in (("rgb_kinetics_resnet50", 2048), ("flow_kinetics_bninception", 1024)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "video_test_0000004.npy", np.zeros((7, width), np.float64))
    folder = open_features(tmp_path)
    assert folder.recipe is None and folder.ids() == ["video_test_0000004"]
    assert len(folder.load("video_test_0000004")[0]) == 7


def test_unequal_lengths_are_refused(tmp_path):
    for name, length in (("rgb_x", 4), ("flow_x", 5)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "v.npy", np.zeros((length, 3)))
    with pytest.raises(RecipeError, match="one length"):
        open_features(tmp_path).load("v")


def test_no_features(tmp_path):
    with pytest.raises(MissingPathError):
        open_features(tmp_path / "none")
    with pytest.raises(RecipeError, match="no folder named rgb"):
        open_features(tmp_path)
