"""Feature folder and labels to a checkpoint, saved at the end of an epoch and resumable from there."""

import copy
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from lstr import checkpoint
from lstr.batch import Windows, gather, join
from lstr.config import PRESETS as MODELS
from lstr.config import LSTRConfig, override
from lstr.errors import CheckpointError, ConfigError, LstrError
from lstr.labels import AMBIGUOUS
from lstr.loss import multi_hot_cross_entropy
from lstr.memory import window_ends
from lstr.model import LSTR
from pipelines.dataset import LabelledVideo, Split
from pipelines.store import replacing, write_json, write_text

SAVE_SECONDS = 10.0  # at least, between two saves: an epoch over a few short videos takes less than its save


@dataclass(frozen=True)
class TrainConfig:
    """How to train; `--set train.NAME=VALUE` changes an entry. The defaults are the paper's (section 4.2)."""

    epochs: int = 25
    batch_size: int = 16
    lr: float = 5e-5
    """Peak of the schedule: linear from 0 over `warmup` of all steps, then half a cosine to 0."""
    weight_decay: float = 5e-5
    warmup: float = 0.4
    windows: str = "random"
    """`random` end times (paper) or `tiled`: back to back from a random offset (published code)."""
    standardise: bool = False
    """Train on features of zero mean and unit variance; the checkpoint has this folded into its first layers."""
    hide_long: float = 0.0
    """Share of the long memory's slots hidden at random from each window. Few videos are learnt by heart through
    their long memory: without this, on ten short videos, mAP falls below that of work memory alone."""
    seed: int = 0
    log_every: int = 10

    def __post_init__(self):
        if self.windows not in ("random", "tiled"):
            raise ConfigError(f"train.windows is {self.windows!r}.", "use random or tiled.")
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


PRESETS = {
    "thumos14": TrainConfig(),
    "tvseries": TrainConfig(),
    "hacs": TrainConfig(),
    "small": TrainConfig(epochs=40, lr=5e-4, weight_decay=1e-4, warmup=0.1, standardise=True, hide_long=0.8),
}


@dataclass(frozen=True)
class Step:
    """One logged interval of training; loss is its mean, rate in windows a second."""

    epoch: int
    step: int
    steps: int
    loss: float
    lr: float
    rate: float


def resolve(preset: str, changes: Mapping[str, str], dims: tuple[int, int]) -> tuple[LSTRConfig, TrainConfig]:
    """Both configurations of a preset with `model.x` and `train.x` changes, widths as the features have them.

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
    """Rate of a step: linear warm-up from 0, then half a cosine down to 0 (paper, section 4.2)."""
    warm = config.warmup * steps
    if step < warm:
        return config.lr * (step + 1) / warm if warm >= 1 else config.lr
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))


def draw_windows(
    videos: list[LabelledVideo], model: LSTRConfig, train: TrainConfig, epoch: int
) -> list[tuple[int, int]]:
    """(video, end chunk) of every window of an epoch, shuffled; a pure function of the seed and the epoch.

    A video of L chunks gives ceil(L / work_length) windows; one shorter than the work memory gives one, not full.
    """
    random = np.random.default_rng([train.seed, epoch])
    work = model.work_length
    drawn = []
    for v, video in enumerate(videos):
        length = len(video.features)
        if train.windows == "tiled":
            ends = window_ends(length, int(random.integers(work)), model)
        else:
            ends = random.integers(min(work, length) - 1, length, size=math.ceil(length / work))
        drawn += [(v, int(end)) for end in ends]
    return [drawn[i] for i in random.permutation(len(drawn))]


def count_steps(videos: list[LabelledVideo], model: LSTRConfig, train: TrainConfig) -> int:
    """Optimiser steps of a whole run."""
    return sum(
        math.ceil(len(draw_windows(videos, model, train, epoch)) / train.batch_size) for epoch in range(train.epochs)
    )


def feature_statistics(videos: list[LabelledVideo]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (D,) over all chunks, one video in memory at a time."""
    total = np.zeros(1)
    squares = np.zeros(1)
    count = 0
    for video in videos:
        rows = video.features[:].astype(np.float64)
        total, squares, count = total + rows.sum(0), squares + (rows**2).sum(0), count + len(rows)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    std[std < 1e-6 * max(1.0, float(np.abs(mean).max()))] = 1.0  # a feature that never changes says nothing
    return torch.tensor(mean, dtype=torch.float32), torch.tensor(std, dtype=torch.float32)


