"""The log of a run: one line per interval in metrics.jsonl, and the same as TensorBoard events."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import torch

from lstr.pipelines.files.atomic import write_text
from lstr.pipelines.provenance import peak_memory_mb
from lstr.pipelines.training.ranks import Ranks

Item = TypeVar("Item")


@dataclass(frozen=True)
class Step:
    """One logged interval of training."""

    epoch: int
    step: int
    steps: int
    loss: float
    """mean over the interval"""
    lr: float
    grad_norm: float
    """mean norm before clipping"""
    rate: float
    """windows (of a feature network: images) a second, of all processes"""
    waiting: float
    """share of the interval spent waiting for data"""
    memory_mb: float
    """most memory the process has held so far: of the GPU where it trains on one"""
    evaluation: dict | None = None
    """mAP, mcAP and per_class (AP) of the validation videos, where this interval ended with one"""
    stage: str = ""
    """What is trained, where it is not the model itself but a teacher of it, whose log is another"""


class Interval:
    """Sums of one process since the last line of the log."""

    def __init__(self):
        self.begin()

    def begin(self) -> None:
        """Forget everything so far."""
        self.loss, self.norm, self.samples, self.steps, self.waiting = 0.0, 0.0, 0, 0, 0.0
        self.start = perf_counter()

    def timed(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items, with the time that each took to come counted as waiting."""
        items = iter(items)
        while True:
            before = perf_counter()
            item = next(items, None)
            self.waiting += perf_counter() - before
            if item is None:
                return
            yield item

    def add(self, loss: float, norm: float, samples: int) -> None:
        """Count one step: this process's part of the loss, and the samples of all."""
        self.loss += loss * samples
        self.norm += norm
        self.samples += samples
        self.steps += 1

    def close(self, ranks: Ranks, device: torch.device) -> dict[str, float]:
        """The values of the interval that `Step` holds; every process has to call it."""
        seconds = perf_counter() - self.start
        (loss,) = ranks.sum([self.loss])
        return {
            "loss": loss / self.samples,
            "grad_norm": self.norm / self.steps,
            "rate": self.samples / seconds,
            "waiting": self.waiting / seconds,
            "memory_mb": memory_mb(device),
        }


def memory_mb(device: torch.device) -> float:
    """Most memory held so far, in MB: of the GPU, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    return peak_memory_mb()


def summary_of(result: dict) -> dict:
    """mAP, mcAP and AP per class of a result of `evaluate`, and how many videos feature networks have `seen`, if any.

    A mean is None where no chunk could score.
    """
    scored = result["lstr"]
    means = {name: None if math.isnan(scored[name]) else scored[name] for name in ("mAP", "mcAP")}
    seen = {"seen": len(result["seen"])} if "seen" in result else {}
    return {**means, "per_class": {label: entry["AP"] for label, entry in scored["per_class"].items()}, **seen}


class TrainLog:
    """Open log of a run; a context manager. What an earlier, killed process logged after `step` is dropped."""

    def __init__(self, run: Path, step: int):
        from tensorboardX import SummaryWriter

        path = run / "metrics.jsonl"
        _keep_until(path, step)
        self._lines = path.open("a", encoding="utf-8")
        self._events = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else None)

    def write(self, step: Step) -> None:
        """Add one interval."""
        line = asdict(step)
        del line["stage"]
        if step.evaluation is None:
            del line["evaluation"]
        self._lines.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._lines.flush()
        for name in ("loss", "lr", "grad_norm", "rate", "waiting", "memory_mb"):
            tag = "windows_per_second" if name == "rate" else name
            self._events.add_scalar(f"train/{tag}", line[name], step.step)
        for name, value in flat(step.evaluation or {}).items():
            self._events.add_scalar(f"validation/{name}", value, step.step)
        self._events.flush()

    def __enter__(self) -> "TrainLog":
        return self

    def __exit__(self, *exception: object) -> None:
        self._lines.close()
        self._events.close()


def flat(evaluation: dict) -> dict[str, float]:
    """An evaluation as names and numbers: mAP, mcAP, AP/CLASS."""
    means = {name: evaluation[name] for name in ("mAP", "mcAP") if evaluation.get(name) is not None}
    return means | {f"AP/{label}": value for label, value in evaluation.get("per_class", {}).items()}


def read_log(path: Path) -> list[dict]:
    """The whole lines of a metrics.jsonl; a killed run may have cut its last."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _keep_until(path: Path, step: int) -> None:
    if path.exists():
        kept = [line for line in read_log(path) if line["step"] <= step]
        write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))
