"""Whole videos at once: the same scores as window by window, and no chunk projected twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lstr import batch
from tests.support.tiny_models import DESIGNS, of_each_window, tiny, video

FORMS = [
    {"grid": "fixed", "positions": "slot"},
    {"grid": "sliding", "positions": "slot", "anticipation": 2},
    {"grid": "sliding", "positions": "distance", "gru": True},
    {"grid": "anchored", "positions": "slot"},
    {"grid": "fixed", "positions": "distance", "long_length": 0, "gru": True},
    {"grid": "fixed", "positions": "slot", "long_length": 0, "anticipation": 2},
    {"grid": "fixed", "positions": "slot", "long_length": 0, "gru": True, "work_length": 1},
]


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: " ".join(design.values()))
def test_scores_are_those_of_each_window_alone(design):
    """Videos shorter than the work memory, shorter than both memories, and longer, in blocks that leave a rest."""
    for form in FORMS:
        if design["integration"] == "mlp":
            form = form | {"anticipation": 0}
        model = tiny(**design, **form)
        for length in (4, 45):
            features = video(length)
            expected = of_each_window(model, features).softmax(dim=-1)
            torch.testing.assert_close(batch.predict_ahead(model, features, 16), expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_full_size_scores_are_those_of_each_window_alone(grid):
    from lstr.kinds import configure, make_model
    from lstr.windows.windows import gather

    torch.manual_seed(0)
    model = make_model(configure(grid=grid), 22).eval()
    features = torch.randn(2200, 3072)
    scores = batch.predict(model, features)
    ends = np.array([0, 17, 31, 32, 500, 2079, 2080, 2081, 2199])
    with torch.no_grad():
        logits = model(gather(features, ends, model.config))[torch.arange(len(ends)), np.minimum(ends, 31)]
    torch.testing.assert_close(scores[ends], logits.softmax(dim=-1), atol=1e-5, rtol=0)
