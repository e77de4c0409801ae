"""Labelled videos to the weights of the two TSN networks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from extractors.resnet import CONFIGS
from extractors.weights import load_weights, randomise
from lstr import metrics
from lstr.labels import Labels, targets
from pipelines.chunk_cache import CachedVideo
from pipelines.finetune_config import FinetuneConfig
from pipelines.tsn_runner import Epoch, make_loader, recogniser, train_recogniser
from pipelines.tsn_samples import Augmentation, BalancedSampler, ChunkSet, SampleSet, samples_of

HELD_OUT = 5  # one training video in so many chooses the best epoch, where no video is labelled for validation
SCORED = 32  # images at a time in evaluation


@dataclass(frozen=True)
class Videos:
    """Cached videos with their labels, by id: those that a network learns from, and those that choose its epoch."""

    labels: Labels
    training: Mapping[str, CachedVideo]
    validation: Mapping[str, CachedVideo]


def hold_out(ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Training and validation ids: one in HELD_OUT, evenly over the sorted ids; none of fewer than three."""
    ids = sorted(ids)
    held = ids[HELD_OUT // 2 :: HELD_OUT] if len(ids) >= HELD_OUT // 2 + 1 else []
    return [i for i in ids if i not in held], held


def train_stream(
    stream: str,
    network: str,
    videos: Videos,
    config: FinetuneConfig,
    folder: Path,
    init: str | None,
    device: str,
    say: Callable[[Epoch], None],
    readers: int,
) -> tuple[nn.Module, float | None]:
    """Train one stream's recogniser; it and its best mAP of the validation chunks (None without such videos).

    `init` is a weights file, or None for random weights. A run in `folder` that was stopped goes on.
    """
    classes = videos.labels.classes
    torch.manual_seed(config.seed)
    model = recogniser(CONFIGS[network], len(classes), config.dropout)
    if init:
        load_weights(model.backbone, init, network)
    else:
        randomise(model.backbone, config.seed)
    model.to(device=device, memory_format=torch.channels_last)
    augmentation = Augmentation(config.short_side, config.crop)
    lengths = {i: (videos.labels.videos[i], len(video)) for i, video in videos.training.items()}
    samples = samples_of(lengths, classes)
    data = SampleSet(samples, videos.training, stream, config.segments, augmentation, config.seed)
    sampler = BalancedSampler(samples, config.balanced, config.seed)
    loader = make_loader(data, sampler, config, readers)
    evaluate = scorer(videos, stream, augmentation, config) if videos.validation else None
    partial_bn = config.partial_bn if config.partial_bn is not None else init is not None
    return model, train_recogniser(model, loader, config, folder, evaluate, say, partial_bn)


def scorer(videos: Videos, stream: str, augmentation: Augmentation, config: FinetuneConfig) -> Callable:
    """A function from a recogniser to the mAP of the validation chunks."""
    labels = videos.labels
    truth = np.concatenate([targets(labels.videos[i], labels.classes, len(v)) for i, v in videos.validation.items()])
    data = ChunkSet(videos.validation, stream, augmentation)

    def mean_average_precision(model: nn.Module) -> float:
        return metrics.per_frame(chunk_scores(model, data, config.precision), truth, labels.classes)["mAP"]

    return mean_average_precision


@torch.inference_mode()
def chunk_scores(model: nn.Module, data: ChunkSet, precision: str) -> np.ndarray:
    """Class probabilities (N, C) of single chunks, in evaluation mode."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    scores = []
    for start in range(0, len(data), SCORED):
        images = [data[at]["inputs"] for at in range(start, min(start + SCORED, len(data)))]
        batch = model.data_preprocessor({"inputs": images, "data_samples": None}, False)["inputs"].to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            features = model.backbone(batch.flatten(0, 1).contiguous(memory_format=torch.channels_last))
            logits = model.cls_head(features, 1)
        scores.append(logits.float().softmax(1).cpu().numpy())
    model.train(was_training)
    return np.concatenate(scores)
