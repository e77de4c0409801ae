"""`lstr.detect`: a checkpoint with its networks, thresholds and limits, and errors that name arguments."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import lstr
from lstr.checkpoint import save
from lstr.errors import ConfigError, RecipeError, WeightsError
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.options import NetworkOptions, choose_thresholds
from lstr.timeline import Thresholds
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, RGB_DIM

TWO = lstr.Limits(max_chunks=2)


@dataclass(frozen=True)
class Trained:
    """A video, the weights folder of its networks, and a checkpoint for their features."""

    video: Path
    weights: Path
    checkpoint: Path


@pytest.fixture(scope="module")
def trained(finetuned, tmp_path_factory) -> Trained:
    torch.manual_seed(0)
    model = make_model(configure(**TINY, rgb_dim=RGB_DIM), len(CLASSES)).eval()
    recipe = json.loads(finetuned.weights.recipe.to_json())
    path = tmp_path_factory.mktemp("checkpoint") / "c.pt"
    save(path, model, CLASSES, recipe, {}, {"thresholds": {"fall": {"on": 0.4, "off": 0.3}}})
    return Trained(next(iter(finetuned.videos.values())), finetuned.weights.path, path)


def scores_of(trained: Trained, networks) -> np.ndarray:
    decisions = lstr.detect(trained.video, trained.checkpoint, networks=networks, limits=TWO, device="cpu")
    return np.stack([decision.scores for decision in decisions])


@pytest.mark.long
def test_networks_that_are_not_random(trained):
    """By their folder, by files, and as options: the same scores, which other networks do not give."""
    by_folder = scores_of(trained, trained.weights)
    assert by_folder.shape == (2, 2) and np.isfinite(by_folder).all()
    files = {stream: trained.weights / f"{stream}.pth" for stream in ("rgb", "flow")}
    assert np.array_equal(by_folder, scores_of(trained, files))
    options = NetworkOptions(dict.fromkeys(("rgb", "flow"), str(trained.weights)), flow_threads=1)
    assert np.array_equal(by_folder, scores_of(trained, options))
    others = {stream: trained.weights / "fold_1" / f"{stream}.pth" for stream in ("rgb", "flow")}
    with pytest.raises(RecipeError, match="sha256"):
        scores_of(trained, others)
    assert not np.array_equal(by_folder, scores_of(trained, others | {"allow_mismatch": True}))


def test_networks_that_cannot_be_meant(trained, tmp_path):
    with pytest.raises(ConfigError, match="no option 'colour'"):
        NetworkOptions.of({"rgb": trained.weights, "colour": "red"}, ("rgb", "flow"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsError, match="not a finished weights folder"):
        scores_of(trained, tmp_path / "empty")


def test_thresholds(trained):
    """Of the checkpoint; for all classes; by name; by class."""
    loaded = lstr.load(trained.checkpoint)
    own = {"Background": Thresholds(), "fall": Thresholds(0.4, 0.3)}
    assert choose_thresholds(loaded) == own == choose_thresholds(loaded, {})
    assert choose_thresholds(loaded, Thresholds(0.9)) == Thresholds(0.9)
    assert choose_thresholds(loaded, {"min_length": 1, "off": None})["fall"] == Thresholds(0.4, 0.3, 1.0)
    assert choose_thresholds(loaded, {"fall": {"merge_gap": 1}}) == own | {"fall": Thresholds(0.4, 0.3, 0, 1.0)}
    assert choose_thresholds(loaded, {"backdate": 0.75})["fall"] == Thresholds(0.4, 0.3, backdate=0.75)
    assert choose_thresholds(loaded, {"fall": Thresholds(0.9)}) == own | {"fall": Thresholds(0.9)}
    with pytest.raises(ConfigError) as caught:
        choose_thresholds(loaded, {"fell": Thresholds()})
    assert "Background, fall" in caught.value.hint and "min_length" in caught.value.hint
    with pytest.raises(ConfigError):
        choose_thresholds(loaded, {"fall": 0.4})


def test_thresholds_decide_what_is_reported(small_set):
    def labels(thresholds) -> set[str]:
        decisions = lstr.detect(small_set.features, lstr.load(small_set.checkpoint), thresholds=thresholds)
        return {event.label for decision in decisions for event in decision.events}

    reported = labels(None)
    never = Thresholds(1.0)
    assert len(reported) > 1 and labels(never) == set()
    out = min(reported)
    assert labels({out: never}) == reported - {out}


def test_a_stream_by_hand(small_set):
    """`create` and `step` on stored features give the scores of `detect`."""
    loaded = lstr.load(small_set.checkpoint)
    state = lstr.create(loaded.model)
    for decision in lstr.detect(small_set.features, loaded, limits=TWO):
        if decision.chunk == 0:
            state = lstr.create(loaded.model)
        row = [np.load(next(small_set.features.glob(f"{stream}_*/scene_00.npy"))) for stream in ("rgb", "flow")]
        scores = lstr.step(loaded.model, state, *(part[decision.chunk] for part in row))
        assert decision.time == (decision.chunk + 1) / 4 and np.allclose(scores, decision.scores, atol=1e-6)
        if decision.chunk == 1:
            break
