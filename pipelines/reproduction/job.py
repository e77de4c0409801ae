"""The job of reproducing: seeds trained one after the other, each scored, and all of them beside the published row."""

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from lstr.errors import ConfigError
from lstr.extractors.devices import choose_device
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.files.atomic import check_writable
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.model_files.model_file import open_checkpoint
from lstr.pipelines.progress import Finished, LabelFindings
from lstr.pipelines.provenance import make_reproducible
from lstr.pipelines.reproduction.options import ReproduceOptions
from lstr.pipelines.reproduction.pace import TimeLeft, measure
from lstr.pipelines.reproduction.plan import BEST, LAST, PUBLISHED, Plan, Prepared, prepare
from lstr.pipelines.reproduction.record import Reproduced, document_of
from lstr.pipelines.training.ranks import ALONE
from lstr.pipelines.training.run import Task, changes_between, train_model

RECORD, SETTINGS, RESULT = "reproduce.json", "config.json", "result.json"
"""Files of the folder: what came of all seeds, the settings of the first; and of each seed's folder, its numbers."""
FILES = {LAST: "checkpoint.pt", BEST: "best.pt"}


@dataclass(frozen=True)
class Doing:
    """How far a seed has come, and what is left in all."""

    seed: int
    what: str
    """`train` or `score`"""
    done: int
    total: int
    left: float
    """Seconds of all that is left, of all seeds"""
    note: str = ""


@dataclass(frozen=True)
class Planned:
    """What is going to be done, before it begins."""

    plan: Plan
    folder: Path
    finished: tuple[int, ...] = ()
    """Seeds that an earlier call has finished"""


Event = LabelFindings | Planned | Doing | Finished[Reproduced]


def plan(options: ReproduceOptions) -> Iterator[LabelFindings | Planned | Finished[Plan]]:
    """Check everything and measure a few steps, and write nothing; the plan is in Finished. Raises as `reproduce`."""
    prepared = yield from prepare(options)
    device = choose_device(options.device)
    finished = _begun(prepared, device)
    planned = _with_pace(prepared, device).plan
    yield Planned(planned, prepared.folder, tuple(finished))
    yield Finished(planned)


def reproduce(options: ReproduceOptions) -> Iterator[Event]:
    """Train a kind by its published settings once a seed, score each, and tell how they stand to the published row.

    A call in a folder that an earlier one has left goes on where that was; more seeds may be asked for. Yields
    LabelFindings and Planned before the first step, Doing on the way, last Finished. Raises ConfigError, LabelsError,
    RecipeError and MissingPathError for what does not fit, OutputError, and what `train_model` raises.
    """
    prepared = yield from prepare(options)
    device = choose_device(options.device)
    check_writable(prepared.folder)
    results = _begun(prepared, device)
    todo = [seed for seed in prepared.plan.seeds if seed not in results]
    prepared = _with_pace(prepared, device) if todo else prepared
    planned, folder = prepared.plan, prepared.folder
    yield Planned(planned, folder, tuple(results))
    write_json(folder / SETTINGS, _settings(prepared, device))
    if planned.pace:
        left = TimeLeft(planned.pace, len(todo) * planned.all_steps, len(todo) * planned.scored)
        for seed in todo:
            results[seed] = yield from _one_seed(prepared, seed, options.readers, device, left)
            write_json(folder / RECORD, document_of(planned, results, device))
    document = document_of(planned, results, device)
    write_json(folder / RECORD, document)
    yield Finished(Reproduced(document, planned, results, folder / RECORD))


def _task(prepared: Prepared, seed: int) -> Task:
    planned = prepared.plan
    config = replace(planned.train, seed=seed)
    validation = prepared.testing if config.eval_every else None
    return Task(prepared.training, planned.model, config, validation, planned.preset)


def _settings(prepared: Prepared, device: str) -> dict[str, Any]:
    """All that has a part in the numbers: the settings of the first seed's run, what is scored, what data differ in."""
    task = _task(prepared, prepared.plan.seeds[0])
    scored = replace(task, split=prepared.testing, validation=None).settings(device, ALONE)["data"]
    kept = {name: value for name, value in scored.items() if name.endswith("sha256")}
    return {
        **task.settings(device, ALONE),
        "testing": kept,
        "not as published": [str(one) for one in prepared.plan.data],
    }


