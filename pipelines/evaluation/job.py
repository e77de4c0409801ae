"""The evaluation job: checkpoints, features and labels to metrics and a report, or to thresholds for detection."""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from lstr.errors import ConfigError, LabelsError, RecipeError, few
from lstr.files.atomic import check_writable
from lstr.labels.label_set import subset_named
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.evaluation.analysis import RESAMPLES, analyse, compare, resample
from lstr.pipelines.evaluation.chosen_thresholds import choose_stored_thresholds
from lstr.pipelines.evaluation.findings import Findings, Judged, names_of, quoted_for
from lstr.pipelines.evaluation.report import write_evaluation
from lstr.pipelines.evaluation.scoring import Fold, Scoring, check_fit, score_split
from lstr.pipelines.features.dataset import Dataset, Split, read_dataset, training_warnings
from lstr.pipelines.model_files.model_file import assumptions_of, open_checkpoint
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.settings import Count, check_fields

RANDOM = "the features come from random networks: the results show what LSTR makes of them, no more."
OTHER_CHUNKS = "the checkpoints are scored on different chunks: their differences are not those of the models alone."
CHOSEN_ON_TESTING = "thresholds chosen on the testing videos fit them: what is detected there is held out no more."


@dataclass(frozen=True)
class EvaluateOptions:
    """What to evaluate, on which videos, and what to write."""

    checkpoints: Sequence[str | Path]
    """Files; several are compared on the same resamples of the videos"""
    features: Sequence[str | Path]
    """Folders of one recipe, read as one"""
    beside: Sequence[tuple[Sequence[str | Path], Sequence[str | Path]]] = field(default=(), kw_only=True)
    """Checkpoints of other recipes on the same videos: files and folders of features, as of the first"""
    labels: str | Path
    """ActivityNet JSON, or a data_info.json"""
    subset: str | None = None
    """None: testing, else validation; for thresholds validation"""
    mode: Literal["batch", "stream"] = "batch"
    published: bool = False
    """The means are of the chunks that the published evaluation of each checkpoint's kind scores"""
    resamples: Count = RESAMPLES
    """Draws of the videos for confidence intervals; 0 leaves them out"""
    benchmark: str | None = None
    """The data set whose quoted results stand beside; None: that of the preset or classes"""
    choose_thresholds: bool = False
    """In place of metrics, choose each class's thresholds and write them into the checkpoints"""
    false_alarms: float | None = None
    """With `choose_thresholds`: aim at no more false alarms an hour, of all classes together; None: the highest
    F1 of found actions"""
    name: str | None = None
    """What a single checkpoint is called; None: by its file"""
    output: str | Path | None = None
    """Folder for report.html, JSON, CSV and figures"""
    dataset: str | None = None
    rgb: str | None = None
    """Name of the RGB features' folder where a root has several; `flow` likewise"""
    flow: str | None = None
    skip_missing: bool = False
    allow_mismatch: bool = False
    allow_seen: bool = False
    folds: Sequence[Fold] = ()
    """Scores of the videos by models that lack them, in place of the only checkpoint's own"""
    model: Mapping[str, str] = field(default_factory=dict)
    """Model settings that the file of a published checkpoint lacks"""
    device: str | None = None
    """A torch device; None: the GPU, else the CPU"""

    def __post_init__(self) -> None:
        """Raises ConfigError for an invalid number of resamples, for false alarms that are no number or that nothing is
        chosen for, and for a report where thresholds are chosen."""
        check_fields(self)
        if self.choose_thresholds and self.output:
            raise ConfigError("Thresholds are written into the model, and there is no report of them.", "leave out -o.")
        if self.false_alarms is None:
            return
        if not (self.choose_thresholds and 0 < self.false_alarms < math.inf):
            raise ConfigError(
                f"{self.false_alarms:g} false alarms an hour cannot be aimed at.",
                "give a number above 0, as --choose-thresholds and --false-alarms 1.",
            )

    @property
    def scoring(self) -> Scoring:
        """How the videos are scored; thresholds are for all of them."""
        published = self.published and not self.choose_thresholds
        return Scoring(self.mode, published, self.allow_mismatch, self.allow_seen, self.folds)


@dataclass(frozen=True)
class EvaluateResult:
    """What came of an evaluation."""

    document: dict[str, Any]
    """What `lstr evaluate --json` prints: metrics, or thresholds"""
    findings: Findings | None = None
    """None where thresholds were chosen"""
    page: Path | None = None
    """The report, if `output` was set"""
    takes_videos: bool = False
    """Whether the first checkpoint says how its features are made, so that it can detect on videos"""


Event = Progress | Notice | Finished[EvaluateResult]
# Folders of RGB and flow, by their names
Streams = tuple[str | None, str | None]


