"""The folder of a run of `train` or `finetune`: settings, log, and the states that it resumes from.

A run has begun once a state is saved. A run that was stopped earlier starts over, so that other settings can be tried
after an error in the first step.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from lstr import checkpoint
from lstr.errors import CheckpointError, OutputError
from lstr.extractors.networks.weights_file import DESCRIPTION
from lstr.files.atomic import check_exists, replacing, sweep, write_tensors
from lstr.files.content import append_jsonl, keep_jsonl, write_json

CONFIG, LOG = "config.json", "metrics.jsonl"
NETWORK_STATES = "training"
NOT_COMPARED = (("data", "features"), ("train", "save_seconds"))  # settings that do not affect the result
# Files that show that a run has begun: states of a model, of its teacher and of networks, and finished networks.
STATES = ("resume.pt", "teacher-*/resume.pt", f"{NETWORK_STATES}/[!.]*", DESCRIPTION)
MAX_CHANGES, MAX_CHARACTERS = 5, 60  # of a value, in an error message
MISSING = object()
LOGGED = ("loss", "lr", "grad_norm", "rate", "waiting", "memory_mb")


@dataclass(frozen=True)
class Step:
    """One logged interval of training: a line of the log."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    """mean over the interval"""
    lr: float
    grad_norm: float
    """mean norm before clipping"""
    rate: float
    """windows, or images of a feature network, per second of all processes"""
    waiting: float
    """share of the interval spent waiting for data"""
    memory_mb: float
    """maximum memory of the process so far: of the GPU where it trains on one"""
    evaluation: dict | None = None
    """Metrics of the validation videos where the interval ended with an evaluation: mAP, mcAP and per_class (AP) of a
    model, mAP and loss of a feature network."""
    stage: str = ""
    """What is trained: a feature network or a teacher; empty for the model itself"""

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
    batch: int = 0
    """batches done in this epoch"""
    step: int = 0
    best: float | None = None
    """the best validation metric so far"""
    stale: int = 0
    """evaluations since then"""
    best_epoch: int = 0
    """the epoch of the best evaluation; 0 where there was none"""
    seconds: float = 0.0
    """spent on training and evaluation"""

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
    state: str = "resume.pt"
    """The file of its state, below `path`"""
    stage: str = ""
    """What is trained (`Step.stage`), in a folder of several trainings"""

    def has_state(self) -> bool:
        """Return whether the run has a state to resume from."""
        return any(any(self.path.glob(pattern)) for pattern in STATES)

    def check_free(self, resume: bool) -> None:
        """Raise CheckpointError if the folder has a run that is not to be resumed."""
        if (self.path / DESCRIPTION).is_file() and not resume:
            raise CheckpointError(f"{self.path} contains finished weights.", "choose another folder with -o.")
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
        try:
            before = dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{file} cannot be read ({error}).", "use another folder.") from error
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
        keep_jsonl(self.path / LOG, lambda line: line.get("stage", "") != self.stage or line["step"] <= step)

    def log(self, step: Step, events: Any = None) -> None:
        """Add a line to metrics.jsonl, and the same to `events` (`open_events`).

        Raises OutputError if the folder cannot be written, or was deleted.
        """
        check_exists(self.path / CONFIG)
        # without NaN and infinity, which JSON has not
        line = json.loads(msgspec.json.encode({**asdict(step), "stage": self.stage}))
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
