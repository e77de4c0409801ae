"""Networks and a model that take a millisecond, for tests of many sources."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from lstr import checkpoint
from lstr.extractors.run import FeatureRow
from lstr.kinds import configure, make_model
from tests.support.feature_set import TINY


class Means:
    """Networks that compute the means of a chunk's frames and of their differences."""

    device, batch, recipe = "cpu", 4, SimpleNamespace(long_side=64, remembers=False)

    def prepare(self, *batches):
        pass

    def open_pool(self, workers):
        return ThreadPoolExecutor(2, "networks"), 2

    def submit(self, pool, chunks, workers) -> Future:
        return pool.submit(lambda: [self.row_of(chunk) for chunk in chunks])

    def row_of(self, chunk) -> FeatureRow:
        frames = chunk.frames.astype(np.float32) / 255  # (6, H, W, 3)
        rgb, flow = frames[3].mean((0, 1)), np.abs(np.diff(frames, axis=0)).mean((0, 1, 2))
        return FeatureRow(chunk.index, chunk.end_time, {"rgb": np.concatenate([rgb, rgb**2]), "flow": flow[:2]})


def tiny_checkpoint(path: Path, classes: tuple[str, ...]):
    """Write and load a model for the features of `Means`."""
    torch.manual_seed(0)
    model = make_model(configure(rgb_dim=6, flow_dim=2, **TINY), len(classes)).eval()
    with torch.no_grad():
        model.classifier.weight *= 20  # so that scores rise and fall
    checkpoint.save(path, model, classes, None, {})
    return checkpoint.load(path)
