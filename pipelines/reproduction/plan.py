"""What a reproduction is going to do: which published row, by which settings, on which data, and what differs."""

import os
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lstr.config import WindowConfig
from lstr.errors import ConfigError
from lstr.kinds import KINDS
from lstr.labels.check import stop_at_errors
from lstr.labels.label_set import AMBIGUOUS
from lstr.metrics.scoring_rule import EVERY_CHUNK, LSTR_RULE, ScoringRule
from lstr.models.kind import Kind
from lstr.pipelines.datasets.dataset import Split, read_dataset, subset_of
from lstr.pipelines.datasets.published_sets import THUMOS, PublishedSet, published_set
from lstr.pipelines.progress import LabelFindings
from lstr.pipelines.reproduction.data_check import SYNTHETIC, Difference, differences
from lstr.pipelines.reproduction.options import ReproduceOptions
from lstr.pipelines.reproduction.pace import Pace
from lstr.pipelines.reproduction.rows import Row, rows_of
from lstr.pipelines.training.config import TrainConfig, changes_from, preset_named, resolve
from lstr.pipelines.training.sampling import count_steps

WITHOUT_PRESET = "thumos14"
"""The settings, LSTR's by its paper, of kinds that none were published of."""
NO_PART = ("train.seed", "train.save_seconds", "train.log_every", "train.accumulate", "train.deterministic")
"""Settings that leave the number as it is, but for chance."""
ALONE = "start it without torchrun; `lstr train --preset NAME` is what several processes can share."
STANDARD, PUBLISHED = "standard", "published"
LAST, BEST = "last epoch", "best epoch on the testing videos"
"""Which weights are scored: those of the end, and where the published code chose so, those of the best epoch."""


@dataclass(frozen=True)
class Plan:
    """All that can be said before the first step."""

    kind: str
    preset: str
    dataset: PublishedSet
    """The data set of the row, which the data at hand may not be"""
    rows: tuple[Row, ...]
    differs: tuple[str, ...]
    """What training here does otherwise than the published one"""
    data: tuple[Difference, ...]
    """What of the data is not as published"""
    model: WindowConfig
    train: TrainConfig
    """With the first seed"""
    changed: Mapping[str, object]
    """Settings that are not the preset's"""
    seeds: tuple[int, ...]
    steps: int
    """How many one seed has"""
    videos: Mapping[str, int]
    chunks: Mapping[str, int]
    protocols: tuple[str, ...]
    """The published one too where it scores other chunks than the standard one"""
    weights: tuple[str, ...]
    """LAST, or BEST and it"""
    pace: Pace | None = None
    """None before it is measured, and where nothing is left to do"""

    @property
    def publication(self) -> Any:
        """What is known of the kind in the literature."""
        return KINDS[self.kind].publication

    @property
    def scored(self) -> int:
        """Chunks that are scored of one seed, those of evaluations in between too."""
        return len(self.protocols) * len(self.weights) * self.chunks["testing"] + self.scored_between

    @property
    def scored_between(self) -> int:
        """Chunks that are scored of one seed in evaluations between epochs."""
        return self.train.epochs // self.train.eval_every * self.chunks["testing"] if self.train.eval_every else 0

    @property
    def all_steps(self) -> int:
        """Steps of one seed, those of teachers too."""
        return self.steps * (1 + (self.train.teacher_stages if self.train.teacher else 0))

    def seconds(self, seeds: int) -> float:
        """Seconds of so many seeds; 0 without a pace."""
        return seeds * self.pace.seconds(self.all_steps, self.scored) if self.pace else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
        publication = self.publication
        return {
            "kind": self.kind,
            "name": publication.name,
            "paper": publication.paper,
            "exact": publication.exact,
            "dataset": self.dataset.name,
            "preset": self.preset,
            "changed": dict(self.changed),
            "rows": [asdict(row) for row in self.rows],
            "differs": list(self.differs),
            "data": [asdict(one) for one in self.data],
            "videos": dict(self.videos),
            "chunks": dict(self.chunks),
            "protocols": list(self.protocols),
            "weights": list(self.weights),
            "model": asdict(self.model),
            "train": asdict(self.train),
            "seeds": list(self.seeds),
            "steps": self.steps,
            "seconds_a_seed": self.seconds(1) if self.pace else None,
            "measured": asdict(self.pace) if self.pace else None,
        }


@dataclass(frozen=True)
class Prepared:
    """A plan, and what it is carried out with."""

    plan: Plan
    training: Split
    testing: Split
    folder: Path


