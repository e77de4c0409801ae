"""A model file in int8: what it says of itself, that it detects, and what is refused."""

import json
import shutil

import numpy as np
import pytest

from lstr.extractors.flow.workers import flow_workers
from lstr.extractors.twostream import build_as
from lstr.labels.label_set import AMBIGUOUS
from lstr.pipelines.detection.detect import detect
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.quantisation.job import map_of_both, read_truth
from tests.support.extraction import returned
from tests.support.mistakes import mistake
from tests.support.small_set import PUBLISHED, SmallSet, write_small_set


@pytest.fixture(scope="module")
def published_set(tmp_path_factory) -> SmallSet:
    """The small set of the published networks on images of their size: int8 costs random small networks more."""
    return write_small_set(tmp_path_factory.mktemp("published"), PUBLISHED, {})


def test_without_videos_there_is_no_int8(lstr, small_set, tmp_path):
    model = write_model(tmp_path / "a.lstr", small_set.checkpoint, None, {}).path
    mistake(lstr("quantise", model, "-o", tmp_path / "b.lstr"), 2, "VIDEO")
    mistake(lstr("extract", small_set.videos, "-o", tmp_path / "f", "--set", "recipe.precision=int8"), 2, "'int8'")
    (tmp_path / "no.mp4").write_text("no video")
    mistake(lstr("quantise", model, tmp_path / "no.mp4", "-o", tmp_path / "b.lstr"), 3, "can be read")
    mistake(lstr("quantise", small_set.checkpoint, small_set.videos, "-o", tmp_path / "b.lstr"), 4, "model file")
    before = model.read_bytes()
    mistake(lstr("quantise", model, small_set.videos, "-o", model), 2, "would be replaced")
    assert not (tmp_path / "b.lstr").exists() and model.read_bytes() == before


def test_ambiguous_chunks_are_not_measured_where_the_model_knows_no_such_class(small_set, tmp_path):
    """They were refused; without them all that is left is one action, which any scores put first."""
    model = write_model(tmp_path / "a.lstr", small_set.checkpoint, None, {})
    videos = {"scene_03": small_set.videos / "scene_03.mp4"}
    rows = f"scene_03,0,2,{AMBIGUOUS}\nscene_03,2,3,{model.classes[1]}\nscene_03,3,9,{AMBIGUOUS}"
    (tmp_path / "labels.csv").write_text(f"video,start,end,label\n{rows}")
    truth = read_truth(tmp_path / "labels.csv", None, videos, model.classes)
    exact = build_as(model.recipe, model.network_sources(), "cpu")
    with flow_workers(exact.recipe.algorithm) as workers:
        found = returned(map_of_both(model.checkpoint(), exact, exact, videos, truth, workers))
    assert found == {"float32": 1.0, "int8": 1.0, "videos": 1}


@pytest.mark.slow
def test_a_model_in_int8(lstr, published_set, tmp_path):
    model = write_model(tmp_path / "a.lstr", published_set.checkpoint, None, {}).path
    before = model.read_bytes()
    small, videos = tmp_path / "small.lstr", tmp_path / "videos"
    videos.mkdir()
    shutil.copy(published_set.videos / "scene_00.mp4", videos)
    command = ["quantise", model, videos, "-o", small, "--set", "chunks=12", "--labels", published_set.labels]
    code, out, err = lstr(*command, "--subset", "training", "--json")
    assert code == 0 and "both mAPs flatter it" in err and model.read_bytes() == before, err
    record, about = json.loads(out), open_model(small).about
    assert about["int8"] == {name: value for name, value in record.items() if name != "model"}
    found = record["mAP"]
    assert record["chunks"] == 12 and found["videos"] == 1 and abs(found["int8"] - found["float32"]) < 0.2
    assert all(0.95 < cosine["least"] <= cosine["mean"] < 1 for cosine in record["cosine"].values())
    recipe = open_model(small).recipe
    assert recipe.precision == "int8" and recipe.id != open_model(model).recipe.id
    video = published_set.videos / "scene_01.mp4"
    scores = [np.stack([d.scores for d in detect(video, m, device="cpu")]) for m in (model, small)]
    assert 0 < np.abs(scores[0] - scores[1]).mean() < 0.1
    mistake(lstr("quantise", small, videos, "-o", tmp_path / "c.lstr"), 4, "int8 already")
    mistake(lstr("quantise", model, videos, "-o", published_set.checkpoint), 2, "no model file")
