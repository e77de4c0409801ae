"""The job of learning: labelled videos to a model file, by the jobs that are commands of their own."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import CheckpointError, LabelsError, SeenError
from lstr.extractors.prefetch import torch_threads
from lstr.files.atomic import sweep
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics.actions import sentence
from lstr.pipelines.comparison.job import ComparisonOptions, compare_models
from lstr.pipelines.evaluation.event_rows import figure_text
from lstr.pipelines.evaluation.page import add_comparison
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.learning.parts import TESTING
from lstr.pipelines.learning.plan import Compared, Doing
from lstr.pipelines.learning.preparation import Learning, checked_output, prepare
from lstr.pipelines.learning.steps import Steps
from lstr.pipelines.learning.workspace import Workspace
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice

OF_THIS_RUN = ("seconds", "checkpoint", "warnings")  # entries of an evaluation with times and paths of this machine


@dataclass(frozen=True)
class Learnt:
    """What came of it."""

    model: Path
    about: Mapping[str, Any]
    """What the model file states about itself: `metrics` and `split` among it"""
    report: Path | None
    """None where its folder is gone, or is that of another learning"""
    failed: Sequence[Failed] = ()
    """Videos that were left out because they cannot be read"""
    verdict: str | None = None
    """Whether it is better than the model that it began with, in one sentence"""

    def lines(self) -> list[str]:
        """What a person wants to know of the result, in two sentences, and in a third whether it is better."""
        metrics, split = self.about["metrics"], self.about["split"]
        prior = ""
        if "time_prior" in metrics:
            prior = f"; a guess by time alone has {figure_text(metrics['time_prior']['mAP'], 2)}"
        return [
            sentence(metrics["events"]),
            f"{split[0].upper()}{split[1:]}; per-frame mAP {figure_text(metrics['lstr']['mAP'], 2)}{prior}",
            *([self.verdict] if self.verdict else []),
        ]


Event = LabelFindings | Notice | Learning | Doing | Compared | Failed | Finished[Learnt]


def plan(options: LearnOptions) -> Generator[LabelFindings | Notice | Failed | Learning, None, None]:
    """What `learn` would do: its checks and its plan; nothing is written. Raises as `learn` does before its work."""
    yield (yield from prepare(options))


def learn(options: LearnOptions) -> Generator[Event, None, None]:
    """Learn from labelled videos, or go on with what was stopped: the same options go on, with another time too, others
    begin anew.

    Yields LabelFindings, Notices, Learning before anything long, Doing as each step goes on, Failed of each video that
    cannot be read, Compared where several ways were tried, and Finished with what was learnt.
    Close the generator to end everything it started; what is finished is kept. Raises LabelsError, ConfigError,
    OutputError where another learning writes the same file, and what the jobs of its steps raise.
    """
    started = perf_counter()
    with Workspace(checked_output(options.output, options.init)).held():
        yield from _learn(options, started)


def _learn(options: LearnOptions, started: float) -> Generator[Event, None, None]:
    planned = yield from prepare(options)
    path, workspace, parts = planned.model, planned.workspace, planned.parts
    report = workspace.report / "report.html"
    if planned.is_finished:
        yield Notice(f"{path} is finished.", warning=False)
        yield Finished(Learnt(path, open_model(path).about, report if planned.begun and report.exists() else None))
        return
    yield planned
    if planned.begun:
        workspace.go_on(planned.request, planned.task, planned.plan, parts.labels)
    else:
        workspace.begin(planned.request, planned.task, planned.plan, parts.labels)
    sweep(workspace.path)
    steps = Steps(planned, options, started)
    with torch_threads(planned.plan.threads), closing(steps.run()) as events:
        made = yield from events
    subsets = {i: video.subset for i, video in sorted(parts.labels.videos.items())}
    metrics = {name: value for name, value in made.document.items() if name not in OF_THIS_RUN}
    # the same for the same learning
    about = {
        "request": planned.request,
        "split": parts.sentence,
        "data": _data_of(planned, workspace.features),
        **({"folds": made.folds} if made.folds else {}),
        "videos": subsets,
        "metrics": metrics,
        **made.compared,
    }
    model = write_model(path, made.checkpoint, workspace.weights, {**options.about, **about})
    if verdict := (yield from _verdict(planned, options)):
        add_comparison(report, verdict)
    yield Finished(Learnt(path, model.about, report, tuple(steps.failed.values()), verdict))


def _data_of(planned: Learning, features: Path) -> dict[str, Any]:
    """Videos, seconds and labelled actions by subset, and the names of the files without their folders.

    A video counts as long as its features are, and not at all where it has none.
    """
    labels, subsets = planned.parts.labels, dict[str, dict[str, Any]]()
    lengths = {i: length for i, length in open_features(features).lengths().items() if i in labels.videos}
    for video_id, chunks in lengths.items():
        video = labels.videos[video_id]
        about = subsets.setdefault(video.subset, {"videos": 0, "seconds": 0.0, "labels": Counter()})
        about["videos"] += 1
        about["seconds"] += chunks / FEATURES_PER_SECOND
        about["labels"].update(s.label for s in video.segments if s.label not in (BACKGROUND, AMBIGUOUS))
    return {"subsets": subsets, "files": sorted(planned.videos[video_id].name for video_id in lengths)}


def _verdict(planned: Learning, options: LearnOptions) -> Generator[Event, None, str | None]:
    """Whether the model is better than the one that its networks began with, on the held-out videos that neither has
    seen; None where they began with none, or where the two cannot be compared, of which a Notice says why."""
    if options.init is None or not is_model(options.init):
        return None
    sources = {i: planned.videos[i] for i in planned.parts.of(TESTING)}
    labels, cache, device = planned.workspace.labels, options.cache, options.device
    pair = (options.init, planned.model)
    chosen = ComparisonOptions(pair, (), labels, cache=cache, device=device, sources=sources)
    try:
        for event in compare_models(chosen):
            if isinstance(event, Finished):
                return event.result.sentence
            if isinstance(event, Notice | Failed):
                yield event
    except (SeenError, CheckpointError, LabelsError) as error:
        yield Notice(f"not compared with {options.init}: {error}", warning=False)
    return None
