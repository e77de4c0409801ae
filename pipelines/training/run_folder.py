"""The folder of a run: its settings, its checkpoints, and the state it goes on from."""

import copy
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from lstr.checkpoints import checkpoint
from lstr.checkpoints.loaded import Checkpoint
from lstr.config import WindowConfig
from lstr.errors import CheckpointError
from lstr.kinds import configure, stored
from lstr.models.kind import Model
from lstr.pipelines.datasets.dataset import Split
from lstr.pipelines.datasets.seen_videos import seen_in, streams_of
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.training.config import TrainConfig, changes_from
from lstr.pipelines.training.loop import Position
from lstr.pipelines.training.step import Learner
from lstr.pipelines.weights.known import run_record

SHARE_OF_SAVING = 0.05  # of a run's time, at most: at the published size a save writes a gigabyte
FREE = ("save_seconds",)  # settings that may differ when a run goes on


def settings_of(
    model: WindowConfig, train: TrainConfig, split: Split, made_by: dict, preset: str | None = None
) -> dict:
    """Everything that makes a run what it is, as config.json and the checkpoint carry it.

    preset: what model and train were resolved from, so that a checkpoint states it, and what was changed.
    """
    videos = [(video.id, len(video.features)) for video in split.videos]
    data: dict[str, Any] = {
        "features": str(split.folder.path),
        "recipe": split.folder.recipe.id if split.folder.recipe else None,
        "classes": list(split.labels.classes),
        "videos": len(videos),
        "chunks": split.n_chunks,
        "videos_sha256": hashlib.sha256(json.dumps(videos).encode()).hexdigest(),
    }
    seen = seen_in(split, model)
    if seen:
        data["seen"] = {"videos": len(seen), "streams": streams_of(seen)}
    named = {"preset": preset, "changed": changes_from(preset, model, train)} if preset else {}
    return {**named, "model": asdict(model), "train": asdict(train), "data": data, "made_by": made_by}


def begin_run(run: Path, settings: dict, resume: bool, write: bool) -> dict | None:
    """The state to resume from, or None for a new run in a fresh folder, which only the process that writes begins.

    Raises CheckpointError when there is nothing to resume, a run is in the way, or it had other settings.
    """
    path = run / "resume.pt"
    if not resume:
        if path.exists():
            raise CheckpointError(
                f"{run} already holds a run.", "go on with [[resume=true]], or choose another folder with [[output]]."
            )
        if write:
            write_json(run / "config.json", settings)
        return None
    if not path.exists():
        raise CheckpointError(f"{run} holds no run to resume.", "run the same command without [[resume=true]].")
    state = checkpoint.read(path)
    if "position" not in state:
        raise CheckpointError(
            f"{path} was written by an older lstr.", "begin a new run in another folder with [[output]]."
        )
    changed = _changes(json.loads(state["settings"]), settings)
    if changed and "delay" in settings["data"]:
        raise CheckpointError(
            f"The teacher in {run} was begun with other settings than these ({'; '.join(changed)}).",
            f"give the settings that {run.parent} was begun with, or choose another folder with [[output]].",
        )
    if changed:
        raise CheckpointError(
            f"{run} was begun with other settings than these ({'; '.join(changed)}).",
            f"give [[config={run / 'config.json'}]] and the same videos, or begin a new run.",
        )
    return state


def _changes(before: dict, now: dict) -> list[str]:
    """What differs between two settings, where it has a part in the result.

    A setting that there was not before has its default.
    """
    model, train = asdict(configure(now["model"]["kind"])), asdict(TrainConfig())
    plain: dict[str, dict] = {"model": model, "train": train, "data": {}}
    before = {**before, "model": stored(before["model"])}
    before = {part: {**plain[part], **before[part]} for part in plain}
    names = [(part, name) for part in ("model", "train", "data") for name in {**before[part], **now[part]}]
    names = [(part, name) for part, name in names if name not in (*FREE, "features")]
    return [
        f"{part}.{name} was {before[part].get(name)}, is {now[part].get(name)}"
        for part, name in names
        if before[part].get(name) != now[part].get(name)
    ]


def restore(state: dict, learner: Learner) -> Position:
    """Bring weights and optimiser back; returns the position that they were saved at."""
    learner.model.load_state_dict(state["model"])
    learner.optimiser.load_state_dict(state["optimiser"])
    if learner.average:
        for name, tensor in learner.average.tensors.items():
            tensor.copy_(state["average"][name])
    return Position(**json.loads(state["position"]))


class Saver:
    """Writes a run's files, not so often that it takes more than a twentieth of the time."""

    def __init__(self, run: Path, split: Split, settings: dict):
        self.run, self.split, self.settings = run, split, settings
        self._last, self._took = perf_counter(), 0.0

    def is_due(self) -> bool:
        """Whether enough time has passed since the last save."""
        wait = max(self.settings["train"]["save_seconds"], self._took / SHARE_OF_SAVING)
        return perf_counter() - self._last >= wait

    def save(self, learner: Learner, position: Position, metrics: dict) -> None:
        """Checkpoint first, state last: a run resumed from the older state only repeats what lies between."""
        start = perf_counter()
        self.save_checkpoint("checkpoint.pt", self.export(learner), metrics)
        with replacing(self.run / "resume.pt") as temporary:
            torch.save(
                {
                    "settings": json.dumps(self.settings),
                    "position": json.dumps(asdict(position)),
                    "model": learner.model.state_dict(),
                    "optimiser": learner.optimiser.state_dict(),
                    "mean": learner.mean,
                    "std": learner.std,
                    "average": learner.average.tensors if learner.average else {},
                },
                temporary,
            )
        self._last = perf_counter()
        self._took = self._last - start

    def export(self, learner: Learner) -> Model:
        """The model as others use it: on the CPU, for raw features, its weights averaged where the run does that."""
        averaged = learner.average.tensors if learner.average else {}
        raw = {name: averaged.get(name, t).detach().cpu() for name, t in learner.model.state_dict().items()}
        exported = copy.deepcopy(learner.model).cpu().eval()
        exported.load_state_dict(raw)
        exported.absorb(learner.mean.cpu(), learner.std.cpu())
        return exported

    def save_checkpoint(self, name: str, model: Model, metrics: dict) -> None:
        """A self-describing checkpoint of an exported model."""
        videos = [video.id for video in self.split.videos]
        checkpoint.save(
            self.run / name,
            model,
            self.split.labels.classes,
            self._recipe(),
            {**metrics, "training_videos": videos},
            {n: v for n, v in self.settings.items() if n != "model"} | run_record(self.split.folder, self.run),
            self.split.folder.calibration(),
        )

    def loaded(self, model: Model, device: torch.device) -> Checkpoint:
        """An exported model as if it had been saved and loaded, to be evaluated on a device."""
        return Checkpoint(
            model=model.to(device),
            config=model.config,
            classes=tuple(self.split.labels.classes),
            recipe=self._recipe(),
            metrics={},
            extra={},
            calibration={},
            versions={},
            format=checkpoint.FORMAT,
            path=self.run / "checkpoint.pt",
            assumed={},
        )

    def _recipe(self) -> dict | None:
        return self.split.folder.recipe.to_dict() if self.split.folder.recipe else None