def evaluate(options: EvaluateOptions) -> Iterator[Event]:
    """Score checkpoints on labelled features, or choose their thresholds on them.

    Misfits of any checkpoint end the job before the first is scored. Raises MissingPathError, LabelsError,
    RecipeError, CheckpointError, ConfigError, SeenError, ConfigError, and OutputError where the report
    cannot be written.
    """
    if options.output:
        check_writable(Path(options.output))
    streams = (options.rgb, options.flow)
    groups = [(options.checkpoints, options.features), *options.beside]
    default = "validation" if options.choose_thresholds else None
    subset = subset_named(options.subset) if options.subset else default
    opened = [[open_checkpoint(path, options.model, options.device) for path in paths] for paths, _ in groups]
    sets = [_read(options, folders, some, streams) for (_, folders), some in zip(groups, opened, strict=True)]
    sets = [data.with_classes(opened[0][0].classes).with_durations() for data in sets]
    splits = yield from _same_videos([data.split(subset, options.skip_missing) for data in sets])
    names = names_of([Path(path).absolute() for paths, _ in groups for path in paths])
    if options.name and len(names) == 1:
        names = [options.name]
    pairs = [(loaded, split) for some, split in zip(opened, splits, strict=True) for loaded in some]
    entries = [(name, *pair) for name, pair in zip(names, pairs, strict=True)]
    warnings: list[str] = []
    for _, loaded, split in entries:
        warnings += check_fit(loaded, split, options.scoring)
        yield from map(Notice, [*training_warnings(loaded), *assumptions_of(loaded)])
    yield from sets[0].notices(splits[0])
    if options.choose_thresholds:
        yield from map(Notice, [*warnings, *[CHOSEN_ON_TESTING] * (subset == "testing")])
        document = yield from choose_stored_thresholds(entries, options.false_alarms)
        yield Finished(EvaluateResult(document, takes_videos=bool(opened[0][0].recipe)))
        return
    findings = yield from judge(entries, options.scoring, options.resamples, options.benchmark)
    scored = {(one.document["videos"], one.document["chunks"]) for one in findings.judged}
    warnings += [OTHER_CHUNKS] * (len(scored) > 1)
    warnings += [RANDOM] * any(one.document["random_weights"] for one in findings.judged)
    yield from map(Notice, warnings)
    findings = replace(findings, warnings=warnings)
    page = write_evaluation(Path(options.output), findings) if options.output else None
    yield Finished(EvaluateResult(findings.document, findings, page, bool(opened[0][0].recipe)))


def _read(
    options: EvaluateOptions, folders: Sequence[str | Path], loaded: Sequence[Checkpoint], streams: Streams
) -> Dataset:
    """Features and labels as checkpoints have learnt to read them. Raises RecipeError where two do so otherwise."""
    first = loaded[0]
    for other in loaded[1:]:
        if other.clock != first.clock:
            raise RecipeError(
                f"{first.path} and {other.path} have learnt from features of other rates.", "evaluate one by one."
            )
    skip, clock = options.skip_missing, first.clock
    return read_dataset(list(folders), options.labels, streams, options.dataset, skip_missing=skip, clock=clock)


def _same_videos(splits: Sequence[Split]) -> Generator[Notice, None, list[Split]]:
    """Each split with the videos that all have; says which are left out. Raises LabelsError where they share none."""
    ids = [{video.id for video in split.videos} for split in splits]
    shared = set.intersection(*ids)
    if not shared:
        folders = few([str(split.folder.path) for split in splits])
        raise LabelsError(
            f"No labelled video has features in each of {folders}.",
            "extract the same videos with each recipe, or evaluate one by one.",
        )
    if others := set.union(*ids) - shared:
        yield Notice(f"left out, for not all feature folders have them: {few(sorted(others))}")
    return [replace(split, videos=[video for video in split.videos if video.id in shared]) for split in splits]


def judge(
    entries: Sequence[tuple[str, Checkpoint, Split]],
    scoring: Scoring,
    resamples: int,
    benchmark: str | None = None,
) -> Generator[Progress, None, Findings]:
    """Every checkpoint's scores and what they show, and the checkpoints compared: a name, a checkpoint and the videos
    with its features each, the same videos for all."""
    judged, resampled = [], []
    for name, loaded, split in entries:
        for event in score_split(loaded, split, scoring):
            if isinstance(event, Finished):
                evaluation = event.result
            else:
                yield replace(event, what=name)
        resampled.append(resample(evaluation, resamples))
        judged.append(Judged(name, evaluation, analyse(evaluation, resampled[-1])))
    comparison = compare([one.name for one in judged], [one.document for one in judged], resampled)
    return Findings(judged, comparison, quoted_for(entries[0][1], benchmark))
