"""A process that learns: what `lstr learn` does, told as it goes, then measured against the learning before.

It is a process of its own so that it can be ended at any moment, keeps no page waiting, and takes nothing else with it
when it dies. `main` is what it runs; its parent sends a Task.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from lstr.labels.check import NOTE
from lstr.pipelines.child_process import ChildProcess, serve_parent, tell_parent
from lstr.pipelines.labelling.lesson import LessonFiles
from lstr.pipelines.learning.plan import Doing, LearnPlan

PROGRESS_SECONDS = 0.25  # between two reports of progress within a step
NICENESS = 5  # of all that learns: whoever labels meanwhile comes first


@dataclass(frozen=True)
class Task:
    """What is to be learnt, and what it is compared with."""

    files: LessonFiles
    options: Mapping[str, Any]
    """Fields of `LearnOptions`"""
    before: LessonFiles | None
    """The learning before"""
    names: tuple[str, str]
    """What the one before and this one are called"""


@dataclass(frozen=True)
class Planned:
    """What will be done."""

    plan: LearnPlan


@dataclass(frozen=True)
class Told:
    """A sentence for a person."""

    text: str
    is_warning: bool


@dataclass(frozen=True)
class Measured:
    """How good the model is, and what became better and worse; the last event."""

    figures: dict[str, Any]
    """`sentence`, `split`, `mAP`, `interval` of it, `hours`, `videos`, `together` and `actions`: `labels`, `found`,
    `false_alarms`, `rate` of them an hour and its `interval`"""
    differences: dict[str, Any] | None


Event = Planned | Doing | Told | Measured


class LessonProcess(ChildProcess):
    """A process that learns, with as many threads as `lstr learn` has."""

    def __init__(self, task: Task):
        super().__init__(__name__, None)
        self.send(task)


def figures_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a model file states about how good it is, as far as a page shows it."""
    from lstr.metrics.actions import sentence

    metrics = about["metrics"]
    events = metrics["events"]
    return {
        "sentence": sentence(events),
        "split": about["split"],
        "mAP": metrics["lstr"]["mAP"],
        "interval": (metrics.get("interval") or {}).get("mAP"),
        "hours": events["hours"],
        "videos": metrics["videos"],
        "together": _counts(events["together"]),
        "actions": {label: _counts(one) for label, one in events["per_class"].items()},
    }


def _counts(one: Mapping[str, Any]) -> dict[str, Any]:
    edges = (one["interval"] or {}).get("false_alarms_per_hour")
    counts = {name: one[name] for name in ("labels", "found", "false_alarms")}
    return {**counts, "rate": one["false_alarms_per_hour"], "interval": edges}


def _learn(task: Task) -> Generator[Event, None, None]:
    """Learn, or go on; raises as `learn` does."""
    from lstr.pipelines.evaluation.findings import without_nan
    from lstr.pipelines.labelling.lesson_comparison import compared
    from lstr.pipelines.learning.job import learn
    from lstr.pipelines.learning.options import LearnOptions
    from lstr.pipelines.learning.preparation import Learning
    from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice

    last, step = 0.0, ""
    for event in learn(LearnOptions(**task.options)):
        match event:
            case Learning():
                yield Planned(event.plan)
            case Doing():
                if event.step.key != step or event.done == event.total or monotonic() - last > PROGRESS_SECONDS:
                    last, step = monotonic(), event.step.key
                    yield event
            case Notice():
                yield Told(event.text, event.warning)
            case LabelFindings():
                yield from (Told(one.sentence, one.severity != NOTE) for one in event.findings)
            case Failed():
                yield Told(f"{event.id} was left out: {event.reason}", True)
            case Finished(result):
                differences = None
                if task.before:
                    yield Told(f"compares it with {task.names[0]}", False)
                    differences = compared(task.before, task.files, task.names, task.options["videos"])
                yield Measured(without_nan(figures_of(result.about)), differences)


def _serve(connection: Connection) -> None:
    import os

    os.nice(NICENESS)

    def work() -> Generator[Event, None, None]:
        yield from _learn(connection.recv())

    tell_parent(connection, work(), "go on with it; if it happens again, report it with what `lstr doctor` prints.")


def main() -> None:
    """What such a process runs."""
    serve_parent(_serve)
