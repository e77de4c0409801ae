"""The folder of a run: what is in its way, and whether it goes on with the settings that it was begun with."""

import json
from dataclasses import asdict
from pathlib import Path

from lstr.checkpoints import checkpoint
from lstr.errors import CheckpointError
from lstr.kinds import configure, stored
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.training.config import TrainConfig

FREE = ("save_seconds",)  # settings that may differ when a run goes on


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
