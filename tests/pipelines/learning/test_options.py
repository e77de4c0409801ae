"""How the networks are trained that begin with an earlier learning."""

from dataclasses import replace

import pytest

from lstr.pipelines.learning.options import IMAGE_SETTINGS, choose_features, initial_recipe, settings_of_networks
from lstr.pipelines.progress import result_of
from lstr.pipelines.training.finetune import FinetuneOptions, finetune
from lstr.pipelines.training.recogniser import settle
from tests.support.learning import options

FEATURES = ("pretrained", "both", None)


@pytest.fixture(scope="module")
def learnt(videos, tmp_path_factory) -> str:
    """A folder of networks that began as they do by default."""
    chosen = options(videos, tmp_path_factory.mktemp("learnt") / "weights")
    shared = {name: getattr(chosen, name) for name in ("videos", "labels", "output", "cache", "device")}
    settings = {f"{stream}.epochs": "0" for stream in ("grey", "difference")}
    result_of(finetune(FinetuneOptions(**shared, recipe=FEATURES[0], settings=settings)))
    return str(chosen.output)


@pytest.mark.slow
def test_they_are_trained_gently_by_what_they_began_with(learnt, videos):
    """A third of the rate, half of the epochs, all else as at first: `change` stays, and pictures shake and zoom.

    They had the settings of published video networks, with a rate and epochs of those of optical flow.
    """
    at_first = settle(FEATURES, {}, None, "cpu").configs
    chosen = options(videos, "m", init=learnt, algorithm=None, settings={})
    begun = initial_recipe(learnt)
    features = choose_features(chosen, begun)
    now = settle(features, settings_of_networks(chosen, begun, features), learnt, "cpu").configs
    for stream, one in at_first.items():
        sizes = {name: getattr(now[stream], name) for name in IMAGE_SETTINGS}  # those of the networks' own videos
        assert now[stream] == one.replace(lr=one.lr / 3, epochs=one.epochs // 2, **sizes)
    chosen = replace(chosen, settings={"epochs": "5", "shake": "0.1"})
    now = settle(features, settings_of_networks(chosen, begun, features), learnt, "cpu").configs
    assert {s: one.epochs for s, one in now.items()} == {s: 5 if one.epochs else 0 for s, one in at_first.items()}
    assert {one.shake for one in now.values() if one.epochs} == {0.1}
