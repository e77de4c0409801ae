"""An average of several checkpoints in one model file: what it scores, what it says of itself, what cannot be."""

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
from lstr.pipelines.model_files.card import model_of
from lstr.pipelines.model_files.model_file import open_checkpoint, open_model
from lstr.pipelines.model_files.packing import unpack_model, write_average, write_model
from lstr.pipelines.progress import result_of
from tests.support.errors import assert_error
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, RGB_DIM

THRESHOLDS = {"fall": {"on": 0.4, "off": 0.3}}


@pytest.fixture
def members(finetuned, tmp_path):
    """An RNN that sees both features, and a bank of windows that sees flow alone; each of its own video."""
    recipe = json.loads(finetuned.weights.recipe.to_json())
    paths = []
    for seed, changes in enumerate(({"kind": "rnn"}, {"kind": "lfb", "rgb_dim": 0})):
        torch.manual_seed(seed)
        model = make_model(configure(**{**TINY, "rgb_dim": RGB_DIM, **changes}), len(CLASSES)).eval()
        paths.append(tmp_path / f"run{seed}" / "checkpoint.pt")
        paths[-1].parent.mkdir()
        save(paths[-1], model, CLASSES, recipe, {"training_videos": [f"video {seed}"]}, {"thresholds": THRESHOLDS})
    return paths


def test_the_average_of_checkpoints_scores_their_mean(members, tmp_path):
    loaded = load(write_average(tmp_path / "both.pt", members))
    features = np.random.default_rng(0).normal(size=(9, loaded.config.input_dim)).astype(np.float32)
    rnn, bank = (load(path).model for path in members)
    mean = (predict(rnn, features) * predict(bank, features[:, RGB_DIM:])).sqrt()
    mean = mean / mean.sum(-1, keepdim=True)
    torch.testing.assert_close(predict(loaded.model, features), mean, atol=1e-6, rtol=0)
    assert loaded.metrics["training_videos"] == ["video 0", "video 1"]
    assert loaded.extra["thresholds"] == THRESHOLDS
    assert [one["kind"] for one in loaded.extra["members"]] == ["rnn", "lfb"]


@pytest.mark.long
def test_an_average_is_packed_and_detects(lstr, finetuned, members, tmp_path):
    """From runs, and from model files of their own: the same scores; unpacked it is a checkpoint again."""
    file, weights = tmp_path / "new" / "both.lstr", finetuned.weights.path
    code, _, err = lstr("pack", members[0].parent, members[1], "--weights", weights, "-o", file)
    assert code == 0 and "rgb, flow" in err, err
    assert list(file.parent.iterdir()) == [file]
    code, out, err = lstr("info", file, "--json")
    about = json.loads(out)
    assert code == 0 and about["model"] == "average" and [one["kind"] for one in about["members"]] == ["rnn", "lfb"]
    assert "rnn, lfb" in lstr("info", file)[1]
    assert model_of(open_model(file).about) == "an average of 2 models, 1 of kind rnn and 1 of kind lfb"
    single = [write_model(tmp_path / f"{path.parent.name}.lstr", path, weights, {}).path for path in members]
    assert [model_of(open_model(path).about) for path in single] == ["a model of kind rnn", "a model of kind lfb"]
    code, _, err = lstr("pack", *single, "-o", tmp_path / "again.lstr")
    assert code == 0 and "rgb, flow" in err, err
    unpack_model(file, tmp_path / "out")
    models = [open_checkpoint(path).model for path in (file, tmp_path / "again.lstr", tmp_path / "out/checkpoint.pt")]
    features = np.random.default_rng(0).normal(size=(9, models[0].config.input_dim)).astype(np.float32)
    scores = [predict(model, features) for model in models]
    assert torch.equal(scores[0], scores[1]) and torch.equal(scores[0], scores[2])
    assert set(open_model(file).about["seen"]) >= {"video 0", "video 1"}
    detected = result_of(
        detect_sources([finetuned.videos["scene_02"]], DetectOptions(file, limits=Limits(max_chunks=2)))
    )
    assert detected.timelines["scene_02"]["decided"] == 2


def test_what_does_not_go_together_is_refused(lstr, finetuned, members, tmp_path):
    recipe, model = json.loads(finetuned.weights.recipe.to_json()), load(members[0]).model
    for classes, made_by in ((CLASSES[::-1], recipe), (CLASSES, recipe | {"crop": 96}), (CLASSES, None)):
        save(tmp_path / "other.pt", model, classes, made_by, {})
        with pytest.raises(LstrError, match="other.pt|crop") as caught:
            write_average(tmp_path / "a.pt", [members[0], tmp_path / "other.pt"])
        assert caught.value.hint
    write_average(tmp_path / "a.pt", members)
    assert_error(lstr("pack", tmp_path / "a.pt", members[0], "-o", tmp_path / "x.lstr"), 4, "a.pt")
    assert_error(lstr("models", "average"), 2)
