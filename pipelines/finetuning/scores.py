"""How well a recogniser tells single chunks: what the epoch of a network is chosen by."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch

from lstr.labels.label_set import Labels, targets
from lstr.metrics import per_frame as metrics
from lstr.pipelines.extraction.chunk_cache import CachedVideo
from lstr.pipelines.finetuning.loader import make_loader
from lstr.pipelines.finetuning.recogniser import Recogniser
from lstr.pipelines.finetuning.samples import Augmentation, ChunkSet

SCORED = 32  # images at a time


def scorer(
    labels: Labels,
    videos: Mapping[str, CachedVideo],
    stream: str,
    augmentation: Augmentation,
    precision: str,
    loaders: int,
) -> Callable[[Recogniser], float | None]:
    """A function from a recogniser to the mAP of all chunks of some videos together; None where none has an action."""
    truth = np.concatenate([targets(labels.videos[i], labels.classes, len(video)) for i, video in videos.items()])
    data = ChunkSet(videos, stream, augmentation)

    def mean_average_precision(model: Recogniser) -> float | None:
        score = metrics.per_frame(chunk_scores(model, data, precision, loaders), truth, labels.classes)["mAP"]
        return None if math.isnan(score) else float(score)

    return mean_average_precision


@torch.inference_mode()
def chunk_scores(model: Recogniser, data: ChunkSet, precision: str, loaders: int) -> np.ndarray:
    """Class probabilities (N, C) of single chunks, in evaluation mode."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    scores = []
    batches = [list(range(at, min(at + SCORED, len(data)))) for at in range(0, len(data), SCORED)]
    for images, _ in make_loader(data, batches, loaders):
        pixels = model.scaled(images).flatten(0, 1)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            features = model.backbone(pixels.contiguous(memory_format=torch.channels_last))
            logits = model.cls_head(features, 1)
        scores.append(logits.float().softmax(1).cpu().numpy())
    model.train(was_training)
    return np.concatenate(scores)
