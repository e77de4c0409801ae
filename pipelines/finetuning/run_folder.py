"""The folder of a training of networks: its settings, what is finished, and a line an epoch."""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile

from extractors.networks.model_card import DESCRIPTION, network_file
from extractors.recipe import STREAMS
from lstr.errors import CheckpointError
from lstr.labels import VideoLabels
from pipelines.files.atomic import sweep, unwritable, write_text
from pipelines.files.json_files import append_jsonl, write_json
from pipelines.finetuning.runner import Epoch, Progress

SETTINGS = "settings.json"
LOG = "metrics.jsonl"
STATES = "training"  # goes away at the end


def check_output(folder: Path, resume: bool) -> None:
    """Raises CheckpointError where a run is to go on that is not there, or to begin where there is something else.

    Also OutputError where nothing can be written, before that costs hours.
    """
    if resume and not (folder / SETTINGS).is_file():
        raise CheckpointError(f"{folder} holds no training to resume.", "run the same command without --resume.")
    if resume:
        return
    if (folder / DESCRIPTION).is_file():
        raise CheckpointError(f"{folder} holds finished weights.", "choose another folder with -o.")
    if (folder / SETTINGS).is_file():
        raise CheckpointError(
            f"{folder} holds a training that was stopped.", "go on with --resume, or choose another folder with -o."
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise CheckpointError(
            f"{folder} is not empty, and holds no training of networks.", "choose a new folder with -o."
        )
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise unwritable(folder, error) from error


def begin(folder: Path, settings: Mapping, resume: bool) -> None:
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
            "give what it was begun with, or begin anew in another folder with -o.",
        )
    sweep(folder)


def described(labels: VideoLabels, sha256: str, part: str) -> dict:
    """What settings say of a video: its content, its labels and its part."""
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


def _text(value) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def is_finished(folder: Path, stream: str, fold: int | None) -> bool:
    """Whether a network is trained and written."""
    return network_file(folder, stream, fold).is_file() and result_file(folder, stream, fold).is_file()


def state_file(folder: Path, stream: str, fold: int | None) -> Path:
    """What a stopped network goes on from."""
    return folder / STATES / f"{stream}{f'_fold_{fold}' if fold else ''}.pth"


def result_file(folder: Path, stream: str, fold: int | None) -> Path:
    """What is known of a finished network, until all are."""
    return state_file(folder, stream, fold).with_suffix(".json")


def write_result(folder: Path, stream: str, fold: int | None, progress: Progress) -> None:
    """Keep what finetune.json will say of a network."""
    known = asdict(progress)
    result = {"mAP": known["best"], "epoch": known["best_epoch"] or known["epoch"], "epochs": known["epoch"]}
    write_json(result_file(folder, stream, fold), result | {"seconds": round(known["seconds"], 2)})


def read_result(folder: Path, stream: str, fold: int | None) -> dict:
    """What is known of a finished network: mAP, the epoch it is of, epochs trained, seconds."""
    return json.loads(result_file(folder, stream, fold).read_text(encoding="utf-8"))


def clear(folder: Path) -> None:
    """Take away what only a run that is not finished needs."""
    shutil.rmtree(folder / STATES, ignore_errors=True)


class EpochLog:
    """metrics.jsonl: a line an epoch of each network. What a killed process wrote past its state is dropped."""

    def __init__(self, folder: Path, stream: str, fold: int | None, done: int):
        self.path = folder / LOG
        self.of = {"stream": stream, "fold": fold}
        if not self.path.exists():
            return
        lines = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            if not line.endswith("}"):  # cut by a kill
                continue
            entry = json.loads(line)
            if {name: entry[name] for name in self.of} != self.of or entry["epoch"] <= done:
                lines.append(line + "\n")
        write_text(self.path, "".join(lines))

    def write(self, epoch: Epoch) -> None:
        """Add an epoch."""
        values = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in asdict(epoch).items()}
        append_jsonl(self.path, self.of | values)
