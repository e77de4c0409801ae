"""The learning rate of a step."""

import math
from collections.abc import Callable

from lstr.pipelines.training.config import TrainConfig


def learning_rate(step: int, steps: int, lr: float, warmup: float, kind: str = "paper") -> float:
    """Rate of one of `steps` steps, whose highest rate is `lr`.

    warmup: share of the steps in which the rate rises. kind: `paper`, from 0 linearly to `lr`, then half a cosine to 0
    (paper, section 4.2); `published`, half a cosine over all steps, times a rise from 0.3 to 1, both a step ahead, for
    the published scheduler counts its own beginning; `onecycle`, half a cosine from `lr` / 25 up to `lr`, then one
    down to 1 / 250,000 of it (GateHUB's code, by PyTorch's defaults); or `constant`.
    """
    if kind == "constant":
        return lr
    warm = warmup * steps
    if kind == "published":
        rise = 0.3 + 0.7 * min(1.0, (step + 1) / warm) if warm else 1.0
        return lr * rise * 0.5 * (1 + math.cos(math.pi * (step + 1) / steps))
    if kind == "onecycle":
        peak, last = max(warm - 1, 0.0), steps - 1
        up = step <= peak and peak > 0
        low = lr / 25 if up else lr / 25 / 1e4
        share = (peak - step) / peak if up else (step - peak) / max(1.0, last - peak)  # of the way down from the peak
        return low + (lr - low) * 0.5 * (1 + math.cos(math.pi * share))
    if step < warm:
        return lr * (step + 1) / warm if warm >= 1 else lr
    return lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))


def rates(config: TrainConfig, steps: int, epoch_steps: int) -> Callable[[int], float]:
    """The learning rate of each step of a run of `steps`, whose first epoch has `epoch_steps`.

    The published schedule takes every epoch to be as long as the first, so it may end a few steps from the run's end.
    """
    planned = steps
    if config.schedule == "published":
        planned = config.epochs * epoch_steps
        planned = min(planned, config.max_steps) if config.max_steps else planned
    warmup = config.warmup_epochs * epoch_steps / planned if config.warmup_epochs else config.warmup
    if config.schedule == "tenths":
        return lambda step: config.lr * 0.1 ** (step // epoch_steps)
    return lambda step: learning_rate(step, planned, config.lr, warmup, config.schedule)
