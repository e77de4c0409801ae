"""The prediction of a whole stored video: what every stream must equal."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.chunk import LARGEST_FEATURE
from lstr.errors import LstrError
from lstr.files.arrays import tensor_of
from lstr.models.kind import Model


def predict(model: Model, features: Tensor | NDArray[np.float32], batch_size: int = 64) -> Tensor:
    """Return class probabilities (L, C), float32 on the CPU, of a video with features (L, D): what defines the scores.

    Chunk T takes the newest output of the window at T. Raises LstrError when the model is in training mode, or the
    features are of the wrong shape or not finite.
    """
    return predict_ahead(model, features, batch_size)[:, 0]


@torch.no_grad()
def predict_ahead(
    model: Model, features: Tensor | NDArray[np.float32], batch_size: int = 64, constants: Any = None
) -> Tensor:
    """Return class probabilities (L, 1 + n_ahead, C) of each chunk and of the chunks that will follow it.

    Entry [T, h] is about chunk T + h as seen at the end of chunk T. batch_size windows are computed together. To
    predict many videos faster, pass `constants=model.constants()`. Raises as `predict`.
    """
    config = model.config
    if model.training:
        raise LstrError("The model is in training mode, so its scores are random.", "call model.eval() first.")
    if batch_size < 1:
        raise LstrError(f"batch_size is {batch_size}.", "use at least 1.")
    if isinstance(features, np.ndarray):
        try:
            features = tensor_of(features).float()
        except ValueError as error:
            raise LstrError(f"The features are not numbers: {error}.", "use features of real numbers.") from error
    if features.ndim != 2 or features.shape[1] != config.input_dim:
        message = f"The features have shape {tuple(features.shape)}, but the model takes (chunks, {config.input_dim})."
        raise LstrError(message, "join rgb and flow in this order, from the recipe of the training features.")
    features = features.to(model.classifier.weight)
    if (wrong := ~(features.abs() <= LARGEST_FEATURE).all(dim=1)).any():
        message = f"The features of chunk {int(wrong.nonzero()[0])} are not finite, or above {LARGEST_FEATURE:g}."
        raise LstrError(message, "extract this video again.")
    if len(features) == 0:
        return torch.zeros(0, 1 + config.n_ahead, model.n_classes)
    logits = model.video_logits(features, batch_size, constants)  # (L, 1 + n_ahead, C)
    return logits.float().softmax(dim=-1).cpu()
