"""Model files in int8."""

import json
import shutil

import pytest

from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.progress import result_of
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
def test_an_int8_model_finds_the_labelled_actions(lstr, published_set, tmp_path):
    """In videos whose actions it was trained on; its ranges were measured on another video."""
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
    sources = [published_set.videos / f"{name}.mp4" for name in ("scene_01", "scene_02")]
    truth = read_label_file(published_set.labels).videos
    for file in (model, small):
        for name, timeline in result_of(detect_sources(sources, DetectOptions(file, device="cpu"))).timelines.items():
            (segment,), (action,) = timeline["segments"], truth[name].segments
            assert segment["label"] == action.label
            assert (segment["start"], segment["end"]) == pytest.approx((action.start, action.end), abs=0.5)
    assert_error(lstr("quantise", small, videos, "-o", tmp_path / "c.lstr"), 4, "small.lstr")
    assert_error(lstr("quantise", model, videos, "-o", published_set.checkpoint), 2, "checkpoint.pt")
