"""Every kind and design is trained, evaluated and run on a stream by the same jobs."""

import numpy as np
import pytest
import torch

from lstr.checkpoint import load
from lstr.kinds import KINDS
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.progress import result_of
from tests.support.detections import decisions_of, run_session, sources_of
from tests.support.training import train_tiny

DESIGNS = [
    *({"kind": kind} for kind in KINDS),
    {"kind": "cmert", "grid": "anchored", "context": "2", "anticipation": "2"},
    {"kind": "woad", "supervision": "video"},
    {"long_length": "0", "gru": "true", "anticipation": "8", "flow_dim": "0"},
]
"""Of each kind and, as changed settings, those that training and streams treat differently"""


def train(split, folder, design):
    list(train_tiny(split, folder, {f"model.{name}": value for name, value in design.items()}))
    return load(folder / "checkpoint.pt")


@pytest.mark.long
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: " ".join(f"{k}={v}" for k, v in design.items()))
def test_a_design_is_trained_scored_and_run_on_a_stream(small_set, tmp_path, design):
    split = read_split(small_set.features, small_set.labels, "training")
    loaded = train(split, tmp_path, design)
    assert all(str(getattr(loaded.config, name)).lower() == value for name, value in design.items())
    batch, stream = (result_of(score_split(loaded, split, Scoring(mode=mode))).document for mode in ("batch", "stream"))
    assert batch["lstr"]["mAP"] == pytest.approx(stream["lstr"]["mAP"], abs=1e-3)
    n_ahead = loaded.config.n_ahead
    assert ("anticipation" in batch) == ("anticipation" in stream) == (n_ahead > 0)
    decisions = decisions_of(run_session(sources_of(small_set.features, loaded=loaded)[:1], loaded))
    assert len(decisions) == 20 and all(np.isclose(d.scores.sum(), 1, atol=1e-4) for d in decisions)
    assert [row[0] for row in decisions[0].to_dict().get("ahead", [])] == [0.25 * h for h in range(1, n_ahead + 1)]


def test_anticipation_is_scored_on_future_chunks(split, tmp_path, monkeypatch):
    """Scores that copy the future labels have an mAP of 1 for the future, and a low one for the present."""
    loaded = train(split, tmp_path, {"anticipation": "2"})
    targets = iter([video.targets.astype(np.float32) for video in split.videos])

    def predict_ahead(model, features, constants):
        current = next(targets)
        future = [np.roll(current, -h, axis=0) for h in (1, 2)]
        return torch.from_numpy(np.stack([np.full_like(current, 0.5), *future], axis=1))

    monkeypatch.setattr("lstr.pipelines.evaluation.scoring.predict_ahead", predict_ahead)
    document = result_of(score_split(loaded, split)).document
    assert [(row["chunks"], row["mAP"]) for row in document["anticipation"]] == [(1, 1.0), (2, 1.0)]
    assert document["lstr"]["mAP"] < 0.5
