"""Training settings and their presets."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from lstr import kinds
from lstr.config import WindowConfig
from lstr.errors import ConfigError
from lstr.files.content import read_text
from lstr.kinds import KINDS, change
from lstr.settings import Amount, Count, Positive, PositiveAmount, Settings, Share, override


class TrainConfig(Settings, frozen=True):
    """Training settings; `--set train.NAME=VALUE` changes one. The defaults are the paper's (section 4.2)."""

    prefix: ClassVar[str] = "train."

    epochs: Positive = 25
    batch_size: Positive = 16
    """Windows per step, of all processes together."""
    accumulate: Positive = 1
    """Number of pieces in which each process computes its part of a batch: the same step with less memory."""
    lr: PositiveAmount = 5e-5
    weight_decay: Amount = 5e-5
    optimiser: Literal["adam", "adamw"] = "adam"
    """`adam` (paper, weight decay is part of the gradient) or `adamw` (decoupled weight decay)."""
    warmup: Share = 0.4
    """Share of all steps with a rising learning rate."""
    warmup_epochs: Amount = 0.0
    """Number of epochs with a rising learning rate (published code); 0 uses `warmup`."""
    schedule: Literal["paper", "published", "onecycle", "tenths", "constant"] = "paper"
    """`paper`: from 0 linearly to `lr`, then half a cosine to 0. `published` (code): half a cosine over all steps,
    times a rise from 0.3 to 1, so that `lr` itself is never reached. `onecycle`: half a cosine from a 25th of `lr` to
    it, then one to nearly 0 (GateHUB). `tenths`: `lr` in the first epoch, in each other a tenth of that before (OadTR,
    Colar). `constant`: `lr` at every step."""
    windows: Literal["random", "tiled", "every"] = "random"
    """`random` end times (paper); `tiled`: back to back from a random offset (published code); `every`: at each
    `stride`-th chunk from a random offset (MiniROAD)."""
    stride: Positive = 4
    """Chunks between the ends of two windows, where `windows` is `every`."""
    tails: bool = True
    """Whether `tiled` windows include each video's end and videos shorter than a window; the published code includes
    neither."""
    targets: Literal["multi-hot", "unit", "soft"] = "multi-hot"
    """`multi-hot`: a chunk with several actions weighs more (paper). `unit`: its targets have length 1 (MiniROAD).
    `soft`: an action has one half in its first chunk, and the background the other, because starts are uncertain."""
    ambiguous: Literal["ignored", "class"] = "ignored"
    """With the 22 classes of THUMOS'14, `ignored`: ambiguous chunks are not in the loss (published code); `class`: a
    class like others (MiniROAD). With other classes they are always ignored, and models have no output for them."""
    long_sampling: Literal["consistent", "stretched"] = "consistent"
    """`consistent`: the long memory is sampled as at test time. `stretched` (published code): a short past is repeated
    to fill all slots, which never happens at test time; on an anchored grid, as in TeSTra's code, the slots are spread
    over the whole range, including the time before the video."""
    standardise: bool = False
    """Train on features of zero mean and unit variance; the checkpoint's first layers have absorbed it."""
    hide_long: Share = 0.0
    """Share of the long memory's slots hidden at random from each window. A model overfits few videos
    through its long memory: this lessens it, and no long memory (`model.long_length=0`) avoids it."""
    clip: Amount = 0.0
    """Maximum norm of gradients; 0 disables clipping."""
    average: Share = 0.0
    """Decay per step of the moving average of the weights, which evaluation and checkpoints then use: 0.999 as
    published for MAT and CMeRT; 0 disables it."""
    precision: Literal["float32", "bf16"] = "float32"
    """`bf16` computes in bfloat16 where that is safe (autocast); weights and optimiser stay float32."""
    max_steps: Count = 0
    """Maximum number of steps, also for the schedule; 0 disables the limit."""
    eval_every: Count = 0
    """Epochs between two evaluations on the validation videos; 0 is never."""
    metric: Literal["mAP", "mcAP"] = "mAP"
    """Metric for choosing the best checkpoint: `mAP` or `mcAP`."""
    patience: Count = 0
    """Evaluations without a better one after which the run ends; 0 is never."""
    deterministic: bool = False
    """Use only deterministic algorithms of PyTorch; slower on a GPU, unnecessary on a CPU."""
    seed: Count = 0
    log_every: Positive = 10
    """Steps between two lines of the log. A run can be resumed from any of them."""
    save_seconds: Amount = 30.0
    """Seconds between two saves, or more if saving takes over 5 % of the time; does not affect the result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience and not self.eval_every:
            raise ConfigError("train.patience counts evaluations, but train.eval_every is 0.", "set --eval-every too.")


def learning_rate(step: int, steps: int, lr: float, warmup: float, kind: str = "paper") -> float:
    """Return the learning rate of one of `steps` steps; `lr` is the highest rate.

    `warmup` is the share of steps with a rising rate, and `kind` a `TrainConfig.schedule` other than `tenths`.
    """
    if kind == "constant":
        return lr
    warm = warmup * steps
    if kind == "published":  # one step ahead, because the published scheduler counts its initialisation
        rise = 0.3 + 0.7 * min(1.0, (step + 1) / warm) if warm else 1.0
        return lr * rise * 0.5 * (1 + math.cos(math.pi * (step + 1) / steps))
    if kind == "onecycle":  # PyTorch's defaults: a rise from `lr` / 25, and a fall to `lr` / 250,000
        peak, last = max(warm - 1, 0.0), steps - 1
        up = step <= peak and peak > 0
        low = lr / 25 if up else lr / 25 / 1e4
        share = (peak - step) / peak if up else (step - peak) / max(1.0, last - peak)  # of the way down from the peak
        return low + (lr - low) * 0.5 * (1 + math.cos(math.pi * share))
    if step < warm:
        return lr * (step + 1) / warm if warm >= 1 else lr
    return lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))


def rates(config: TrainConfig, steps: int, epoch_steps: int) -> Callable[[int], float]:
    """Return the learning rate as a function of the step, for `steps` steps and `epoch_steps` in the first epoch.

    The published schedule assumes that all epochs are as long as the first, so it may end a few steps off.
    """
    planned = steps
    if config.schedule == "published":
        planned = config.epochs * epoch_steps
        planned = min(planned, config.max_steps) if config.max_steps else planned
    warmup = config.warmup_epochs * epoch_steps / planned if config.warmup_epochs else config.warmup
    if config.schedule == "tenths":
        return lambda step: config.lr * 0.1 ** (step // epoch_steps)
    return lambda step: learning_rate(step, planned, config.lr, warmup, config.schedule)


def presets() -> dict[str, tuple[WindowConfig, TrainConfig]]:
    """Return the settings of model and training by the names of the presets of all kinds."""
    return {name: (preset.model, TrainConfig(**preset.train)) for name, preset in kinds.presets().items()}


SMALL_UP_TO = 14_400  # chunks: one hour
# Chunks (16 s) of long memory for kinds that need one, if the preset has none. Only LSTR was measured without one.
LONG_MEMORY = 64
# Maximum sizes in the small preset of a kind.
SMALL_SIZES = {
    **dict.fromkeys(("d_model", "d_feedforward", "decoder_feedforward", "d_token"), 128),
    **dict.fromkeys(("n_heads", "decoder_heads"), 4),
    **{"work_length": 32, "long_length": LONG_MEMORY, "n0": 8, "n1": 8, "l_enc": 1, "l_dec": 2},
    **{"n_generated": 8, "l_gen": 1, "future": 16, "groups": 0},
}
# Settings that the small preset of a kind takes from its published training: windows and targets.
OWN_TRAINING = ("windows", "targets", "ambiguous")


def preset_for(n_chunks: int, settings: Mapping[str, str] = MappingProxyType({}), kind: str = "lstr") -> str:
    """Return the name of the preset for an amount of training video.

    Args:
        n_chunks: chunks of training video. Up to SMALL_UP_TO, the small preset of the kind is returned: `thumos14` is
            the paper's preset for fourteen hours and overfits five minutes. Nothing in between was measured; one hour
            is the geometric middle.
        settings: `model.NAME` settings; `model.kind` overrides `kind`.
        kind: the kind of model when the settings name none.
    """
    kind = settings.get("model.kind", kind)
    if n_chunks > SMALL_UP_TO:
        return (KINDS[kind].published_preset if kind in KINDS else None) or "thumos14"
    return f"{kind}-small" if kind in KINDS else "lstr-small"


def preset_named(name: str) -> tuple[WindowConfig, TrainConfig]:
    """Return both configurations of a preset. Raises ConfigError for an unknown one.

    If a kind does not define KIND-small, this is the published kind with SMALL_SIZES, trained as `lstr-small` with
    OWN_TRAINING; it was not measured. Without published settings, `thumos14` is the base. Dropout is as in `rnn-small`.
    There are no groups of long-memory slots (MAT), because training would hide all slots of a window. With windows at
    `every` chunk, a quarter of them is drawn in a quarter of the epochs, so that the time is about the same.
    """
    known = presets()
    name = "rnn-small" if name == "small" else name  # its earlier name, in the files of runs
    if name in known:
        return known[name]
    kind = name.removesuffix("-small")
    if kind == name or kind not in KINDS:
        raise ConfigError(f"Unknown preset: {name!r}.", f"use KIND-small, or one of {', '.join(known)}.")
    described, small = KINDS[kind], known["lstr-small"][1]
    published = described.published_preset
    model, train = known[published] if published else (described.config(), TrainConfig())
    sizes = {name: min(getattr(model, name), most) for name, most in SMALL_SIZES.items() if hasattr(model, name)}
    if not described.config.uses.long_memory:
        sizes["long_length"] = 0
    small = small.replace(**{name: getattr(train, name) for name in OWN_TRAINING})
    if train.windows == "every":
        small = small.replace(epochs=small.epochs // 4, stride=max(4, train.stride))
    return change(model, {**sizes, "dropout": known["rnn-small"][0].dropout}), small


def resolve(
    preset: str, changes: Mapping[str, str], dims: tuple[int, int], file: Mapping[str, Mapping] | None = None
) -> tuple[WindowConfig, TrainConfig]:
    """Return both configurations of a preset, changed by a file (`read_config`) and by `model.x` and `train.x`.

    dims: widths of the features; a width of 0 among the changes removes that stream. If another kind with a long memory
    is chosen, a preset without one has LONG_MEMORY, unless its length is set. Raises ConfigError for an unknown preset,
    an unknown name or a value of the wrong type.
    """
    plain, training = preset_named(preset)
    parts: dict[str, dict[str, str]] = {"model": {}, "train": {}}
    for key, value in changes.items():
        part, _, name = key.partition(".")
        if part not in parts or not name:
            raise ConfigError(
                f"Unknown setting: {key!r}.",
                "write --set model.NAME=VALUE, --set train.NAME=VALUE or --set features.NAME=VALUE.",
            )
        parts[part][name] = value
    file = file or {"model": {}, "train": {}}
    kind = {**file["model"], **parts["model"]}.get("kind", plain.kind)
    others = kind not in (plain.kind, "lstr") and kind in KINDS
    if not plain.long_length and others and KINDS[kind].config.uses.long_memory:
        plain = change(plain, {"kind": kind, "long_length": LONG_MEMORY})
    model = change(plain.replace(rgb_dim=dims[0], flow_dim=dims[1]), file["model"])
    return change(model, parts["model"]), override(override(training, file["train"]), parts["train"])


def changes_from(preset: str, model: WindowConfig, train: TrainConfig) -> dict[str, object]:
    """Return {"model.NAME" or "train.NAME": value} of settings that a preset does not have; without feature widths."""
    plain, training = preset_named(preset)
    plain = plain.replace(rgb_dim=model.rgb_dim, flow_dim=model.flow_dim)
    made_of = {**type(model)().to_dict(), **plain.to_dict()}  # of what the preset's kind has not, the defaults
    pairs = (("model", made_of, model.to_dict()), ("train", training.to_dict(), train.to_dict()))
    return {f"{part}.{name}": ours[name] for part, theirs, ours in pairs for name in ours if ours[name] != theirs[name]}


def read_config(path: str | Path) -> dict:
    """Read `model`, `train`, `preset` and `store` from a file that `--print-config` or a run wrote.

    An unknown preset is returned as None; the store describes features of other programs. Raises ConfigError.
    """
    try:
        content = json.loads(read_text(Path(path)))
        found: dict[str, Any] = {part: dict(content[part]) for part in ("model", "train")}
        found["store"] = dict(content.get("data", {}).get("store", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not the configuration of a run ({error}).", "use a RUN/config.json.") from error
    found["preset"] = str(content.get("preset"))
    try:
        preset_named(found["preset"])
    except ConfigError:
        found["preset"] = None
    return found