def fold_statistics(state: Mapping[str, Tensor], mean: Tensor, std: Tensor) -> dict[str, Tensor]:
    """Weights that take raw features, from weights trained on standardised ones: W/σ and b − (W/σ)·μ."""
    folded = dict(state)
    for head in ("feature_head_long", "feature_head_work"):
        name = f"{head}.input_linear.0"
        if f"{name}.weight" in state:
            weight = state[f"{name}.weight"] / std
            folded[f"{name}.weight"] = weight
            folded[f"{name}.bias"] = state[f"{name}.bias"] - (weight * mean).sum(1)
    return folded


def make_batch(videos: list[LabelledVideo], drawn: list[tuple[int, int]], config: LSTRConfig) -> tuple[Windows, Tensor]:
    """Windows and their targets (B, work_length, C); targets of absent chunks are zero."""
    windows, targets = [], []
    for v, end in drawn:
        video = videos[v]
        windows.append(gather(video.features, [end], config))
        target = torch.zeros(1, config.work_length, video.targets.shape[1])
        start = max(0, end - config.work_length + 1)
        target[0, : end - start + 1] = torch.from_numpy(video.targets[start : end + 1].astype(np.float32))
        targets.append(target)
    return join(windows), torch.cat(targets)


def train(
    split: Split,
    model_config: LSTRConfig,
    config: TrainConfig,
    run: Path,
    device: str = "cpu",
    resume: bool = False,
) -> Iterator[Step]:
    """Train on a split, yielding a Step each interval; `run` gets checkpoint.pt, resume.pt and metrics.jsonl.

    A stopped run goes on from its last whole epoch with `resume`, to the bit on a CPU. Raises CheckpointError when
    there is nothing to resume or a run is in the way, LstrError when the loss is no longer finite.
    """
    videos = {video.id: len(video.features) for video in split.videos}
    settings = {"model": asdict(model_config), "train": asdict(config), "videos": videos}
    state = _begin(run, settings, resume)
    classes = split.labels.classes
    torch.manual_seed(config.seed)
    model = LSTR(model_config, len(classes)).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    mean, std = feature_statistics(split.videos) if config.standardise else (torch.zeros(1), torch.ones(1))
    first_epoch, step = 0, 0
    if state:
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["rng"])
        first_epoch, step, mean, std = state["epoch"], state["step"], state["mean"], state["std"]
    _keep_metrics(run / "metrics.jsonl", step)
    ignore = classes.index(AMBIGUOUS) if AMBIGUOUS in classes else None
    steps = count_steps(split.videos, model_config, config)
    on_device = mean.to(device), std.to(device)
    saved = -math.inf

    with (run / "metrics.jsonl").open("a") as log:
        for epoch in range(first_epoch, config.epochs):
            model.train()
            losses, start = [], perf_counter()
            drawn = draw_windows(split.videos, model_config, config, epoch)
            for at in range(0, len(drawn), config.batch_size):
                batch = drawn[at : at + config.batch_size]
                windows, targets = make_batch(split.videos, batch, model_config)
                windows = _hide_slots(_standardised(windows.to(device), *on_device), config.hide_long)
                targets = targets.to(device)
                lr = learning_rate(step, steps, config)
                for group in optimiser.param_groups:
                    group["lr"] = lr
                loss = multi_hot_cross_entropy(model(*windows), targets, ignore, windows.work_mask)
                if not math.isfinite(loss.item()):
                    names = ", ".join(sorted({split.videos[v].id for v, _ in batch}))
                    raise LstrError(
                        f"The loss is {loss.item()} at step {step}, on windows of {names}.",
                        f"look at those features with `lstr info {split.folder.path}`, or lower train.lr.",
                    )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append((loss.item(), len(batch)))
                step += 1
                last = at + config.batch_size >= len(drawn)
                if step % config.log_every == 0 or last:
                    windows_done = sum(n for _, n in losses)
                    mean_loss = sum(value * n for value, n in losses) / windows_done
                    rate = windows_done / (perf_counter() - start)
                    report = Step(epoch + 1, step, steps, mean_loss, lr, rate)
                    log.write(json.dumps(asdict(report)) + "\n")
                    log.flush()
                    done = epoch + 1 == config.epochs
                    if last and (done or perf_counter() - saved >= SAVE_SECONDS):
                        saved = perf_counter()
                        _save(run, model, optimiser, split, settings, epoch + 1, step, mean, std, mean_loss)
                    losses, start = [], perf_counter()
                    yield report


