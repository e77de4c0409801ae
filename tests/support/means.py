"""Networks and a model that take a millisecond, for tests of many sources."""

from pathlib import Path

import torch

from lstr import checkpoint
from lstr.kinds import configure, make_model
from tests.support.feature_set import TINY


def tiny_checkpoint(path: Path, classes: tuple[str, ...]):
    """Write and load a model for the features of `Means`."""
    torch.manual_seed(0)
    model = make_model(configure(rgb_dim=6, flow_dim=2, **TINY), len(classes)).eval()
    with torch.no_grad():
        model.classifier.weight *= 20  # so that scores rise and fall
    checkpoint.save(path, model, classes, None, {})
    return checkpoint.load(path)
