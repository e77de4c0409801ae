"""A run of `train` or `finetune`: its folder with settings, log and states, and its loop of steps.

A `Run` makes the batches, computes the losses, evaluates and saves. All randomness follows from a seed and from the
position in the run, so a run resumes to the bit from a Position and its tensors. A run has begun once a state is saved.
A run that was stopped earlier starts over, so that other settings can be tried after an error in the first step.
"""

import ctypes
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lstr import checkpoint
from lstr.errors import CheckpointError, LstrError, OutputError
from lstr.extractors.networks.weights_file import DESCRIPTION
from lstr.files.atomic import check_exists, replacing, sweep, write_tensors
from lstr.files.content import append_jsonl, read_jsonl, read_object, write_json, write_jsonl
from lstr.pipelines.progress import Progress
from lstr.pipelines.provenance import peak_memory_mb
from lstr.pipelines.training import ranks

CONFIG, LOG = "config.json", "metrics.jsonl"
NETWORK_STATES = "training"
NOT_COMPARED = (("data", "features"), ("train", "save_seconds"))  # settings that do not affect the result
# Files that show that a run has begun: states of a model and of networks, and finished networks.
STATES = ("resume.pt", f"{NETWORK_STATES}/[!.]*", DESCRIPTION)
MAX_CHANGES, MAX_CHARACTERS = 5, 60  # of a value, in an error message
MISSING = object()
LOGGED = ("loss", "lr", "grad_norm", "rate", "waiting", "memory_mb")
SHARE_OF_SAVING = 0.05  # of the time, at most: at the published size a save of LSTR writes a gigabyte
FACTOR = "factor"  # in an optimiser's groups: what the learning rate of a group is multiplied by
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # names of glibc's settings (malloc.h)
# What glibc itself comes to in a program that has once freed a block of 32 MB.
USUAL = {MMAP_MAX: 65536, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
# Variables by which a person chooses how memory is kept.
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "LD_PRELOAD")