def _standardised(windows: Windows, mean: Tensor, std: Tensor) -> Windows:
    return replace(windows, long=(windows.long - mean) / std, work=(windows.work - mean) / std)


def _hide_slots(windows: Windows, share: float) -> Windows:
    """The newest slot is always left, so that no softmax is empty."""
    if share == 0 or windows.long_mask.shape[1] == 0:
        return windows
    kept = (torch.rand(windows.long_mask.shape) >= share).to(windows.long_mask.device)  # (B, n_long)
    kept[:, -1] = True
    return replace(windows, long_mask=windows.long_mask & kept)


def _begin(run: Path, settings: dict, resume: bool) -> dict | None:
    """The state to resume from, or None for a new run in a fresh folder."""
    path = run / "resume.pt"
    if not resume:
        if path.exists():
            raise CheckpointError(
                f"{run} already holds a run.", "go on with --resume, or choose another folder with -o."
            )
        write_json(run / "config.json", settings)
        return None
    if not path.exists():
        raise CheckpointError(f"{run} holds no run to resume.", "run the same command without --resume.")
    state = torch.load(path, weights_only=True, map_location="cpu")
    changed = [part for part, values in json.loads(state["settings"]).items() if values != settings[part]]
    if changed:
        raise CheckpointError(
            f"{run} was begun with other settings than these ({', '.join(changed)}).",
            f"give the --preset, --set and videos of {run / 'config.json'}, or begin a new run.",
        )
    return state


def _keep_metrics(path: Path, step: int) -> None:
    """Drop what an interrupted epoch logged after the last save."""
    if path.exists():
        # a killed run may have cut its last line; each whole one is an object
        whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
        kept = [line for line in whole if json.loads(line)["step"] <= step]
        write_text(path, "".join(f"{line}\n" for line in kept))


def _save(run, model, optimiser, split, settings, epoch, step, mean, std, loss) -> None:
    """Checkpoint first, resume state last: a run resumed from the older state only repeats an epoch."""
    raw = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    exported = copy.deepcopy(model).cpu()  # a new LSTR would draw from the random state that dropout uses
    exported.load_state_dict(fold_statistics(raw, mean, std))
    recipe = asdict(split.folder.recipe) if split.folder.recipe else None
    calibration = split.folder.calibration()
    metrics = {"epoch": epoch, "loss": loss, "training_videos": [video.id for video in split.videos]}
    checkpoint.save(run / "checkpoint.pt", exported, split.labels.classes, recipe, metrics, None, calibration)
    with replacing(run / "resume.pt") as temporary:
        torch.save(
            {
                "settings": json.dumps(settings),
                "epoch": epoch,
                "step": step,
                "model": model.state_dict(),
                "optimiser": optimiser.state_dict(),
                "rng": torch.get_rng_state(),
                "mean": mean,
                "std": std,
            },
            temporary,
        )
