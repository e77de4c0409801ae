"""How the two TSN networks are trained: settings, with defaults found on a few dozen short videos."""

from dataclasses import dataclass

from lstr.errors import ConfigError


@dataclass(frozen=True)
class FinetuneConfig:
    """How to train one stream's recogniser; `--set NAME=VALUE` changes an entry."""

    epochs: int = 60
    batch_size: int = 16
    """Samples a step, each of `segments` images."""
    segments: int = 3
    """Parts that a labelled segment is cut in, a chunk drawn from each; their class scores are averaged (TSN)."""
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warmup: float = 0.05
    """Share of all steps in which the rate rises; then half a cosine to 0."""
    clip: float = 20.0
    """Norm that gradients are cut to (published TSN); 0 leaves them as they are."""
    dropout: float = 0.5
    """Before the classifier."""
    partial_bn: bool | None = None
    """Whether all batch norms but the first keep their statistics (TSN, section 3.3); None for when the network
    begins with trained weights. Random weights have no statistics worth keeping."""
    balanced: bool = True
    """Whether every class is drawn as often as any other."""
    short_side: int = 256
    crop: int = 224
    precision: str = "bf16"
    """`bf16` computes in bfloat16 where that is safe (autocast); weights and optimiser stay float32."""
    eval_every: int = 2
    """Epochs between two evaluations on the validation videos."""
    patience: int = 0
    """Evaluations without a better one after which training ends; 0 is never."""
    seed: int = 0

    def __post_init__(self):
        if self.precision not in ("float32", "bf16"):
            raise ConfigError(f"precision is {self.precision!r}.", "use float32 or bf16.")
        least = dict.fromkeys(("epochs", "batch_size", "segments", "eval_every"), 1)
        least |= dict.fromkeys(("weight_decay", "momentum", "warmup", "clip", "dropout", "patience", "seed"), 0)
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ConfigError(f"{name} is {getattr(self, name)}.", f"use {bound} or more.")
        for name in ("warmup", "dropout", "momentum"):
            if getattr(self, name) >= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}.", "use a share below 1.")
        if self.lr <= 0:
            raise ConfigError(f"lr is {self.lr}.", "use a rate above 0.")
        if self.crop % 32 or not 32 <= self.crop <= self.short_side:
            raise ConfigError(
                f"crop is {self.crop} of a short side of {self.short_side}.", "use a multiple of 32 up to short_side."
            )
