"""Feature folder and labels to a checkpoint, saved at the end of an epoch and resumable from there."""

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from lstr import checkpoint
from lstr.config import LSTRConfig
from lstr.errors import CheckpointError, LstrError
from lstr.kinds import make_model
from lstr.labels import AMBIGUOUS
from lstr.loss import multi_hot_cross_entropy
from lstr.windows import Outputs
from pipelines.dataset import Split
from pipelines.sampling import (
    count_steps,
    draw_windows,
    feature_statistics,
    fold_statistics,
    hide_slots,
    make_batch,
    standardise,
)
from pipelines.store import replacing, write_json, write_text
from pipelines.train_config import TrainConfig, learning_rate

SAVE_SECONDS = 10.0  # at least, between two saves: an epoch over a few short videos takes less than its save


@dataclass(frozen=True)
class Step:
    """One logged interval of training; loss is its mean, rate in windows a second."""

    epoch: int
    step: int
    steps: int
    loss: float
    lr: float
    rate: float


def loss_of(logits: Tensor, targets: Tensor, counts: Tensor, outputs: Outputs, ignore: int | None) -> Tensor:
    """Loss of detection, plus that of anticipation where the model anticipates, each a mean over its outputs."""
    total = logits.new_zeros(())
    for part in (outputs.ahead == 0, outputs.ahead > 0):
        if part.any():
            chosen = torch.from_numpy(np.flatnonzero(part)).to(logits.device)
            given = (tensor.index_select(1, chosen) for tensor in (logits, targets))
            total = total + multi_hot_cross_entropy(*given, ignore, counts.index_select(1, chosen))
    return total


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
    split = split.narrowed(model_config)
    torch.manual_seed(config.seed)
    model = make_model(model_config, len(classes)).to(device)
    outputs = model.outputs()
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
                stretched = config.long_sampling == "stretched"
                windows, targets, counts = make_batch(split.videos, batch, model_config, outputs, stretched)
                windows = hide_slots(standardise(windows.to(device), *on_device), config.hide_long)
                lr = learning_rate(step, steps, config)
                for group in optimiser.param_groups:
                    group["lr"] = lr
                loss = loss_of(model(windows), targets.to(device), counts.to(device), outputs, ignore)
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
    exported = copy.deepcopy(model).cpu()  # a new model would draw from the random state that dropout uses
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
