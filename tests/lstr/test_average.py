"""Several models as one: its scores are the mean of theirs, each on its own columns."""

import json

import numpy as np
import pytest
import torch

from lstr import batch, checkpoint
from lstr.average import average, mean_of
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import KINDS, configure
from tests.support.tiny_models import AVERAGED, tiny, unsettled, video

CLASSES = ("Background", "a", "b", "c", "d")


@pytest.fixture
def parts():
    """An RNN that sees three columns, and a bank of windows that sees all but the first."""
    rnn = unsettled(tiny(kind="rnn", rgb_dim=3, flow_dim=0))
    bank = unsettled(tiny(seed=1, kind="lfb", rgb_dim=7, flow_dim=0))
    return [rnn, bank], [((0, 1), (6, 8)), ((1, 8),)]


def test_scores_are_the_mean_of_the_members_scores(parts):
    models, columns = parts
    model, features = average(models, columns, 5, 3), video(30)
    seen = features[:, [0, 6, 7]], features[:, 1:]
    first, second = (batch.predict(one, part) for one, part in zip(models, seen, strict=True))
    expected = (first * second).sqrt()
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(torch.from_numpy(mean_of([first.numpy(), second.numpy()])), expected)
    torch.testing.assert_close(batch.predict(model, features), expected, atol=1e-6, rtol=0)


def test_a_stored_one_that_contradicts_itself_is_refused(parts, tmp_path):
    checkpoint.save(tmp_path / "a.pt", average(*parts, 5, 3), CLASSES, None, {})
    content = torch.load(tmp_path / "a.pt", weights_only=True)
    config = json.loads(content["config"])
    for members, error in (
        ([], ConfigError),
        ("text", ConfigError),
        ([{"columns": []}], ConfigError),
        ([{**config["members"][0], "columns": [[6, 8], [0, 1]]}], ConfigError),
        ([{**config["members"][0], "columns": [[0, 1], [7, 9]]}], ConfigError),
        ([{**config["members"][0], "columns": [[0, 4]]}], ConfigError),
        ([{"config": config, "columns": []}], ConfigError),
        ([*config["members"], config["members"][0]], CheckpointError),
        (config["members"][:1], CheckpointError),
    ):
        torch.save({**content, "config": json.dumps({**config, "members": members})}, tmp_path / "b.pt")
        with pytest.raises(error) as caught:
            checkpoint.load(tmp_path / "b.pt")
        assert caught.value.hint
    torch.save({**content, "classes": json.dumps(CLASSES[:4])}, tmp_path / "b.pt")
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path / "b.pt")


def test_a_class_that_a_model_rules_out_has_a_mean_all_the_same():
    sure, unsure = np.array([[1.0, 0.0]], np.float32), np.array([[0.5, 0.5]], np.float32)
    (row,) = mean_of([sure, unsure])
    assert row.sum() == pytest.approx(1) and 0 < row[1] < 1e-18


def test_it_is_known_by_name_and_not_trained():
    assert "average" in KINDS and "average" not in list(KINDS)
    with pytest.raises(ConfigError) as caught:
        configure(kind="average")
    assert "lstr pack" in caught.value.hint
    model = tiny(**AVERAGED)
    assert (model.config.long_stride, model.config.n_ahead) == (4, 0) and model.config.long_length >= 16
    with pytest.raises(ConfigError):
        model(None)
