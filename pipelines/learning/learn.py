"""The job of `lstr learn`: labelled videos to one model file, by a fixed plan.

Labels are checked and divided, frames cached, the networks of the recipe finetuned, features computed, models trained
and averaged, thresholds chosen, the result measured, and everything packed. With folds, networks and models are trained
once on all videos, for the model file, and once without each fold, to score its videos.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from lstr.errors import CheckpointError, LabelsError, SeenError
from lstr.extractors.stages import torch_threads
from lstr.files.atomic import sweep
from lstr.metrics.actions import sentence
from lstr.pipelines.evaluation.comparison import ComparisonOptions, compare_models
from lstr.pipelines.evaluation.report import add_comparison
from lstr.pipelines.evaluation.tables import figure_text
from lstr.pipelines.learning.division import TESTING
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.learning.plan import (
    StepProgress,
)
from lstr.pipelines.learning.preparation import Learning, check_output, prepare
from lstr.pipelines.learning.steps import Learner
from lstr.pipelines.learning.workspace import Workspace
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice


@dataclass(frozen=True)
class Learnt:
    """The result of a learning."""

    model: Path
    about: Mapping[str, Any]
    """What the model file says about itself, with `metrics` and `split`."""
    report: Path | None
    """None if its folder was deleted or belongs to another learning."""
    failed: Sequence[Failed] = ()
    """Videos that were skipped because they cannot be read."""
    verdict: str | None = None
    """Whether the model is better than the one that its networks started from, in one sentence."""

    def lines(self) -> list[str]:
        """Return the result in two sentences, and the verdict."""
        metrics, split = self.about["metrics"], self.about["split"]
        prior = ""
        if "time_prior" in metrics:
            prior = f"; a guess by time alone has {figure_text(metrics['time_prior']['mAP'], 2)}"
        return [
            sentence(metrics["events"]),
            f"{split[0].upper()}{split[1:]}; per-frame mAP {figure_text(metrics['lstr']['mAP'], 2)}{prior}",
            *([self.verdict] if self.verdict else []),
        ]


Event = LabelFindings | Notice | Learning | StepProgress | Failed | Finished[Learnt]


def learn(options: LearnOptions) -> Generator[Event, None, None]:
    """Learn from labelled videos. The same options resume an earlier run, also with another time limit.

    Yields LabelFindings, Notices, Learning before anything long, StepProgress, Failed for each unreadable video, and
    Finished. Close the generator to end everything it started; finished parts are kept.

    Raises:
        LabelsError, ConfigError: The labels or options cannot be used.
        OutputError: The output cannot be written, or another process is writing it.
    """
    started = perf_counter()
    with Workspace(check_output(options.output, options.init)).locked():
        learning = yield from prepare(options)
        model, workspace = learning.model, learning.workspace
        report = workspace.report / "report.html"
        if learning.is_finished:
            yield Notice(f"{model} is finished.", warning=False)
            has_report = learning.is_resumed and report.exists()
            yield Finished(Learnt(model, open_model(model).about, report if has_report else None))
            return
        yield learning
        workspace.write_plan(learning.stored, learning.division.labels, learning.is_resumed)
        sweep(workspace.path)
        learner = Learner(learning, options, started)
        with torch_threads(learning.plan.threads), closing(learner.run()) as events:
            checkpoint, about = yield from events
        written = write_model(model, checkpoint, workspace.weights, {**options.about, **about})
        if verdict := (yield from compare_with_initial(learning, options)):
            add_comparison(report, verdict)
        yield Finished(Learnt(model, written.about, report, tuple(learner.failed.values()), verdict))


def compare_with_initial(learning: Learning, options: LearnOptions) -> Generator[Event, None, str | None]:
    """Return whether the model is better than the one of its initial networks, on testing videos new to both.

    None if the networks start from no model, or if both cannot be compared; a Notice says why.
    """
    if options.init is None or not is_model(options.init):
        return None
    chosen = ComparisonOptions(
        (options.init, learning.model),
        (),
        learning.workspace.labels,
        cache=options.cache,
        device=options.device,
        sources={i: learning.videos[i] for i in learning.division.of(TESTING)},
    )
    try:
        for event in compare_models(chosen):
            if isinstance(event, Finished):
                return event.result.sentence
            if isinstance(event, Notice | Failed):
                yield event
    except (SeenError, CheckpointError, LabelsError) as error:
        yield Notice(f"not compared with {options.init}: {error}", warning=False)
    return None