@dataclass(frozen=True)
class Step:
    """One logged interval of training: a line of the log."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float  # mean over the interval
    lr: float
    grad_norm: float  # mean norm before clipping
    rate: float  # windows, or images of a feature network, per second of all processes
    waiting: float  # share of the interval spent waiting for data
    memory_mb: float  # maximum memory of the process so far: of the GPU where it trains on one
    evaluation: dict | None = None
    """Metrics of the validation videos where the interval ended with an evaluation: mAP, mcAP and per_class (AP) of a
    model, mAP and loss of a feature network."""
    stage: str = ""  # what is trained: a feature network; empty for a model

    def line(self) -> str:
        """The interval as a line of text."""
        scores = ((name, (self.evaluation or {}).get(name)) for name in ("mAP", "mcAP"))
        known = "".join(f" {name} {value:.4f}" for name, value in scores if value is not None)
        numbers = f"loss {self.loss:.3f} lr {self.lr:.1e} {self.rate:.1f}/s, waited {100 * self.waiting:.0f} %"
        return f"epoch {self.epoch}/{self.epochs} {numbers}{known}"


@dataclass
class Position:
    """How far a training is."""

    epoch: int = 0
    batch: int = 0  # batches done in this epoch
    step: int = 0
    best: float | None = None  # the best validation metric so far
    stale: int = 0  # evaluations since then
    best_epoch: int = 0  # the epoch of the best evaluation; 0 where there was none
    seconds: float = 0.0  # spent on training and evaluation

    def judge(self, score: float | None, epoch: int) -> bool:
        """Count one evaluation; return whether its score is the best so far."""
        if score is None or (self.best is not None and not score > self.best):
            self.stale += 1
            return False
        self.best, self.best_epoch, self.stale = score, epoch, 0
        return True


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, as one training in it sees it."""

    path: Path
    state: str = "resume.pt"  # the file of its state, below `path`
    stage: str = ""  # what is trained (`Step.stage`), in a folder of several trainings

    def has_state(self) -> bool:
        """Return whether the run has a state to resume from."""
        return any(any(self.path.glob(pattern)) for pattern in STATES)

    def check_free(self, resume: bool) -> None:
        """Raise CheckpointError if the folder has a run that is not to be resumed."""
        if self.has_state() and not resume:
            hint = "resume it with --resume, or choose another folder with -o."
            raise CheckpointError(f"{self.path} already contains a run.", hint)

    def begin(self, settings: dict[str, Any], resume: bool) -> None:
        """Start a run with these settings, or check that a resumed run has the same settings.

        Args:
            settings: Everything that affects the result, and `made_by`, which may differ.

        Raises:
            CheckpointError: The folder has a run that is not to be resumed, or a run with other settings.
        """
        # temporary files of a process that was killed while it wrote
        sweep(self.path)
        if not self.has_state():
            write_json(self.path / CONFIG, settings)
            return
        self.check_free(resume)
        file, now = self.path / CONFIG, json.loads(json.dumps(settings))  # lists for tuples, as the file has them
        before = read_object(file)
        if before is None:
            raise CheckpointError(f"{file} cannot be read.", "use another folder.")
        before["made_by"] = now["made_by"]
        for part, name in NOT_COMPARED:
            if name in now.get(part, {}) and name in before.get(part, {}):
                before[part][name] = now[part][name]
        if changed := find_changes(before, now):
            shown = "; ".join(changed[:MAX_CHANGES]) + ("; …" if len(changed) > MAX_CHANGES else "")
            raise CheckpointError(
                f"{self.path} was started with other settings ({shown}).",
                f"use the settings in {file} and the same videos and labels, or choose another folder with -o.",
            )

    def read_state(self) -> dict[str, Any] | None:
        """Return what was last saved, with a Position; None for a training that starts."""
        path = self.path / self.state
        if not path.exists():
            return None
        state = checkpoint.read(path)
        return {**state, "position": Position(**json.loads(state["position"]))}

    def save_state(self, position: Position, state: Mapping[str, Any]) -> None:
        """Save tensors, texts and the position, whole or not at all."""
        with replacing(self.path / self.state) as temporary:
            write_tensors(temporary, {**state, "position": json.dumps(asdict(position))})

    def remove_unsaved_log(self) -> None:
        """Drop what a killed process logged of this training after the last state that it saved."""
        state = self.read_state()
        step = state["position"].step if state else 0
        if (log := self.path / LOG).exists():
            lines = (line for line in read_jsonl(log) if line.get("stage", "") != self.stage or line["step"] <= step)
            write_jsonl(log, lines)

    def log(self, step: Step, events: Any = None) -> None:
        """Add a line to metrics.jsonl, and the same to `events` (`open_events`).

        Raises OutputError if the folder cannot be written, or was deleted.
        """
        check_exists(self.path / CONFIG)
        # without NaN and infinity, which JSON has not
        line = json.loads(msgspec.json.encode(asdict(step)))
        for name in ("epochs", *(name for name in ("stage", "evaluation") if not line[name])):
            del line[name]
        append_jsonl(self.path / LOG, line)
        if not events:
            return
        scores = {f"train/{'windows_per_second' if name == 'rate' else name}": line[name] for name in LOGGED}
        evaluation = step.evaluation or {}
        scores |= {f"validation/{name}": evaluation.get(name) for name in ("mAP", "mcAP")}
        scores |= {f"validation/AP/{label}": value for label, value in evaluation.get("per_class", {}).items()}
        for name, value in scores.items():
            if value is not None:
                events.add_scalar(name, value, step.step)
        events.flush()


