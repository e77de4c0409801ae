"""The folder of a training of networks: its settings, what is finished, saved states, one log line per epoch."""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import nn

from lstr.errors import CheckpointError
from lstr.extractors.recipe import STREAMS
from lstr.extractors.weights.model_card import DESCRIPTION, network_file
from lstr.labels.label_set import VideoLabels
from lstr.pipelines.failures import FAILED, LOGS
from lstr.pipelines.files.atomic import replacing, sweep, unwritable, write_text
from lstr.pipelines.files.json_files import append_jsonl, write_json
from lstr.pipelines.training.loop import Position

SETTINGS = "settings.json"
LOG = "metrics.jsonl"
STATES = "training"  # goes away at the end
SHARE_OF_SAVING = 0.05  # of the time, at most: the state of a ResNet-50 is 280 MB
GRACE = 10  # saves that may come at once, so that a short run leaves every epoch


def check_output(folder: Path, resume: bool) -> None:
    """Raises CheckpointError where `folder` has no run to go on with, or is not free for a new one.

    Also OutputError where nothing can be written, before that costs hours.
    """
    if resume and not (folder / SETTINGS).is_file():
        raise CheckpointError(f"{folder} holds no training to resume.", "run the same command without [[resume=true]].")
    if resume:
        return
    if (folder / DESCRIPTION).is_file():
        raise CheckpointError(f"{folder} holds finished weights.", "choose another folder with [[output]].")
    if (folder / SETTINGS).is_file():
        raise CheckpointError(
            f"{folder} holds a training that was stopped.",
            "go on with [[resume=true]], or choose another folder with [[output]].",
        )
    if folder.is_dir() and any(path.name not in (FAILED, LOGS) for path in folder.iterdir()):
        raise CheckpointError(
            f"{folder} is not empty, and holds no training of networks.", "choose a new folder with [[output]]."
        )
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise unwritable(folder, error) from error


def begin_training(folder: Path, settings: Mapping, resume: bool) -> None:
    """Write the settings of a new run, or compare those of the one that goes on.

    Raises CheckpointError as `check_output`, and where settings, videos or labels differ, naming what does.
    """
    check_output(folder, resume)
    if not resume:
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
            "use the settings it was begun with, or begin anew in another folder with [[output]].",
        )
    sweep(folder)


def described(labels: VideoLabels, sha256: str, part: str) -> dict:
    """A video as the settings have it: its content, its labels and its part."""
    segments = json.dumps([(segment.label, segment.start, segment.end) for segment in labels.segments])
    return {"sha256": sha256, "labels": hashlib.sha256(segments.encode()).hexdigest()[:16], "part": part}


def differences(before: Mapping, now: Mapping) -> list[str]:
    """What of two settings differs and has a part in the result, in words."""
    changed = []
    for stream in STREAMS:
        a, b = (values["streams"].get(stream) for values in (before, now))
        if a is None or b is None:
            changed += [f"the {stream} stream was {'' if a else 'not '}trained"] if a != b else []
            continue
        changed += [f"{stream}.{n} was {_text(a.get(n))}, is {_text(b[n])}" for n in b if a.get(n) != b[n]]
    changed += [f"{n} was {_text(before[n])}, is {_text(now[n])}" for n in ("recipe", "folds") if before[n] != now[n]]
    if before["classes"] != now["classes"]:
        changed.append(f"the classes were {', '.join(before['classes'])}")
    old, new = before["videos"], now["videos"]
    kinds = {
        "more": sorted(new.keys() - old.keys()),
        "fewer": sorted(old.keys() - new.keys()),
        "with other content": [i for i in sorted(old.keys() & new.keys()) if old[i]["sha256"] != new[i]["sha256"]],
        "with other labels": [i for i in sorted(old.keys() & new.keys()) if old[i]["labels"] != new[i]["labels"]],
        "with another part": [i for i in sorted(old.keys() & new.keys()) if old[i]["part"] != new[i]["part"]],
    }
    for what, ids in kinds.items():
        if ids:
            videos = "video" if len(ids) == 1 else "videos"
            changed.append(f"{len(ids)} {videos} {what}: {', '.join(ids[:3])}{' …' if len(ids) > 3 else ''}")
    return changed


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


@dataclass(frozen=True)
class Network:
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

    def write_result(self, position: "NetworkPosition") -> None:
        """Keep what finetune.json will hold of it."""
        epoch = position.best_epoch or position.epoch
        result = {"mAP": position.best, "epoch": epoch, "epochs": position.epoch}
        write_json(self.result_file, result | {"seconds": round(position.seconds, 2)})

    def read_result(self) -> dict:
        """The mAP of the finished network, the epoch it is of, epochs trained, seconds."""
        return json.loads(self.result_file.read_text(encoding="utf-8"))


@dataclass
class NetworkPosition(Position):
    """How far a network has come."""

    best_epoch: int = 0
    """that of the highest mAP; 0 where none was measured"""
    seconds: float = 0.0
    """it has taken, evaluations included"""


class Stateful(Protocol):
    """What of a network's run its state holds."""

    @property
    def model(self) -> nn.Module:
        """The recogniser."""

    optimiser: torch.optim.Optimizer
    position: NetworkPosition
    best: dict[str, torch.Tensor]


class State:
    """The file that a stopped network goes on from; it is also a weights file of its last epoch.

    `card` is what that file states about itself (`lstr.extractors.weights.model_card`).
    """

    def __init__(self, network: Network, card: str):
        self.network, self.path, self.card = network, network.state_file, card
        self.saved_epoch = 0
        self._saves, self._last, self._took = 0, perf_counter(), 0.0

    def restore(self, run: Stateful) -> NetworkPosition:
        """Bring weights, optimiser and best weights back, where an epoch was saved; returns its position."""
        if not self.path.exists():
            return NetworkPosition()
        content = torch.load(self.path, map_location="cpu", weights_only=True)
        run.model.load_state_dict(content["state_dict"])
        run.optimiser.load_state_dict(content["optimiser"])
        run.best = content["best"]
        position = NetworkPosition(**json.loads(content["progress"]))
        self.saved_epoch = position.epoch
        return position

    def save(self, run: Stateful) -> None:
        """Save an epoch, where enough time has passed since the last that was saved."""
        start = perf_counter()
        if self._saves >= GRACE and start - self._last < self._took / SHARE_OF_SAVING:
            return
        with replacing(self.path) as temporary:
            content: dict[str, Any] = {"state_dict": run.model.state_dict(), "optimiser": run.optimiser.state_dict()}
            content |= {"progress": json.dumps(asdict(run.position)), "best": run.best, "lstr": self.card}
            torch.save(content, temporary)
        self.saved_epoch = run.position.epoch
        self._saves, self._last = self._saves + 1, perf_counter()
        self._took = self._last - start


def clear(folder: Path) -> None:
    """Remove what only an unfinished run needs."""
    shutil.rmtree(folder / STATES, ignore_errors=True)


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


class EpochLog:
    """metrics.jsonl: one line per epoch of each network. What a killed process wrote past its state is dropped."""

    def __init__(self, network: Network, done: int):
        self.path = network.folder / LOG
        of = (network.stream, network.fold)
        if not self.path.exists():
            return
        lines = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            if not line.endswith("}"):  # cut by a kill
                continue
            entry = json.loads(line)
            if (entry["stream"], entry["fold"]) != of or entry["epoch"] <= done:
                lines.append(line + "\n")
        write_text(self.path, "".join(lines))

    def write(self, epoch: Epoch) -> None:
        """Add an epoch."""
        entries = asdict(epoch).items()
        append_jsonl(self.path, {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in entries})
