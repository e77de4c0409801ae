"""The protocol of other code beside the standard number."""

import json

import numpy as np
import pytest

from lstr.checkpoints import checkpoint
from lstr.errors import ConfigError
from lstr.metrics.per_frame import per_frame
from lstr.pipelines.datasets.dataset import read_split
from lstr.pipelines.evaluation.job import EvaluateOptions, evaluate
from lstr.pipelines.evaluation.scoring import score_split
from lstr.pipelines.progress import result_of


def test_chunks_without_an_action_are_left_out_beside_the_standard_number(small_set, lstr):
    split = read_split(small_set.features, small_set.labels, "training")
    evaluation = result_of(score_split(checkpoint.load(small_set.checkpoint), split))
    options = EvaluateOptions([small_set.checkpoint], [small_set.features], small_set.labels, "training")
    scores = np.concatenate(evaluation.scores)
    targets, classes = np.concatenate([video.targets for video in split.videos]), split.labels.classes
    on = targets[:, 1:].any(axis=1)  # these labels have no ambiguous class
    expected = per_frame(scores[on], np.eye(len(classes))[targets[on].argmax(axis=1)], classes)
    result = result_of(evaluate(EvaluateOptions(**vars(options) | {"resamples": 0, "protocol": "toad"})))
    found, document = result.document["protocol"], result.document
    assert found["mAP"] == pytest.approx(expected["mAP"]) and found["chunks"] == on.sum() < len(on)
    assert found["per_class"].keys() == document["lstr"]["per_class"].keys()
    assert document["conventions"]["toad"] == {name: found[name] for name in ("mAP", "mcAP", "videos", "chunks")}
    assert document["conventions"]["corrected"]["mAP"] == document["lstr"]["mAP"], "the standard number stays"
    assert f"{on.sum()} chunks" in found["why"] and f"out of {len(on)}" in found["why"]
    words = ("evaluate", small_set.checkpoint, small_set.features, "--labels", small_set.labels, "--subset", "training")
    code, out, _ = lstr(*words, "--protocol", "toad", "--set", "resamples=0")
    assert code == 0 and "toad" in out and "leaves background out" in " ".join(out.split())
    code, out, _ = lstr(*words, "--protocol", "toad", "--set", "resamples=0", "--json")
    assert code == 0 and json.loads(out)["protocol"]["mAP"] == pytest.approx(expected["mAP"])


def test_what_a_protocol_cannot_be_is_said(small_set, lstr):
    with pytest.raises(ConfigError, match="protocol is 'frog'") as caught:
        EvaluateOptions([small_set.checkpoint], [small_set.features], small_set.labels, protocol="frog")
    assert "toad" in caught.value.hint
    words = ("evaluate", small_set.checkpoint, small_set.features, "--labels", small_set.labels, "--protocol", "toad")
    code, _, err = lstr(*words, "--choose-thresholds")
    assert code == 2 and "--protocol is about scores" in err
