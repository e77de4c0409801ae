"""The log of a run: one line per interval in metrics.jsonl, the same as TensorBoard events, and as a picture."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import torch

from lstr.errors import OutputError
from lstr.files.atomic import replacing
from lstr.files.content import append_jsonl, keep_jsonl, read_jsonl
from lstr.pipelines.pages.palette import colour_of
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
        on_gpu = device.type == "cuda"
        return {
            "loss": loss / self.samples,
            "grad_norm": self.norm / self.steps,
            "rate": self.samples / seconds,
            "waiting": self.waiting / seconds,
            "memory_mb": torch.cuda.max_memory_allocated(device) / 1e6 if on_gpu else peak_memory_mb(),
        }


def summary_of(result: dict) -> dict:
    """mAP, mcAP and AP per class of a result of `evaluate`, and how many videos feature networks have `seen`, if any.

    A mean is None where no chunk could score.
    """
    scored = result["lstr"]
    means = {name: None if math.isnan(scored[name]) else scored[name] for name in ("mAP", "mcAP")}
    seen = {"seen": len(result["seen"])} if "seen" in result else {}
    return {**means, "per_class": {label: entry["AP"] for label, entry in scored["per_class"].items()}, **seen}


class TrainLog:
    """The log of a run, to be closed. What an earlier, killed process logged after `step` is dropped."""

    def __init__(self, run: Path, step: int):
        from tensorboardX import SummaryWriter

        self._path = run / "metrics.jsonl"
        keep_jsonl(self._path, lambda line: line["step"] <= step)
        try:
            self._events = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else None)
        except OSError as error:
            raise OutputError(
                f"The log for TensorBoard cannot be begun ({error.strerror or error}).",
                f"make {run} and /dev/shm writable: locks between threads and processes are made in the latter.",
            ) from error
        self.close = self._events.close

    def write(self, step: Step) -> None:
        """Add one interval."""
        line = asdict(step)
        del line["stage"]
        if step.evaluation is None:
            del line["evaluation"]
        append_jsonl(self._path, line)
        for name in ("loss", "lr", "grad_norm", "rate", "waiting", "memory_mb"):
            tag = "windows_per_second" if name == "rate" else name
            self._events.add_scalar(f"train/{tag}", line[name], step.step)
        evaluation = step.evaluation or {}
        scores = {name: evaluation[name] for name in ("mAP", "mcAP") if evaluation.get(name) is not None}
        scores |= {f"AP/{label}": value for label, value in evaluation.get("per_class", {}).items()}
        for name, value in scores.items():
            self._events.add_scalar(f"validation/{name}", value, step.step)
        self._events.flush()


def draw_curves(run: Path) -> Path:
    """Write RUN/curves.png from RUN/metrics.jsonl: loss, learning rate, gradient norm, and mAP if it was measured."""
    from matplotlib.figure import Figure  # half a second to import, and only needed at the end

    log = read_jsonl(run / "metrics.jsonl")
    steps = [line["step"] for line in log]
    evaluated = [(line["step"], line["evaluation"]) for line in log if "evaluation" in line]
    panels = [("loss", "training loss"), ("lr", "learning rate"), ("grad_norm", "gradient norm")]
    figure = Figure(figsize=(4 * (len(panels) + bool(evaluated)), 3), layout="constrained")
    axes = figure.subplots(1, len(panels) + bool(evaluated))
    marker = "." if len(log) < 30 else ""
    for axis, (name, title) in zip(axes, panels, strict=False):
        axis.plot(steps, [line[name] for line in log], marker=marker, color=colour_of(0))
        axis.set(title=title, xlabel="step")
    if evaluated:
        for place, name in enumerate(("mAP", "mcAP")):
            values = [evaluation[name] for _, evaluation in evaluated]
            axes[-1].plot([step for step, _ in evaluated], values, marker=".", label=name, color=colour_of(place))
        axes[-1].set(title="validation", xlabel="step", ylim=(0, 1.02))
        axes[-1].legend()
    path = run / "curves.png"
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    return path
