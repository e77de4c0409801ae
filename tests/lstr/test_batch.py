"""The reference prediction of a whole video: what it takes and refuses; tests/lstr/models has every kind."""

import numpy as np
import pytest
import torch

from lstr import batch
from lstr.errors import LstrError
from tests.support.tiny_models import tiny, video


@pytest.mark.filterwarnings("error")
def test_features_are_read_from_a_file_that_cannot_be_written(tmp_path):
    """Stored features are maps of a file, which torch takes only with a warning, and other types than float32."""
    features = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float16)
    np.save(tmp_path / "features.npy", features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    model = tiny()
    expected = batch.predict(model, torch.from_numpy(features.astype(np.float32)))
    assert torch.equal(batch.predict(model, mapped), expected)


def test_a_model_in_double_precision_gives_the_same_scores_in_float32():
    model, features = tiny(gru=True, anticipation=2), video(40)
    scores = batch.predict_ahead(model, features)
    precise = batch.predict_ahead(model.double(), features)
    assert precise.dtype == torch.float32
    torch.testing.assert_close(scores, precise, atol=1e-5, rtol=0)


def test_what_does_not_fit_is_refused():
    with pytest.raises(LstrError):
        batch.predict(tiny().train(), video(20))
    for shape in ((20, 7), (8,), (1, 20, 8)):
        with pytest.raises(LstrError) as caught:
            batch.predict(tiny(), torch.randn(shape))
        assert str(shape) in str(caught.value) and caught.value.hint
    features = video(20)
    for chunk, value in ((13, float("nan")), (11, float("-inf"))):
        features[chunk, 2] = value
        with pytest.raises(LstrError, match=f"chunk {chunk}"):
            batch.predict(tiny(), features)
