"""The Python calls: from videos to networks, features, a checkpoint and its scores."""

import numpy as np
import pytest

import lstr
from lstr.pipelines.progress import Progress
from lstr.pipelines.scenes import SceneConfig, render_scenes
from tests.support.feature_set import TINY_SETTINGS

SMALL = {"epochs": 1, "batch_size": 8, "draws": 8, "precision": "float32"}


@pytest.mark.long
def test_from_videos_to_decisions_with_finetuned_networks(small_set, tmp_path):
    root, events = tmp_path / "scenes", []
    labels = render_scenes(root, SceneConfig(n_videos=3, n_testing=1, seconds=4.0, width=96, height=64))
    finetuned = lstr.finetune(
        root / "videos", labels, tmp_path / "weights", stream="flow", algorithm="dis", recipe=str(small_set.recipe),
        settings=SMALL, device="cpu", cache=tmp_path / "chunks", show=events.append,
    )  # fmt: skip
    assert finetuned.weights.path == tmp_path / "weights" and not finetuned.failed
    assert any(isinstance(event, Progress) for event in events)
    features = tmp_path / "features"
    summary = lstr.extract(root / "videos", features, recipe=tmp_path / "weights", device="cpu", workers=1)
    assert summary.counts["done"] == 3 and not summary.failed
    resumed = lstr.extract([root / "videos"], features, recipe=tmp_path / "weights", device="cpu")
    assert resumed.counts["kept"] == 3
    settings = {**TINY_SETTINGS, "train.epochs": 1}
    with pytest.warns(UserWarning, match="flow.*2 of 2"):
        trained = lstr.train(features, labels, tmp_path / "run", preset="rnn-small", settings=settings, device="cpu")
    result = lstr.evaluate(trained.checkpoint, features, labels, subset="testing", resamples=0)
    assert result.document["lstr"]["mAP"] is not None
    video = root / "videos" / "scene_02.mp4"
    decisions = list(lstr.detect(video, trained.checkpoint, networks=tmp_path / "weights", device="cpu"))
    assert len(decisions) == 16
    stored = list(lstr.detect(features, trained.checkpoint))
    assert np.allclose(decisions[5].scores, stored[2 * 16 + 5].scores, atol=1e-4)
