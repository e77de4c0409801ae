"""The job of learning: labelled videos to a model file, by the jobs that are commands of their own."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

from lstr.extractors.prefetch import torch_threads
from lstr.pipelines.learning.events import Doing, Learnt, Planned
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.learning.preparation import Prepared, prepare
from lstr.pipelines.learning.steps import Steps
from lstr.pipelines.model_files.model_file import ModelFile, open_model
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.progress import Failed, Findings, Finished, Notice

Event = Findings | Notice | Planned | Doing | Failed | Finished[Learnt]
OF_THIS_RUN = ("seconds", "checkpoint", "warnings")  # entries of an evaluation with times and paths of this machine


def plan(options: LearnOptions) -> Generator[Findings | Notice | Planned, None, None]:
    """What `learn` would do: its checks and its plan; nothing is written. Raises as `learn` does before its work."""
    prepared = yield from prepare(options)
    yield _planned(prepared)


def learn(options: LearnOptions) -> Generator[Event, None, None]:
    """Learn from labelled videos, or go on with what was stopped: the same options go on, others begin anew.

    Yields Findings of the labels, Notices, Planned before anything long, Doing as each step goes on, Failed of each
    video that cannot be read, and Finished with what was learnt. Close the generator to end everything it started; what
    is finished is kept. Raises LabelsError, ConfigError, and what the jobs of its steps raise.
    """
    started = perf_counter()
    prepared = yield from prepare(options)
    if prepared.is_finished:
        yield Notice(f"{prepared.model} is finished.", warning=False)
        yield Finished(_learnt(prepared, open_model(prepared.model)))
        return
    yield _planned(prepared)
    if not prepared.begun:
        prepared.workspace.begin(prepared.request, prepared.plan, prepared.parts.labels)
    prepared.workspace.sweep()
    steps = Steps(prepared, options, started)
    with torch_threads(prepared.plan.threads), closing(steps.run()) as events:
        document = yield from events
    model = write_model(
        prepared.model,
        prepared.workspace.run / "checkpoint.pt",
        prepared.workspace.weights,
        {**options.about, **_about(prepared, document)},
    )
    yield Finished(_learnt(prepared, model, tuple(steps.failed.values())))


def _planned(prepared: Prepared) -> Planned:
    return Planned(prepared.plan, prepared.model, prepared.workspace.path, prepared.begun)


def _about(prepared: Prepared, document: dict[str, Any]) -> dict[str, Any]:
    """What the model file says of how it was made and measured; the same for the same learning."""
    subsets = {i: video.subset for i, video in sorted(prepared.parts.labels.videos.items())}
    metrics = {name: value for name, value in document.items() if name not in OF_THIS_RUN}
    return {"request": prepared.request, "split": prepared.parts.sentence, "videos": subsets, "metrics": metrics}


def _learnt(prepared: Prepared, model: ModelFile, failed: tuple[Failed, ...] = ()) -> Learnt:
    return Learnt(Path(prepared.model), model.about, prepared.workspace.report / "report.html", failed)