def prepare(options: ReproduceOptions) -> Generator[LabelFindings, None, Prepared]:
    """Read and check the data, and choose settings and row, without a pace.

    Raises ConfigError for a kind, a preset or a setting that cannot be, MissingPathError, LabelsError and RecipeError
    for data that cannot be used.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("A reproduction runs in one process.", ALONE)
    kind = _kind(options.kind)
    if options.preset:
        preset_named(options.preset)  # a wrong name is told before anything is read
    source = str(options.label_file())
    streams = options.rgb, options.flow
    data = read_dataset(
        list(options.features), source, streams, options.dataset, lenient=True, skip_missing=options.skip_missing
    ).with_durations()
    tested = subset_of(data.labels, None)
    findings = data.check(("training", tested), options.skip_missing)
    if findings:
        yield LabelFindings(source, findings)
    stop_at_errors(findings, source)
    training, testing = (data.split(subset, options.skip_missing) for subset in ("training", tested))
    found = published_set(data.labels)
    dataset = found or THUMOS
    preset = options.preset or _preset(kind, dataset)
    model, train, changed = _settings(options, kind, preset, training.dims)
    if "train.metric" not in changed:
        train = replace(train, metric=dataset.metric)
    if "train.eval_every" not in changed:
        train = replace(train, eval_every=kind.publication.tested_every)
    unlike = tuple(differences(found, dataset.name, training, testing, options.features))
    # one word says it all of synthetic data, whatever else is not as published
    reasons = [str(one) for one in unlike]
    reasons = [SYNTHETIC] if SYNTHETIC in reasons else reasons
    names, width = training.folder.names, sum(training.dims)
    settings = [f"{name}={value}" for name, value in changed.items()]
    rows = rows_of(kind.publication, dataset, preset, width, names, model.n_ahead, settings, reasons)
    plan = Plan(
        kind.name,
        preset,
        dataset,
        tuple(rows),
        kind.publication.differs,
        unlike,
        model,
        train,
        changed,
        tuple(train.seed + n for n in range(options.seeds)),
        count_steps(training.narrowed(model).videos, model, train),
        {"training": len(training.videos), "testing": len(testing.videos)},
        {"training": training.n_chunks, "testing": testing.n_chunks},
        protocols_of(rule_of_kind(kind, model), testing),
        (BEST, LAST) if train.eval_every else (LAST,),
    )
    return Prepared(plan, training, testing, Path(options.output or f"reproduce-{preset}"))


def _kind(name: str) -> Kind:
    if name not in list(KINDS):  # one that is put together of others cannot be trained
        raise ConfigError(f"There is no kind {name!r} to train.", f"Choose one of: {', '.join(KINDS)}.")
    return KINDS[name]


def _preset(kind: Kind, dataset: PublishedSet) -> str:
    """The settings of the kind's first number on a data set, else those that it was published with at all."""
    results = [one for one in kind.publication.results if one.of.startswith(dataset.name) and one.presets]
    return results[0].presets[0] if results else kind.published_preset or WITHOUT_PRESET


def _settings(
    options: ReproduceOptions, kind: Kind, preset: str, dims: tuple[int, int]
) -> tuple[WindowConfig, TrainConfig, dict[str, object]]:
    """Both configurations, and what of them is not the preset's and has a part in the number."""
    other = preset_named(preset)[0].kind
    changes = dict(options.settings)
    if other != kind.name:
        if kind.published_preset or preset != WITHOUT_PRESET:
            known = ", ".join(name for name, one in kind.presets.items() if not one.for_little_video) or WITHOUT_PRESET
            raise ConfigError(f"The preset {preset} is of kind {other}.", f"For {kind.name} choose one of: {known}.")
        changes["model.kind"] = kind.name
    if options.settings.get("model.kind", kind.name) != kind.name:
        raise ConfigError(
            f"model.kind is {options.settings['model.kind']!r}, and {kind.name} is to be reproduced.",
            "leave out model.kind, or name the kind in its place.",
        )
    model, train = resolve(preset, changes, dims)
    changed = changes_from(preset, model, train)
    return model, train, {name: value for name, value in changed.items() if name not in (*NO_PART, "model.kind")}


def rule_of_kind(kind: Kind, model: WindowConfig) -> ScoringRule:
    """Which chunks the published code of a kind scores, LSTR's where that is not known."""
    return (kind.model.scoring_rule or LSTR_RULE).of(model)


def protocols_of(rule: ScoringRule, testing: Split) -> tuple[str, ...]:
    """The protocols that score other chunks of the testing videos, or score them otherwise."""
    classes = testing.labels.classes
    kept = [rule.chosen(video.targets, classes) for video in testing.videos]
    alike = rule.ambiguous == EVERY_CHUNK.ambiguous or AMBIGUOUS not in classes
    if (alike and all(one.all() for one in kept)) or not any(one.any() for one in kept):
        return (STANDARD,)
    return PUBLISHED, STANDARD
