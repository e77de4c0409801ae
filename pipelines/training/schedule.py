"""The learning rate of a step."""

import math


def learning_rate(step: int, steps: int, lr: float, warmup: float, kind: str = "paper") -> float:
    """Rate of one of `steps` steps, whose highest rate is `lr`.

    warmup: share of the steps in which the rate rises. kind: `paper`, from 0 linearly to `lr`, then half a cosine to 0
    (paper, section 4.2); `published`, half a cosine over all steps, times a rise from 0.3 to 1 (published code); or
    `constant`.
    """
    if kind == "constant":
        return lr
    warm = warmup * steps
    if kind == "published":
        rise = 0.3 + 0.7 * min(1.0, step / warm) if warm else 1.0
        return lr * rise * 0.5 * (1 + math.cos(math.pi * step / steps))
    if step < warm:
        return lr * (step + 1) / warm if warm >= 1 else lr
    return lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))
