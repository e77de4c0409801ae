"""The folder of a training of networks: its settings, what is finished, saved states, one log line per epoch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lstr.errors import CheckpointError, few
from lstr.extractors.streams import STREAMS
from lstr.extractors.weights.model_card import DESCRIPTION, network_file
from lstr.files.atomic import check_writable, sweep
from lstr.files.content import write_json
from lstr.pipelines.failures import FAILED, LOGS
from lstr.pipelines.training.loop import Position
from lstr.pipelines.training.network_config import FinetuneConfig

SETTINGS = "settings.json"
LOG = "metrics.jsonl"
STATES = "training"  # goes away at the end


def is_begun(folder: Path) -> bool:
    """Whether a training in this folder has begun; one that was stopped before, among its videos, begins anew."""
    return (folder / SETTINGS).is_file()


def check_output(folder: Path, resume: bool) -> None:
    """Raises CheckpointError where `folder` has no run to go on with, and is not free for a new one.

    Also OutputError where nothing can be written, before that costs hours.
    """
    if resume and is_begun(folder):
        return
    if (folder / DESCRIPTION).is_file():
        raise CheckpointError(f"{folder} holds finished weights.", "choose another folder with -o.")
    if is_begun(folder):
        raise CheckpointError(
            f"{folder} holds a training that was stopped.",
            "go on with --resume, or choose another folder with -o.",
        )
    if folder.is_dir() and any(path.name not in (FAILED, LOGS) for path in folder.iterdir()):
        raise CheckpointError(
            f"{folder} is not empty, and holds no training of networks.", "choose a new folder with -o."
        )
    check_writable(folder)


def begin_training(folder: Path, settings: Mapping, resume: bool) -> None:
    """Write the settings of a new run, or compare those of the one that goes on, where there is one.

    Raises CheckpointError as `check_output`, and where settings, videos or labels differ, naming what does.
    """
    check_output(folder, resume)
    if not (resume and is_begun(folder)):
        write_json(folder / SETTINGS, settings)
        return
    try:
        before = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        changed = differences(before, settings)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder / SETTINGS} cannot be read.", "begin again in another folder.") from error
    if changed:
        raise CheckpointError(
            f"{folder} was begun otherwise ({'; '.join(changed)}).",
            "use the settings it was begun with, or begin anew in another folder with -o.",
        )
    sweep(folder)


def differences(before: Mapping, now: Mapping) -> list[str]:
    """What of two settings differs and has a part in the result, in words."""
    changed, unsaid = [], FinetuneConfig().to_dict()  # a setting that is newer than a run has its default there
    for stream in STREAMS:
        a, b = (values["streams"].get(stream) for values in (before, now))
        if a is None or b is None:
            changed += [f"the {stream} stream was {'' if a else 'not '}trained"] if a != b else []
            continue
        a = unsaid | a
        changed += [f"{stream}.{n} was {_text(a.get(n))}, is {_text(b[n])}" for n in b if a.get(n) != b[n]]
    changed += [f"{n} was {_text(before[n])}, is {_text(now[n])}" for n in ("recipe", "folds") if before[n] != now[n]]
    if before["classes"] != now["classes"]:
        changed.append(f"the classes were {', '.join(before['classes'])}")
    old, new = before["videos"], now["videos"]
    kinds = {"more": new.keys() - old.keys(), "fewer": old.keys() - new.keys()}
    for key, name in (("sha256", "content"), ("labels", "labels")):
        kinds[f"with other {name}"] = {i for i in old.keys() & new.keys() if old[i][key] != new[i][key]}
    kinds["with another part"] = {i for i in old.keys() & new.keys() if old[i]["part"] != new[i]["part"]}
    for what, ids in kinds.items():
        if ids:
            some = few(sorted(ids))
            changed.append(f"{len(ids)} {'video' if len(ids) == 1 else 'videos'} {what}: {some}")
    return changed


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


@dataclass(frozen=True)
class NetworkFiles:
    """One network of a training, and its files. `fold` is the one that it never sees, or None for all videos'."""

    folder: Path
    stream: str
    fold: int | None

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.stream} without fold {self.fold}" if self.fold else self.stream

    @property
    def state_file(self) -> Path:
        """What it goes on from, if it is stopped."""
        return self.folder / STATES / f"{self.stream}{f'_fold_{self.fold}' if self.fold else ''}.pth"

    @property
    def result_file(self) -> Path:
        """What finetune.json will hold of it, until all are finished."""
        return self.state_file.with_suffix(".json")

    def is_finished(self) -> bool:
        """Whether it is trained and written."""
        return network_file(self.folder, self.stream, self.fold).is_file() and self.result_file.is_file()


@dataclass
class NetworkPosition(Position):
    """How far a network has come."""

    best_epoch: int = 0
    """that of the best evaluation; 0 where none was made"""
    mAP: float | None = None
    """of that epoch, where it is not by the mAP that epochs are judged"""
    seconds: float = 0.0
    """it has taken, evaluations included"""

    @property
    def best_mAP(self) -> float | None:
        """The mAP of the best epoch; None where none was measured."""
        return self.best if self.mAP is None else self.mAP


@dataclass(frozen=True)
class Epoch:
    """One finished epoch of a network. `mAP` of the validation chunks is None where none was due."""

    stream: str
    fold: int | None
    epoch: int
    epochs: int
    loss: float
    lr: float
    rate: float
    """images a second"""
    waiting: float
    """share of the epoch spent waiting for data"""
    mAP: float | None
    best: float | None
    validation_loss: float | None = None
    """of the validation chunks, where they were due"""
