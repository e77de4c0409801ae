"""Averages of models: their scores, their stored files, and how they differ from kinds that are trained."""

import json

import numpy as np
import pytest
import torch

from lstr import batch, checkpoint
from lstr.average import average, mean_of
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import KINDS, configure
from tests.support.tiny_models import AVERAGED, perturb, tiny, video

CLASSES = ("Background", "a", "b", "c", "d")


@pytest.fixture
def members():
    """An RNN of three columns of the features, a feature bank of all columns but the first, and these columns."""
    rnn = perturb(tiny(kind="rnn", rgb_dim=3, flow_dim=0))
    bank = perturb(tiny(seed=1, kind="lfb", rgb_dim=7, flow_dim=0))
    return [rnn, bank], [((0, 1), (6, 8)), ((1, 8),)]


def test_scores_are_the_geometric_mean_of_the_members_scores(members):
    models, columns = members
    features = video(30)
    inputs = features[:, [0, 6, 7]], features[:, 1:]
    scores = [batch.predict(model, part) for model, part in zip(models, inputs, strict=True)]
    expected = (scores[0] * scores[1]).sqrt()
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(torch.from_numpy(mean_of([part.numpy() for part in scores])), expected)
    torch.testing.assert_close(batch.predict(average(models, columns, 5, 3), features), expected, atol=1e-6, rtol=0)
    (row,) = mean_of([np.array([[1.0, 0.0]], np.float32), np.array([[0.5, 0.5]], np.float32)])
    assert row.sum() == pytest.approx(1) and 0 < row[1] < 1e-18, "a score of 0 keeps the mean finite"


def test_a_contradictory_file_is_refused(members, tmp_path):
    checkpoint.save(tmp_path / "a.pt", average(*members, 5, 3), CLASSES, None, {})
    content = torch.load(tmp_path / "a.pt", weights_only=True)
    config = json.loads(content["config"])
    first, second = config["members"]
    damage = [
        *(([{**first, "columns": columns}], ConfigError) for columns in ([[6, 8], [0, 1]], [[0, 1], [7, 9]], [[0, 4]])),
        *((value, ConfigError) for value in ([], "text", [{"columns": []}], [{"config": config, "columns": []}])),
        *((value, CheckpointError) for value in ([first, second, first], [first])),
    ]
    changes = [({"config": json.dumps({**config, "members": value})}, error) for value, error in damage]
    for change, error in [*changes, ({"classes": json.dumps(CLASSES[:4])}, CheckpointError)]:
        torch.save({**content, **change}, tmp_path / "b.pt")
        with pytest.raises(error):
            checkpoint.load(tmp_path / "b.pt")


def test_an_average_is_a_kind_that_cannot_be_trained():
    assert "average" in KINDS and "average" not in list(KINDS)
    with pytest.raises(ConfigError):
        configure(kind="average")
    model = tiny(**AVERAGED)
    assert (model.config.long_stride, model.config.n_ahead) == (4, 0) and model.config.long_length >= 16
    with pytest.raises(ConfigError):
        model(None)