def find_changes(before: Any, now: Any, name: str = "") -> list[str]:
    """Return what differs between two settings, a sentence each; dictionaries are compared entry by entry."""
    if before == now:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*before, *now])
        pairs = ((key, before.get(key, MISSING), now.get(key, MISSING)) for key in keys)
        return [line for key, a, b in pairs for line in find_changes(a, b, f"{name}.{key}" if name else key)]
    if before is MISSING or now is MISSING:
        return [f"{name} is {'new' if before is MISSING else 'missing'}"]
    texts = (value if isinstance(value, str) else json.dumps(value) for value in (before, now))
    was, is_now = (text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…" for text in texts)
    return [f"{name} was {was}, is {is_now}"]


def open_events(folder: Path, step: int) -> Any:
    """Return a `SummaryWriter` of tensorboardX, which writes the log of a model for TensorBoard from a step on.

    Raises OutputError if it cannot be opened.
    """
    from tensorboardX import SummaryWriter

    try:
        return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)
    except OSError as error:
        raise OutputError(
            f"The log for TensorBoard cannot be opened ({error.strerror or error}).",
            f"make {folder} and /dev/shm writable: locks between processes are files in /dev/shm.",
        ) from error


class Run:
    """A model in training with its optimiser; subclasses add batches, losses, evaluation and saving."""

    name: str  # of its Progress
    stage = ""  # of its Steps
    epochs: int
    steps: int
    rate: Callable[[int], float]  # returns the learning rate of a step
    log_every = 0  # steps between two log lines; an epoch always ends with one
    eval_every = 0  # epochs between two evaluations; 0 is never
    patience = 0  # evaluations without improvement after which the run ends; 0 is never
    save_seconds = 0.0  # between two saves
    free_saves = 0  # saves that do not wait so long, so that a short run keeps every epoch

    def __init__(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer, clip: float, unused: bool):
        self.model, self.optimiser, self.clip = model, optimiser, clip or math.inf
        self.device, self.position = next(model.parameters()).device, Position()
        self.joined = ranks.distributed_model(model, unused)

    def is_late(self) -> bool:
        """Return whether the time limit is reached, so that the run ends with this step, as at the end of an epoch."""
        return False

    def batches(self) -> tuple[int, Iterable[Any]]:
        """Return the number of batches of an epoch, and its batches from `position` on; get the model ready."""
        raise NotImplementedError

    def step(self, batch: Any, number: int, lr: float) -> tuple[float, float, int]:
        """Take a step; return this process's part of the loss, the gradient's norm, and the samples of all."""
        raise NotImplementedError

    def evaluate(self, epoch: int, values: dict) -> dict | None:
        """Return metrics of the validation videos, and keep the best weights; called on rank 0 only."""
        raise NotImplementedError

    def save(self, step: Step) -> None:
        """Save the state; called on rank 0 only."""
        raise NotImplementedError

    def optimise(
        self, losses: Sequence[Callable[[], Tensor]], number: int, lr: float, seed: int, divergence: tuple[str, str]
    ) -> tuple[float, float]:
        """Take step `number` on the sum of some losses, each computed when its turn comes.

        Args:
            seed: of everything random in this step of this process.
            divergence: the end of the sentence about a loss or gradient that is not finite, and the hint.

        Returns this process's part of the loss, and the gradient's norm before clipping. Raises LstrError if loss or
        gradient is not finite, or another process is gone.
        """
        torch.manual_seed(seed)
        for group in self.optimiser.param_groups:
            group["lr"] = lr * group.get(FACTOR, 1.0)
        self.optimiser.zero_grad()
        parts = []
        with ranks.report_lost_ranks():
            for i, compute in enumerate(losses):
                waits = isinstance(self.joined, DistributedDataParallel) and i + 1 < len(losses)
                with self.joined.no_sync() if waits else nullcontext():  # type: ignore[operator]
                    loss = compute()
                    (loss * ranks.world_size()).backward()  # gradients are averaged over processes; this is a sum
                parts.append(loss.detach())
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            # one copy of all values to the CPU: each copy would wait for the device
            *values, length = torch.stack([*parts, norm]).tolist()
            for value, name in ((sum(values), "loss"), (length, "gradient's norm")):
                if not math.isfinite(value):
                    raise LstrError(f"The {name} is {value} at step {number + 1}{divergence[0]}.", divergence[1])
            self.optimiser.step()
        return sum(values), length

    def train_steps(self, log: Callable[[Step], None] | None) -> Iterator[Progress | Step]:
        """Train from `position` to the end; yield Progress after each step, and a Step after each log line.

        All processes of a run take the same steps; only rank 0 has a `log`. It is called before the next state is
        saved, so that no line is lost.
        """
        position, is_over = self.position, self._is_over()
        since, saved, save_took = perf_counter(), perf_counter(), 0.0
        sums, start = dict.fromkeys(("loss", "norm", "samples", "steps", "waiting"), 0.0), perf_counter()
        while not is_over:
            epoch, (n_batches, batches) = position.epoch + 1, self.batches()
            left = iter(batches)
            while True:
                waiting = perf_counter()
                batch = next(left, None)
                sums["waiting"] += perf_counter() - waiting
                if batch is None:
                    break
                lr = self.rate(position.step)
                loss, norm, samples = self.step(batch, position.step, lr)
                for name, value in (("loss", loss * samples), ("norm", norm), ("samples", samples), ("steps", 1)):
                    sums[name] += value
                position.step += 1
                position.batch += 1
                yield Progress(self.name, position.step, self.steps)

                late = self.is_late()
                ended, done = position.batch == n_batches or late, position.step == self.steps or late
                if not (ended or done or (self.log_every and position.step % self.log_every == 0)):
                    continue
                if ended:
                    position.epoch, position.batch = epoch, 0
                seconds, on_gpu = perf_counter() - start, self.device.type == "cuda"
                (loss,) = ranks.sum_all([sums["loss"]])
                values: dict[str, Any] = {
                    "loss": loss / sums["samples"],
                    "grad_norm": sums["norm"] / sums["steps"],
                    "rate": sums["samples"] / seconds,
                    "waiting": sums["waiting"] / seconds,
                    "memory_mb": torch.cuda.max_memory_allocated(self.device) / 1e6 if on_gpu else peak_memory_mb(),
                }
                evaluation = None
                if self.eval_every and (done or (ended and epoch % self.eval_every == 0)):
                    if ranks.is_first():
                        evaluation = self.evaluate(epoch, values)
                    position.stale = ranks.from_first(lambda: position.stale)  # so that all processes end together
                values |= {"lr": lr, "evaluation": evaluation, "stage": self.stage}
                step = Step(epoch, self.epochs, position.step, self.steps, **values)
                is_over, now = late or self._is_over(), perf_counter()
                position.seconds, since = position.seconds + now - since, now
                if log:
                    log(step)
                    is_due = self.free_saves > 0 or now - saved >= max(self.save_seconds, save_took / SHARE_OF_SAVING)
                    if is_over or is_due:
                        self.save(step)
                        self.free_saves -= 1
                        saved, save_took = perf_counter(), perf_counter() - now
                yield step
                sums, start = dict.fromkeys(sums, 0.0), perf_counter()
                if is_over:
                    break

    def _is_over(self) -> bool:
        return self.position.step >= self.steps or 0 < self.patience <= self.position.stale


@contextmanager
def keep_freed_memory(device: str) -> Iterator[None]:
    """Keep freed memory for what comes next, and give it back at the end.

    glibc returns large blocks to the system when they are freed, and the system clears each page of them when it is
    touched again: on a processor a training step frees and touches hundreds of thousands of pages. Only on a processor
    with glibc, and not if the user has chosen how memory is kept.
    """
    library = ctypes.CDLL(None) if os.name == "posix" and device == "cpu" else None
    if not hasattr(library, "gnu_get_libc_version") or any(name in os.environ for name in OWN):
        yield
        return
    assert library
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, -1)  # never
    try:
        yield
    finally:
        for name, value in USUAL.items():
            library.mallopt(name, value)
        library.malloc_trim(0)
