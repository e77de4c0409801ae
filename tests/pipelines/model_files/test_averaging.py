"""An average of several checkpoints in one model file."""

import json

import numpy as np
import pytest
import torch

from lstr.batch import predict
from lstr.checkpoint import load, save
from lstr.errors import LstrError
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.options import Limits
from lstr.pipelines.model_files.model_file import open_checkpoint, open_model
from lstr.pipelines.model_files.packing import unpack_model, write_average, write_model
from lstr.pipelines.progress import result_of
from tests.support.errors import assert_error
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, RGB_DIM

THRESHOLDS = {"fall": {"on": 0.4, "off": 0.3}}


@pytest.fixture
def members(finetuned, tmp_path):
    """Checkpoints of an RNN of both streams and of an LFB of flow, trained on different videos."""
    recipe = json.loads(finetuned.weights.recipe.to_json())
    paths = []
    for seed, changes in enumerate(({"kind": "rnn"}, {"kind": "lfb", "rgb_dim": 0})):
        torch.manual_seed(seed)
        model = make_model(configure(**{**TINY, "rgb_dim": RGB_DIM, **changes}), len(CLASSES)).eval()
        paths.append(tmp_path / f"run{seed}" / "checkpoint.pt")
        paths[-1].parent.mkdir()
        save(paths[-1], model, CLASSES, recipe, {"training_videos": [f"video {seed}"]}, {"thresholds": THRESHOLDS})
    return paths


@pytest.mark.long
def test_an_average_is_packed_and_detects(lstr, run, finetuned, members, tmp_path):
    file, weights = tmp_path / "new" / "both.lstr", finetuned.weights.path
    code, _, err = lstr("pack", members[0].parent, members[1], "--weights", weights, "-o", file)
    assert code == 0 and "rgb, flow" in err and list(file.parent.iterdir()) == [file], err
    about = json.loads(lstr("info", file, "--json")[1])
    assert about["model"] == "average" and [member["kind"] for member in about["members"]] == ["rnn", "lfb"]
    assert "2 models, 1 of kind rnn and 1 of kind lfb" in lstr("info", file)[1]
    assert set(open_model(file).about["seen"]) >= {"video 0", "video 1"}
    singles = [write_model(tmp_path / f"{path.parent.name}.lstr", path, weights, {}).path for path in members]
    run("pack", *singles, "-o", tmp_path / "of files.lstr")
    unpack_model(file, tmp_path / "out")
    paths = (file, tmp_path / "of files.lstr", tmp_path / "out" / "checkpoint.pt")
    models = [open_checkpoint(path).model for path in paths]
    scores = [predict(m, np.random.default_rng(0).normal(size=(9, m.config.input_dim)).astype("f")) for m in models]
    assert torch.equal(scores[0], scores[1]) and torch.equal(scores[0], scores[2])
    options = DetectOptions(file, limits=Limits(max_chunks=2))
    detection = result_of(detect_sources([finetuned.videos["scene_02"]], options))
    assert detection.timelines["scene_02"]["decided"] == 2


def test_checkpoints_of_other_classes_or_recipes_are_refused(lstr, finetuned, members, tmp_path):
    recipe, model = json.loads(finetuned.weights.recipe.to_json()), load(members[0]).model
    for classes, other in ((CLASSES[::-1], recipe), (CLASSES, recipe | {"crop": 96}), (CLASSES, None)):
        save(tmp_path / "other.pt", model, classes, other, {})
        with pytest.raises(LstrError, match="other.pt|crop"):
            write_average(tmp_path / "a.pt", [members[0], tmp_path / "other.pt"])
    loaded = load(write_average(tmp_path / "a.pt", members))
    assert loaded.metrics["training_videos"] == ["video 0", "video 1"]
    assert loaded.extra["thresholds"] == THRESHOLDS
    assert [member["kind"] for member in loaded.extra["members"]] == ["rnn", "lfb"]
    assert "members\t2" in lstr("info", tmp_path / "a.pt")[1]
    assert_error(lstr("pack", tmp_path / "a.pt", members[0], "-o", tmp_path / "x.lstr"), 4, "a.pt")
    assert_error(lstr("models", "average"), 2)
