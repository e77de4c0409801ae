"""The evaluation job: compute metrics and a report for checkpoints, or choose their thresholds for detection."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lstr.batch import predict
from lstr.errors import ConfigError, RecipeError
from lstr.files.atomic import check_writable
from lstr.labels.label_set import subset_named
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.evaluation.analysis import (
    RESAMPLES,
    Findings,
    analyse,
    compare,
    measure_with_kinds,
    names_of,
    quoted_for,
    resample,
)
from lstr.pipelines.evaluation.chosen_thresholds import backdated, choose_for_rate, doubts, write_thresholds
from lstr.pipelines.evaluation.scoring import Scoring, check_fit, detect_events, labelled_segments, score_split
from lstr.pipelines.evaluation.thresholds import DELAY_PRICE, Scored, choose_rule
from lstr.pipelines.features.dataset import DatasetOptions, Split, network_overlap, read_dataset
from lstr.pipelines.model_files.model_file import assumptions_of, open_checkpoint
from lstr.pipelines.model_files.networks import streams_of_checkpoint
from lstr.pipelines.progress import Failed, Finished, Notice, Progress
from lstr.settings import Amount, Count, PositiveAmount, check_fields
from lstr.timeline import DEFAULT

RANDOM = "the features come from random networks: the results say nothing about trained networks."
OTHER_CHUNKS = (
    "the checkpoints are scored on different chunks, so their differences are not caused by the models alone."
)
CHOSEN_ON_TESTING = "thresholds chosen on the testing videos fit them: results on these videos are no longer held out."


@dataclass(frozen=True)
class EvaluateOptions(Scoring, DatasetOptions):
    """Options of an evaluation; the usual subset is testing, else validation, and for thresholds validation."""

    checkpoints: Sequence[str | Path]
    """Checkpoints; several are compared on the same resamples of the videos"""
    resamples: Count = RESAMPLES
    """Number of resamples of the videos for confidence intervals; 0 omits them"""
    choose_thresholds: bool = False
    """Choose the thresholds of each class and write them into the checkpoints, instead of metrics"""
    false_alarms: PositiveAmount | None = None
    """With `choose_thresholds`: maximum false alarms per hour, for all classes together; None: the highest event F1"""
    delay_price: Amount = DELAY_PRICE
    """With `choose_thresholds`: the F1 that a second of mean delay is worth"""
    name: str | None = None
    """The name of a single checkpoint; None: the name of its file"""
    output: str | Path | None = None
    """Folder for report.html, JSON, CSV and figures"""
    model: Mapping[str, str] = field(default_factory=dict)
    """Model settings that are missing in a published checkpoint"""

    def __post_init__(self) -> None:
        """Raises ConfigError for a number out of range, for a rate of false alarms that no thresholds are chosen for,
        and for a report where thresholds are chosen."""
        check_fields(self)
        if self.choose_thresholds and self.output:
            raise ConfigError("Chosen thresholds are written into the model, without a report.", "leave out -o.")
        if self.false_alarms is not None and not self.choose_thresholds:
            raise ConfigError("A rate of false alarms is only for choosing thresholds.", "add --choose-thresholds.")


@dataclass(frozen=True)
class EvaluateResult:
    """The result of an evaluation."""

    document: dict[str, Any]
    """What `lstr evaluate --json` prints: metrics, thresholds, or the verdict on two models and the metrics of each"""
    findings: Findings | None = None
    """The analysis; None if thresholds were chosen"""
    page: Path | None = None
    """The report, if `output` was set"""
    takes_videos: bool = False
    """Whether the first checkpoint has the recipe of its features, so that it can run on videos"""
    failed: Sequence[Failed] = ()
    """The videos of a comparison whose features could not be computed"""


Event = Progress | Notice | Finished[EvaluateResult]


def evaluate(options: EvaluateOptions) -> Iterator[Event]:
    """Score checkpoints on labelled features, or choose their thresholds on them.

    All checkpoints are checked before the first is scored. Raises MissingPathError, LabelsError, RecipeError,
    CheckpointError, ConfigError, SeenError, and OutputError if the report cannot be written.
    """
    if options.output:
        check_writable(Path(options.output))
    choosing, skip = options.choose_thresholds, options.skip_missing
    subset = subset_named(options.subset) if options.subset else "validation" if choosing else None
    opened = [open_checkpoint(path, options.model, options.device) for path in options.checkpoints]
    first, streams = opened[0], (options.rgb, options.flow)
    for other in opened[1:]:
        if other.clock != first.clock:
            raise RecipeError(
                f"{first.path} and {other.path} were trained on features of different rates.",
                "evaluate each checkpoint in its own command.",
            )
    data = read_dataset(
        list(options.features), options.labels, streams, options.dataset, skip_missing=skip, clock=first.clock
    )
    data = data.with_classes(first.classes).with_durations()
    split = data.split(subset, skip)
    names = names_of([Path(path).absolute() for path in options.checkpoints])
    if options.name and len(names) == 1:
        names = [options.name]
    entries = [(name, loaded, split) for name, loaded in zip(names, opened, strict=True)]
    # thresholds are always chosen on all chunks
    scoring = replace(options, published=False) if choosing else options
    warnings: list[str] = []
    for loaded in opened:
        warnings += check_fit(loaded, split, scoring)
        yield from map(Notice, assumptions_of(loaded))
    yield from data.notices(split)
    if choosing:
        yield from map(Notice, [*warnings, *[CHOSEN_ON_TESTING] * (subset == "testing")])
        document = yield from choose_stored_thresholds(entries, options.false_alarms, options.delay_price)
        yield Finished(EvaluateResult(document, takes_videos=bool(first.recipe)))
        return
    findings = yield from judge(entries, scoring, options.resamples)
    scored = {(entry.document["videos"], entry.document["chunks"]) for entry in findings.judged}
    warnings += [OTHER_CHUNKS] * (len(scored) > 1)
    warnings += [RANDOM] * any(entry.document["random_weights"] for entry in findings.judged)
    yield from map(Notice, warnings)
    findings = replace(findings, warnings=warnings)
    page = write_report(options.output, findings)
    yield Finished(EvaluateResult(findings.document, findings, page, bool(first.recipe)))


def write_report(output: str | Path | None, findings: Findings) -> Path | None:
    """Write an evaluation into a folder; return the path of its page, None without a folder."""
    if not output:
        return None
    from lstr.pipelines.evaluation.report import write_evaluation  # imports matplotlib

    return write_evaluation(Path(output), findings)


def judge(
    entries: Sequence[tuple[str, Checkpoint, Split]], scoring: Scoring, resamples: int
) -> Generator[Progress, None, Findings]:
    """Score, analyse and compare checkpoints, each given by name, checkpoint, and the same videos with its features."""
    judged, resampled = [], []
    for name, loaded, split in entries:
        for event in score_split(loaded, split, scoring, name):
            if isinstance(event, Finished):
                evaluation = event.result
            else:
                yield event
        # all resamples of one video are equal
        resampled.append(resample(evaluation, resamples if len(evaluation.split.videos) > 1 else 0))
        evaluation.document.update(analyse(evaluation, resampled[-1]))
        judged.append(evaluation)
    return Findings(judged, compare(judged, resampled), quoted_for(entries[0][1]))


def choose_stored_thresholds(
    entries: Sequence[tuple[str, Checkpoint, Split]], false_alarms: float | None, price: float
) -> Generator[Progress | Notice, None, dict[str, Any]]:
    """Choose the thresholds of named checkpoints, each on the videos of its split, and store them.

    With `false_alarms`, they detect the most actions with at most this many false alarms per hour of all classes
    together (`choose_for_rate`); otherwise they have the highest event F1 minus the price of delays (`choose_rule`).
    Starts are backdated to match the labels. Raises CheckpointError.

    Returns:
        A JSON object for one or several checkpoints: `checkpoint`, the file with the thresholds; `thresholds` of each
        class with their event F1 and the one of the default thresholds (`before`); `events` and `default_events`, the
        results of `measure_with_kinds` for both.
    """

    def f1_of_class(events: Mapping[str, Any], label: str) -> float | None:
        counts = events["per_class"][label]
        return 2 * counts["found"] / (counts["labels"] + counts["detections"]) if counts["labels"] else None

    documents = []
    for name, loaded, whole in entries:
        split, classes = whole.narrowed(loaded.config, streams_of_checkpoint(loaded)), loaded.classes
        scored: list[Scored] = []
        yield Progress(name, 0, len(split.videos))
        for video in split.videos:
            rows = predict(loaded.model, video.features[:]).numpy()
            scored.append(Scored(rows, labelled_segments(split, video)))
            yield Progress(name, len(scored), len(split.videos))
        if false_alarms is None:
            chosen = choose_rule(scored, classes, clock=split.clock, price=price).by_class
        else:
            chosen = choose_for_rate(scored, classes, false_alarms, split.clock)
        rules = backdated(chosen, scored, classes, split.clock)
        after, before = (
            measure_with_kinds(
                [detect_events(video.scores, classes, used, video.truth, split.clock) for video in scored], classes
            )
            for used in (rules, DEFAULT)
        )
        document: dict[str, Any] = {
            "checkpoint": str(write_thresholds(loaded, rules)),
            "thresholds": {
                label: {**rule.stored(), "F1": f1_of_class(after, label), "before": f1_of_class(before, label)}
                for label, rule in rules.items()
            },
            "events": after,
            "default_events": before,
        }
        if false_alarms is not None:
            document["aim"] = {"false_alarms_per_hour": false_alarms}
            yield from (Notice(f"{name}: {text}") for text in doubts(after, false_alarms))
        if seen := network_overlap(whole, loaded.config):
            document["seen"] = seen
        documents.append(document)
    return documents[0] if len(documents) == 1 else {"checkpoints": documents}