def _with_pace(prepared: Prepared, device: str) -> Prepared:
    planned = prepared.plan
    if planned.train.deterministic:
        make_reproducible()  # before anything of CUDA begins
    pace = measure(prepared.training, prepared.testing, planned.model, planned.train, device)
    return replace(prepared, plan=replace(planned, pace=pace))


def _begun(prepared: Prepared, device: str) -> dict[int, dict[str, Any]]:
    """The results of seeds that are finished. Raises ConfigError where the folder was begun with something else."""
    planned, folder = prepared.plan, prepared.folder
    before = _read(folder / SETTINGS, ("model", "train", "data"))
    if before is None:
        return {}
    now = _settings(prepared, device)
    changed = changes_between(before, now)
    for name in ("testing", "not as published"):
        changed += [f"{name}: another"] if before.get(name) != now[name] else []
    if changed:
        raise ConfigError(
            f"{folder} was begun with other settings or data than these ({'; '.join(changed)}).",
            "give those again, or choose another folder with -o.",
        )
    found = {seed: _read(folder / f"seed-{seed}" / RESULT, ("scores", "values")) for seed in planned.seeds}
    return {seed: result for seed, result in found.items() if result is not None}


def _read(path: Path, parts: tuple[str, ...]) -> dict[str, Any] | None:
    """A JSON object with such objects in it; None where there is none yet.

    Raises ConfigError for a file that is something else.
    """
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and all(isinstance(content.get(part), dict) for part in parts):
            return content
    except (OSError, ValueError):
        pass
    raise ConfigError(f"{path} is no file of a reproduction.", "remove it, or choose another folder with -o.")


def _one_seed(
    prepared: Prepared, seed: int, readers: int | None, device: str, left: TimeLeft
) -> Generator[Doing, None, dict[str, Any]]:
    """Train a seed, or go on with it, and score it: its result, which is in its folder then."""
    planned, folder = prepared.plan, prepared.folder / f"seed-{seed}"
    resume = (folder / "resume.pt").exists() or any(folder.glob("teacher-*/resume.pt"))
    last, before = perf_counter(), ("", 0)
    later, later_scored = left.steps - planned.all_steps, left.chunks - planned.scored_between
    for step in train_model(_task(prepared, seed), folder, device, resume, readers):
        now = perf_counter()
        same = before[0] == step.stage and before[1] > 0
        if same and not step.evaluation:
            left.count("steps", step.step - before[1], now - last)
        else:  # an earlier call may have taken them, and an evaluation takes its own time
            left.skip("steps", step.step - before[1] if same else step.step)
            left.skip("chunks", planned.chunks["testing"] if step.evaluation else 0)
        last, before = now, (step.stage, step.step)
        note = f"epoch {step.epoch}/{planned.train.epochs} loss {step.loss:.3f}"
        yield Doing(seed, step.stage or "train", step.step, step.steps, left.seconds, note)
    left.skip("steps", left.steps - later)
    left.skip("chunks", left.chunks - later_scored)
    scores: dict[str, Any] = {}
    for weights in planned.weights:
        if (path := folder / FILES[weights]).exists():
            scores[weights] = yield from _scores(prepared, path, seed, device, left)
    result = {
        "seed": seed,
        "scores": scores,
        "values": {weights: _values(planned, scores[weights]) for weights in scores},
    }
    write_json(folder / RESULT, result)
    return result


def _values(planned: Plan, scores: dict[str, Any]) -> dict[str, list[float | None]]:
    """By protocol, the number of each row in percent."""
    return {protocol: [row.value(document) for row in planned.rows] for protocol, document in scores.items()}


def _scores(
    prepared: Prepared, path: Path, seed: int, device: str, left: TimeLeft
) -> Generator[Doing, None, dict[str, Any]]:
    """What `score_split` says of a checkpoint, by protocol."""
    loaded = open_checkpoint(path, {}, device)
    found = {}
    for protocol in prepared.plan.protocols:
        scoring = Scoring(published=protocol == PUBLISHED, allow_seen=True)
        last, total = perf_counter(), prepared.plan.chunks["testing"]
        for event in score_split(loaded, prepared.testing, scoring):
            if isinstance(event, Finished):
                found[protocol] = event.result.document
                continue
            now = perf_counter()
            done = total * event.done // max(1, event.total)
            left.count("chunks", total // max(1, event.total) if event.done else 0, now - last)
            last = now
            yield Doing(seed, "score", done, total, left.seconds, protocol)
    return found
