"""Model files in int8."""

import json
import shutil

import numpy as np
import pytest

from lstr.pipelines.detection.detector import detect
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.packing import write_model
from tests.support.errors import assert_error
from tests.support.small_set import SmallSet, write_small_set

PUBLISHED = {"rgb": "resnet50", "flow": "bninception"}


@pytest.fixture(scope="module")
def published_set(tmp_path_factory) -> SmallSet:
    """The small set with published networks: int8 changes the features of small random networks more."""
    return write_small_set(tmp_path_factory.mktemp("published"), PUBLISHED, {})


def test_other_files_are_not_quantised(lstr, small_set, tmp_path):
    model, output = write_model(tmp_path / "a.lstr", small_set.checkpoint, None, {}).path, tmp_path / "b.lstr"
    assert_error(lstr("quantise", model, "-o", output), 2, "VIDEO")
    assert_error(lstr("extract", small_set.videos, "-o", tmp_path / "f", "--set", "recipe.precision=int8"), 2, "'int8'")
    (tmp_path / "no.mp4").write_text("not a video")
    assert_error(lstr("quantise", model, tmp_path / "no.mp4", "-o", output), 3)
    assert_error(lstr("quantise", small_set.checkpoint, small_set.videos, "-o", output), 4, "checkpoint.pt")
    before = model.read_bytes()
    assert_error(lstr("quantise", model, small_set.videos, "-o", model), 2, "a.lstr")
    assert not output.exists() and model.read_bytes() == before


@pytest.mark.slow
def test_scores_in_int8_are_close(lstr, published_set, tmp_path):
    model = write_model(tmp_path / "a.lstr", published_set.checkpoint, None, {}).path
    before = model.read_bytes()
    small, videos = tmp_path / "small.lstr", tmp_path / "videos"
    videos.mkdir()
    shutil.copy(published_set.videos / "scene_00.mp4", videos)
    code, out, err = lstr("quantise", model, videos, "-o", small, "--set", "chunks=12", "--json")
    assert code == 0 and model.read_bytes() == before, err
    record, about = json.loads(out), open_model(small).about
    assert about["int8"] == {name: value for name, value in record.items() if name != "model"}
    assert record["chunks"] == 12
    assert all(0.95 < cosine["least"] <= cosine["mean"] < 1 for cosine in record["cosine"].values())
    recipe = open_model(small).recipe
    assert recipe.precision == "int8" and recipe.id != open_model(model).recipe.id
    video = published_set.videos / "scene_01.mp4"
    scores = [np.stack([d.scores for d in detect(video, m, device="cpu")]) for m in (model, small)]
    assert 0 < np.abs(scores[0] - scores[1]).mean() < 0.1
    code, out, err = lstr("evaluate", model, small, published_set.videos, published_set.labels, "--json")
    assert code == 0, err
    float_map, int8_map = (entry["lstr"]["mAP"] for entry in json.loads(out)["checkpoints"])
    assert abs(int8_map - float_map) < 0.2
    assert_error(lstr("quantise", small, videos, "-o", tmp_path / "c.lstr"), 4, "small.lstr")
    assert_error(lstr("quantise", model, videos, "-o", published_set.checkpoint), 2, "checkpoint.pt")
