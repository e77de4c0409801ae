"""The reference prediction of a whole video, for every kind of model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lstr import batch
from lstr.errors import LstrError
from lstr.windows.windows import gather
from tests.support.tiny_models import AVERAGED, DESIGNS, tiny, video

KINDS = [
    {"kind": "rnn"},
    {"kind": "miniroad", "anticipation": 1},
    {"kind": "trn", "anticipation": 2},
    {"kind": "lfb"},
    {"kind": "testra", "decay": 0.9, "anticipation": 1},
    {"kind": "cmert", "context": 2, "anticipation": 1},
    {"kind": "mat", "groups": 2, "anticipation": 1},
    {"kind": "idn"},
    {"kind": "fats", "generated": 2},
    {"kind": "woad"},
    {"kind": "ed", "anticipation": 1},
    {"kind": "ttm", "anticipation": 1},
    {"kind": "lap-like", "anticipation": 1},
    {"kind": "tfn-like"},
    {"kind": "conv-deconv"},
    {"long_length": 0},
    {"kind": "gatehub"},
    {"kind": "oadtr", "anticipation": 1},
    {"kind": "colar"},
    AVERAGED,
]


@pytest.mark.parametrize("changes", [*DESIGNS, *KINDS], ids=lambda changes: " ".join(map(str, changes.values())))
def test_the_future_never_changes_the_past(changes):
    """Whatever follows a chunk, its scores and those it gives of the chunks ahead stay the same to the bit."""
    if "encoder" in changes:
        changes = {"anticipation": 0 if changes["integration"] == "mlp" else 2, "gru": True} | changes
    features, cut = video(60), 33
    for grid in ("fixed", "sliding", "anchored"):
        model = tiny(grid=grid, **changes)
        if grid != "fixed" and not model.config.n_long:
            break
        other = torch.cat([features[:cut], 10 * video(60 - cut, 1)])
        a, b = batch.predict_ahead(model, features), batch.predict_ahead(model, other)
        assert a.shape == (60, 1 + model.config.n_ahead, 5)
        assert torch.equal(a[:cut], b[:cut])
        assert ((a[cut:] - b[cut:]).abs().amax(dim=(1, 2)) > 1e-4).all()
        torch.testing.assert_close(batch.predict_ahead(model, features[:cut]), a[:cut], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "changes", [{}, {"grid": "sliding"}, {"positions": "distance"}, {"gru": True}, {"anticipation": 3}, *KINDS], ids=str
)
def test_scores_do_not_depend_on_the_batch_size(changes):
    model = tiny(**changes)
    features = video(45)
    whole = batch.predict_ahead(model, features, batch_size=64)
    for batch_size in (1, 7):
        torch.testing.assert_close(batch.predict_ahead(model, features, batch_size), whole, atol=1e-6, rtol=0)
    torch.testing.assert_close(batch.predict(model, features), whole[:, 0], atol=0, rtol=0)
    torch.testing.assert_close(whole.sum(dim=-1), torch.ones(whole.shape[:2]))


@pytest.mark.parametrize("changes", [{}, {"anticipation": 2}, {"gru": True}, *KINDS], ids=str)
def test_every_chunk_of_short_videos_has_scores(changes):
    """The published evaluation drops videos shorter than the work memory."""
    model = tiny(**changes)
    for length in (0, 1, 5, 6, 7):
        scores = batch.predict_ahead(model, video(length))
        assert scores.shape == (length, 1 + model.config.n_ahead, 5) and scores.dtype == torch.float32
        assert not scores.requires_grad


@pytest.mark.filterwarnings("error")
def test_features_are_read_from_a_file_that_cannot_be_written(tmp_path):
    """Stored features are maps of a file, which torch takes only with a warning, and other types than float32."""
    features = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float16)
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    model = tiny()
    expected = batch.predict(model, torch.from_numpy(features.astype(np.float32)))
    assert torch.equal(batch.predict(model, mapped), expected)


@pytest.mark.parametrize("changes", [{"positions": "distance", "grid": "sliding"}, {"integration": "average"}], ids=str)
def test_entry_h_speaks_of_the_chunk_h_ahead(changes):
    """Classes follow each other in a fixed order, so the future is known, and another chunk may have another class."""
    n_ahead, n_chunks = 4, 42
    phases = torch.arange(n_chunks) % 6
    labels = torch.tensor([0, 0, 1, 1, 2, 2])[phases]  # class (chunk // 2) % 3
    features = F.one_hot(phases, 6).float()  # a chunk shows where in the order it is
    model = tiny(n_classes=3, rgb_dim=6, flow_dim=0, dropout=0.0, anticipation=n_ahead, **changes)
    ends, outputs = np.arange(5, n_chunks), model.outputs()
    windows = gather(features, ends, model.config)
    at = np.where(outputs.slots < 0, ends[:, None], ends[:, None] - 5 + outputs.slots)  # (B, N)
    about = torch.from_numpy(at + outputs.ahead)
    inside = about < n_chunks
    assert not inside.all()  # the last windows look past the end
    targets = labels[about.clamp(max=n_chunks - 1)]
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01)
    for _ in range(50):
        loss = F.cross_entropy(model(windows)[inside], targets[inside])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ahead = batch.predict_ahead(model.eval(), features).argmax(dim=-1)  # (L, 1 + n_ahead)
    for h in range(1 + n_ahead):
        right = ahead[5 : n_chunks - h, h] == labels[5 + h :]  # no window of the training ends before chunk 5
        assert right.float().mean() > 0.9, h  # one chunk off would be right half of the time


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "distance", "grid": "sliding"},
        {"integration": "concatenation"},
        {"encoder": "joined", "l_enc": 1},
        {"encoder": "none", "gru": True},
        {"long_length": 0},
    ],
    ids=str,
)
def test_looking_ahead_leaves_detection_as_it_was(changes):
    """Tokens of the future come after the work memory under a causal mask, and each sees those before it alone."""
    model, detector = tiny(anticipation=3, **changes), tiny(**changes)
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("future_tokens")}
    assert len(own) == len(model.state_dict()) - 1
    detector.load_state_dict(own)
    features = video(60)
    windows = gather(features, [2, 30, 59], model.config)
    with torch.no_grad():
        before = model(windows)
        torch.testing.assert_close(before[:, :6], detector(windows), atol=1e-6, rtol=0)
        scores = batch.predict_ahead(model, features)
        torch.testing.assert_close(scores[:, 0], batch.predict(detector, features), atol=1e-6, rtol=0)
        model.future_tokens.weight[1] += 1.0
        changed = (model(windows) - before).abs().amax(dim=-1)
    assert (changed[:, :7] < 1e-6).all() and (changed[:, 7:] > 1e-3).all()


def test_a_model_in_double_precision_gives_the_same_scores_in_float32():
    model = tiny(gru=True, anticipation=2)
    features = video(40)
    scores = batch.predict_ahead(model, features)
    precise = batch.predict_ahead(model.double(), features)
    assert precise.dtype == torch.float32
    torch.testing.assert_close(scores, precise, atol=1e-5, rtol=0)


def test_what_does_not_fit_is_refused():
    with pytest.raises(LstrError, match="training"):
        batch.predict(tiny().train(), video(20))
    for shape in ((20, 7), (8,), (1, 20, 8)):
        with pytest.raises(LstrError, match="shape") as caught:
            batch.predict(tiny(), torch.randn(shape))
        assert str(shape) in str(caught.value) and caught.value.hint
    features = video(20)
    features[13, 2] = float("nan")
    with pytest.raises(LstrError, match="chunk 13"):
        batch.predict(tiny(), features)
    features[11, 7] = float("-inf")
    with pytest.raises(LstrError, match="chunk 11"):
        batch.predict(tiny(), features)
