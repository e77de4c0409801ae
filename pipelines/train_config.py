"""How to train: settings, the presets that name them, and the learning rate they give."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lstr.config import PRESETS as MODELS
from lstr.config import LSTRConfig, override
from lstr.errors import ConfigError


@dataclass(frozen=True)
class TrainConfig:
    """How to train; `--set train.NAME=VALUE` changes an entry. The defaults are the paper's (section 4.2)."""

    epochs: int = 25
    batch_size: int = 16
    lr: float = 5e-5
    weight_decay: float = 5e-5
    warmup: float = 0.4
    """Share of all steps in which the rate rises."""
    schedule: str = "paper"
    """`paper`: from 0 linearly to `lr`, then half a cosine to 0. `published` (code): half a cosine over all steps,
    times a rise from 0.3 to 1, so that `lr` itself is never reached."""
    windows: str = "random"
    """`random` end times (paper) or `tiled`: back to back from a random offset (published code)."""
    long_sampling: str = "consistent"
    """`consistent`: the long memory's grid is the one at test time. `stretched` (published code): a short past fills
    all slots with repeats, which it never does at test time."""
    standardise: bool = False
    """Train on features of zero mean and unit variance; the checkpoint has this folded into its first layers."""
    hide_long: float = 0.0
    """Share of the long memory's slots hidden at random from each window. Few videos are learnt by heart through
    their long memory: without this, on ten short videos, mAP falls below that of work memory alone."""
    seed: int = 0
    log_every: int = 10

    def __post_init__(self):
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"train.{name} is {getattr(self, name)!r}.", f"use {' or '.join(choices)}.")
        if (
            min(self.epochs, self.batch_size, self.log_every) < 1
            or self.lr <= 0
            or not 0 <= self.warmup < 1
            or not 0 <= self.hide_long < 1
        ):
            raise ConfigError(
                "train.epochs, batch_size and log_every start at 1, lr above 0; warmup and hide_long are in [0, 1).",
                "correct the value after --set.",
            )


CHOICES = {
    "schedule": ("paper", "published"),
    "windows": ("random", "tiled"),
    "long_sampling": ("consistent", "stretched"),
}
PUBLISHED = TrainConfig(lr=7e-5, schedule="published", windows="tiled", long_sampling="stretched")
PRESETS = {
    "thumos14": TrainConfig(),
    "tvseries": TrainConfig(),
    "hacs": TrainConfig(),
    "thumos14-published": PUBLISHED,
    "tvseries-published": PUBLISHED,
    "small": TrainConfig(epochs=40, lr=5e-4, weight_decay=1e-4, warmup=0.1, standardise=True, hide_long=0.8),
}


def resolve(preset: str, changes: Mapping[str, str], dims: tuple[int, int]) -> tuple[LSTRConfig, TrainConfig]:
    """Both configurations of a preset with `model.x` and `train.x` changes, widths as the features have them.

    A width of 0 among the changes leaves that stream out.

    Raises ConfigError for an unknown preset, an unknown name or a value of the wrong type.
    """
    if preset not in PRESETS:
        raise ConfigError(f"There is no preset {preset!r}.", f"use one of {', '.join(PRESETS)}.")
    parts: dict[str, dict[str, str]] = {"model": {}, "train": {}}
    for key, value in changes.items():
        part, _, name = key.partition(".")
        if part not in parts or not name:
            raise ConfigError(f"{key!r} is no setting.", "write --set model.NAME=VALUE or --set train.NAME=VALUE.")
        parts[part][name] = value
    model = replace(MODELS[preset], rgb_dim=dims[0], flow_dim=dims[1])
    return override(model, parts["model"]), override(PRESETS[preset], parts["train"])


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Rate of a step, by either schedule of `TrainConfig` (paper, section 4.2; published code)."""
    warm = config.warmup * steps
    if config.schedule == "published":
        rise = 0.3 + 0.7 * min(1.0, step / warm) if warm else 1.0
        return config.lr * rise * 0.5 * (1 + math.cos(math.pi * step / steps))
    if step < warm:
        return config.lr * (step + 1) / warm if warm >= 1 else config.lr
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))
