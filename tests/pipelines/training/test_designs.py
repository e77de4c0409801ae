"""Every kind and design is trained, evaluated and run on a stream by the same commands."""

import json

import numpy as np
import pytest
import torch

from lstr.checkpoint import load
from lstr.kinds import KINDS
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.progress import result_of
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.train import Task, train_model
from tests.support.detections import decisions_of, run_recorded, sources_of

TINY = {"model.d_model": "16", "model.n_heads": "2", "model.d_feedforward": "16", "model.long_length": "16"}
TINY |= {"train.epochs": "2"}
CHANGES = {
    "testra": {"grid": "anchored", "decay": "0.9", "anticipation": "2"},
    "cmert": {"grid": "anchored", "context": "2", "anticipation": "2"},
    "mat": {"grid": "sliding", "anticipation": "2"},
    "rnn": {"cell": "gru"},
    "trn": {"shared_classifier": "true", "decoder_from": "0", "d_token": "8"},
    "gatehub": {"work_length": "4"},
    "oadtr": {"anticipation": "2", "decoder_heads": "4", "decoder_feedforward": "8"},
    "colar": {"exemplars": "3"},
    "woad": {"supervision": "video"},
}
DESIGNS = [
    *({"kind": kind, **CHANGES.get(kind, {})} for kind in KINDS),
    {"encoder": "joined"},
    {"integration": "average"},
    {"long_length": "0", "gru": "true"},
    {"anticipation": "8"},
    {"flow_dim": "0"},
]


@pytest.fixture
def split(small_set):
    return read_split(small_set.features, small_set.labels, "training")


@pytest.mark.long
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: " ".join(f"{k}={v}" for k, v in design.items()))
def test_by_the_same_commands(small_set, split, tmp_path, design):
    """Trained, saved, read back, scored in batch and as a stream alike, and detected with."""
    settings = TINY | {f"model.{name}": value for name, value in design.items()}
    model, config = resolve("lstr-small", settings, split.dims)
    losses = [step.loss for step in train_model(Task(split, model, config), tmp_path)]
    assert np.isfinite(losses).all()
    loaded = load(tmp_path / "checkpoint.pt")
    assert loaded.config == model and all(str(getattr(model, k)).lower() == v for k, v in design.items())
    results = [result_of(score_split(loaded, split, Scoring(mode))).document for mode in ("batch", "stream")]
    assert results[0]["lstr"]["mAP"] == pytest.approx(results[1]["lstr"]["mAP"], abs=1e-3)
    assert [r.get("anticipation") is not None for r in results] == [model.n_ahead > 0] * 2
    decisions = decisions_of(run_recorded(sources_of(small_set.features, loaded=loaded)[0], loaded))
    assert len(decisions) == 20 and all(np.isclose(d.scores.sum(), 1, atol=1e-4) for d in decisions)
    ahead = [0.25 * h for h in range(1, model.n_ahead + 1)]
    assert [seconds for seconds, _, _ in decisions[0].ahead] == ahead
    assert [row[0] for row in decisions[0].to_dict().get("ahead", [])] == ahead


def test_anticipation_is_scored_against_what_came(split, tmp_path, monkeypatch):
    """Scores that copy the future's labels are perfect ahead, and only there."""
    model, config = resolve("lstr-small", TINY | {"model.anticipation": "2"}, split.dims)
    list(train_model(Task(split, model, config), tmp_path))
    loaded = load(tmp_path / "checkpoint.pt")
    truths = iter([video.targets for video in split.videos])

    def oracle(_, features, constants):
        truth = next(truths).astype(np.float32)
        later = [np.roll(truth, -h, axis=0) for h in (1, 2)]
        return torch.from_numpy(np.stack([np.full_like(truth, 0.5), *later], axis=1))

    monkeypatch.setattr("lstr.pipelines.evaluation.scoring.predict_ahead", oracle)
    result = result_of(score_split(loaded, split)).document
    assert [row["chunks"] for row in result["anticipation"]] == [1, 2]
    assert [row["mAP"] for row in result["anticipation"]] == [1.0, 1.0] and result["lstr"]["mAP"] < 0.5
    assert json.dumps(result)
