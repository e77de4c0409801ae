"""A new kind of model is one class, what it uses of a configuration, and its name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from lstr import batch, checkpoint, kinds, streaming
from lstr.errors import ConfigError, LstrError
from lstr.kinds import KINDS, configure, make_model
from lstr.models.kind import Model
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.window_samples import make_targets
from lstr.windows.windows import Supervision, gather, totals_of
from tests.support.documents import ROOT, block_with
from tests.support.tiny_models import TINY, tiny, video

PAGE = ROOT / "docs" / "how-to" / "python.md"


@pytest.fixture
def mean(monkeypatch, tmp_path) -> Iterator[Model]:
    """A model of the new kind."""
    (tmp_path / "mean_kind.py").write_text(block_with(PAGE, "python", "class MeanConfig"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(kinds.OURS, "mean", "mean_kind:KIND")
    for cached in (kinds.usable, kinds.presets):
        cached.cache_clear()
    yield tiny(kind="mean")
    for cached in (kinds.usable, kinds.presets):
        cached.cache_clear()


def test_every_kind_is_what_it_is_named():
    for name, kind in KINDS.items():
        assert kind.name == name and isinstance(make_model(configure(**TINY, kind=name), 5), kind.model)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("woad", "red")])
def test_the_loss_of_a_batch_is_that_of_its_pieces(kind):
    """But for kinds that compare windows with each other, or draw labels."""
    model, rows = tiny(kind=kind), video(60).numpy()
    labels = np.eye(5)[[*[0] * 12, *[1] * 6, 3, *[1] * 3, *[2] * 20, *[0] * 18]]
    one = LabelledVideo("v", TwoStreamArray(rows[:, :5], rows[:, 5:]), labels)
    ends, outputs = [9, 20, 30], model.outputs()
    windows = gather(rows, ends, model.config)
    targets, counts = make_targets([one], [(0, end) for end in ends], model.config, outputs)
    totals = totals_of(targets, counts, outputs, 3)

    def loss(at: slice, *of_batch) -> float:
        torch.manual_seed(5)  # FATS draws a length
        part = windows.map(lambda tensor: tensor[at])
        return model.loss(model(part), part, Supervision(targets[at], counts[at], 3, *of_batch)).item()

    pieces = [loss(at, totals, 3) for at in (slice(0, 2), slice(2, 3))]
    assert sum(pieces) == pytest.approx(loss(slice(None)), rel=1e-5)


def test_a_new_kind_predicts_streams_and_is_stored(mean, tmp_path):
    assert mean.config.n_long == 0 and mean.config.n_ahead == 0
    features = video(40)
    scores = batch.predict(mean, features)
    assert torch.equal(batch.predict_ahead(mean, features, constants=batch.shared_constants(mean))[:, 0], scores)
    state = streaming.create(mean, 2)
    for k, row in enumerate(features):
        if k == 20:
            streaming.save(tmp_path / "streams", state)
            state = streaming.restore(tmp_path / "streams", mean)
        both = streaming.step(mean, state, row[:5].expand(2, -1), row[5:].expand(2, -1))
        torch.testing.assert_close(both, scores[k].expand(2, -1), atol=1e-6, rtol=0)
    checkpoint.save(tmp_path / "mean.pt", mean, ("Background", "a", "b", "c", "d"), None, {})
    assert torch.equal(batch.predict(checkpoint.load(tmp_path / "mean.pt").model, features), scores)


def test_what_a_new_kind_does_not_have_is_refused(mean):
    with pytest.raises(LstrError, match="captured"):
        streaming.capture(mean, streaming.create(mean))
    assert not streaming.can_capture(mean)
    with pytest.raises(ConfigError, match="anticipation is 2, and kind mean"):
        configure(kind="mean", anticipation=2)
    with pytest.raises(ConfigError, match="gru is true and kind is mean"):
        configure(kind="mean", gru=True)
