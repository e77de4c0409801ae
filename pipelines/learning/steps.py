"""The steps of learning, each by its job, with the progress of all in one."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from lstr.batch import predict
from lstr.checkpoints.checkpoint import Checkpoint, load
from lstr.errors import CacheError, VideoError
from lstr.files.remote import Place, place
from lstr.labels.recordings import recording_of
from lstr.pipelines.evaluation.job import EvaluateOptions, evaluate
from lstr.pipelines.evaluation.scoring import Fold
from lstr.pipelines.extraction.chunk_cache import find_cache
from lstr.pipelines.extraction.job import extract
from lstr.pipelines.extraction.options import ExtractOptions
from lstr.pipelines.extraction.plan import Plan as ExtractPlan
from lstr.pipelines.extraction.resume import Outcome
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.learning.crossing import Crossing
from lstr.pipelines.learning.deciding import Decided, decide_seen, decide_unseen
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.learning.parts import TESTING, TRAINING, VALIDATION, folds_of
from lstr.pipelines.learning.plan import (
    CHUNKS,
    FEATURES,
    MEASURE,
    MODEL,
    NETWORKS,
    PACK,
    SLOWER,
    THRESHOLDS,
    Compared,
    Doing,
)
from lstr.pipelines.learning.preparation import Learning
from lstr.pipelines.learning.ways import Candidate, candidates_of
from lstr.pipelines.learning.workspace import write_labels
from lstr.pipelines.model_files.parts import checkpoint_of
from lstr.pipelines.networks.checkpoint_recipe import streams_taken
from lstr.pipelines.networks.recipes import StoredRecipe, choose_recipe, weights_for
from lstr.pipelines.progress import Failed, Finished, Notice, Progress
from lstr.pipelines.thresholds.by_actions import Scored
from lstr.pipelines.training.finetune import Filled, Filling, FinetuneOptions, VideoOptions, finetune
from lstr.pipelines.training.networks import NetworkFiles
from lstr.pipelines.training.run_folder import CONFIG, Step
from lstr.pipelines.training.train import TrainOptions, train
from lstr.pipelines.weights.folder import WeightsFolder, open_weights

Event = Doing | Notice | Failed | Compared


@dataclass(frozen=True)
class Made:
    """The model that is to be packed, and how good it is."""

    checkpoint: Path
    document: dict[str, Any]
    """What `evaluate` found"""
    compared: Mapping[str, Any] = field(default_factory=dict)
    """What was tried, and what of it was taken; empty where nothing was"""
    folds: Sequence[Sequence[str]] = ()
    """The videos of each fold, which were scored by what lacked them; empty where others were held out"""


class Steps:
    """A learning on its way. `failed` are the videos that were left out."""

    def __init__(self, planned: Learning, options: LearnOptions, started: float):
        self.planned, self.options, self.started = planned, options, started
        self.workspace, self.plan = planned.workspace, planned.plan
        self.failed: dict[str, Failed] = {**planned.failed}

    def run(self) -> Generator[Event, None, Made]:
        """All steps but the last."""
        try:
            yield from self.train_networks()
        except CacheError as error:  # `finetune` names an option of its own
            raise CacheError(str(error), "learn again by the same options, which makes it again.") from error
        yield from self.compute_features()
        if self.plan.folds:
            made = yield from self.cross()
        else:
            yield from self.train_model(self.workspace.labels, self.workspace.run, MODEL)
            checkpoint = checkpoint_of(self.workspace.run)
            decided = yield from self.choose_thresholds(checkpoint)
            document = yield from self.measure(decided, checkpoint, TESTING)
            made = Made(checkpoint, document)
        yield self.plan.doing(PACK)
        return made

    def cross(self) -> Generator[Event, None, Made]:
        """Models of all folds and of all videos; thresholds and metrics by those that lack each video."""
        trained = open_weights(self.workspace.weights)
        parts, folds, candidates = self.planned.parts, trained.folds, self._tried(trained)
        learnt = {i: folds.get(i, 0) for i in parts.of(TRAINING) if i not in self.failed}

        crossing = Crossing(self.workspace, parts.labels, learnt, candidates, self.train_model, self.plan.twice)
        crossed = yield from crossing.run()
        yield self.plan.doing(THRESHOLDS)
        yield crossed.compared
        loaded = load(crossed.packed)
        rows = {video_id: scores for fold in crossed.folds for video_id, scores in fold.scores.items()}
        scored = {i: Scored(rows[i], parts.labels.videos[i].segments) for i in learnt if i in rows}
        decided = yield from decide_unseen(scored, loaded, self.options)
        rules = decided.without
        yield self.plan.doing(THRESHOLDS, 1, 1)
        measured = [replace(fold, rules={i: rules[i] for i in fold.scores if i in rules}) for fold in crossed.folds]
        held_out = (TESTING,) if parts.of(TESTING) else (TRAINING, measured)
        document = yield from self.measure(decided, crossed.packed, *held_out)
        lacked = [] if parts.of(TESTING) else [sorted(fold.scores) for fold in crossed.folds]
        return Made(crossed.packed, document, crossed.compared.to_dict(), lacked)

    def _tried(self, trained: WeightsFolder) -> tuple[Candidate, ...]:
        """The models that the plan compares, on the features of these networks."""
        unseen = self.plan.measured == self.plan.folds
        streams = trained.streams, self._trained_streams
        able = candidates_of(self.options.of_model, self.plan.chunks[TRAINING], *streams, unseen)
        return tuple(one for one in able if one.name in self.plan.candidates)

    @property
    def _trained_streams(self) -> list[str]:
        """The streams whose networks learn from the videos; those of others stay as they begin."""
        return [stream for stream, epochs in self.plan.epochs.items() if epochs]

    def train_networks(self) -> Generator[Event, None, None]:
        """Chunks into the cache, and the feature networks."""
        planned, weights = self.planned, self.workspace.weights
        recipe, stream, algorithm = planned.features
        epochs = {f"{name}.epochs": str(n) for name, n in self.plan.epochs.items()}
        others = {n: v for n, v in planned.settings.items() if n.rpartition(".")[2] not in ("epochs", "draws")}
        shared = {field.name: getattr(self.options, field.name) for field in fields(VideoOptions)}
        shared |= {"labels": str(self.workspace.labels), "output": weights, "seed": None}
        shared |= {"settings": {**others, **epochs, "draws": str(self.plan.draws)}}
        shared |= {"seconds": self._seconds_of_networks(), "resume": (weights / CONFIG).is_file()}
        folds, pairs = self.plan.folds, self.plan.measured
        options = FinetuneOptions(
            **shared,
            recipe=recipe,
            stream=stream,
            algorithm=algorithm,
            folds=folds or None,
            fold_pairs=pairs or None,
            spare=not folds,
            at_once=self.plan.at_once,
        )
        networks = [NetworkFiles(weights, name, fold or None) for name in self.plan.epochs for fold in range(1 + pairs)]
        trained = {network.name: 1.0 for network in networks if network.is_finished()}
        total, done = 0, dict[str, int]()
        with closing(finetune(options)) as events:
            for event in events:
                match event:
                    case Filling(chunks):
                        total = sum(chunks.values())
                        yield self.plan.doing(CHUNKS)
                    case Filled():
                        total = 0
                    case Progress(what, number, _) if total:
                        done[what] = number
                        yield self.plan.doing(CHUNKS, sum(done.values()), total)
                    case Progress(what, number, of):
                        name = what.partition(" without fold ")[0]
                        trained[what] = number / of
                        shares = sum(share for network, share in trained.items() if network.split()[0] == name)
                        yield self.plan.doing(NETWORKS[name], round(shares * of), (1 + pairs) * of)
                    case Outcome(id=video_id, chunks=n_chunks):
                        done[video_id] = n_chunks
                    case Failed():
                        yield from self._fail(event)

    def _seconds_of_networks(self) -> float | None:
        """How long chunks and networks may take, so that all is done in time; None without a bound."""
        if self.plan.budget is None:
            return None
        later = sum(step.seconds for step in self.plan.since(FEATURES))
        return self.plan.budget - (perf_counter() - self.started) - SLOWER * later

    def _fail(self, event: Failed) -> Iterator[Failed]:
        """Go on without a video. Raises VideoError where too few recordings are left for the folds."""
        if event.id in self.failed:
            return
        self.failed[event.id] = event
        yield event
        left = {recording_of(i) for i in self.planned.parts.of(TRAINING) if i not in self.failed}
        if len(left) < self.plan.folds:
            raise VideoError(
                f"The {self.plan.folds} folds that were planned need as many recordings, and {len(left)} can be read.",
                "leave out what cannot be read, or copy it anew, then learn again: that is planned anew.",
            )

    def compute_features(self) -> Generator[Event, None, None]:
        """Compute the features of all videos by the trained networks, those in the cache without their flow.

        With folds those of training videos are of networks that lack them, and once more of each network that has
        learnt from them.
        """
        yield self.plan.doing(FEATURES)
        trained = open_weights(self.workspace.weights)
        needed = self.plan.folds and any(one.seen for one in self._tried(trained))
        folds = trained.folds if needed else {}
        seen_by = (0, *sorted(set(folds.values()))) if folds else ()
        share = 1 + len(seen_by)
        yield from self._extract(self.workspace.features, self.planned.videos, None, (0, share))
        learnt = {i: folds.get(i) for i in self.planned.parts.of(TRAINING) if i not in self.failed}
        for at, without in enumerate(seen_by, 1):
            seen = {i: self.planned.videos[i] for i, fold in learnt.items() if fold != without}
            yield from self._extract(self.workspace.seen_features(without), seen, without, (at, share))

    def _extract(
        self, folder: Path, videos: Mapping[str, Place], without: int | None, share: tuple[int, int]
    ) -> Generator[Event, None, None]:
        """A feature folder; its progress is a share (at, of) of the step."""
        chosen = choose_recipe(str(self.workspace.weights))
        if without is not None and isinstance(chosen, StoredRecipe):  # the others are the same with and without a fold
            chosen = replace(chosen, recipe=chosen.recipe.narrowed(self._trained_streams))
        cache = find_cache(str(self.options.cache) if self.options.cache else None)
        weights = weights_for(chosen, {})
        output, device = place(str(folder)), self.options.device
        options = ExtractOptions(output, weights, device, recipe=chosen, cache=cache, without=without)
        total, done = 0, dict[str, int]()
        with closing(extract(videos, options)) as events:
            for event in events:
                match event:
                    case ExtractPlan():
                        total = event.chunks
                    case Progress(what, number, _):
                        done[what] = number
                        yield self.plan.doing(FEATURES, share[0] * total + sum(done.values()), share[1] * total)
                    case Failed():
                        yield from self._fail(event)

    def train_model(
        self,
        labels: Path,
        run: Path,
        step: str,
        share: tuple[int, int] = (0, 1),
        features: Path | None = None,
        candidate: Candidate | None = None,
    ) -> Generator[Doing, None, None]:
        """The model that sees the features; its progress is a share (at, of) of a step."""
        settings = self.options.of_model
        if candidate and candidate.again:
            settings["train.seed"] = str(int(settings.get("train.seed", 0)) + candidate.again)
        options = TrainOptions(
            [features or self.workspace.features],
            labels,
            run,
            preset=candidate.preset if candidate else None,
            settings=settings,
            skip_missing=True,
            resume=(run / "resume.pt").exists(),
            device=self.options.device,
            streams=candidate.streams if candidate else (),
        )
        at, of = share
        yield self.plan.doing(step, at, of)
        for event in train(options):
            if isinstance(event, Step):
                yield self.plan.doing(step, at * event.steps + event.step, of * event.steps)

    def choose_thresholds(self, checkpoint: Path) -> Generator[Event, None, Decided]:
        """One rule, by the validation videos, else by models that have not seen the videos they are tried on."""
        loaded = load(checkpoint)
        if not self.planned.parts.of(VALIDATION):
            scored = yield from self._scored_by_folds(loaded)
            return (yield from decide_seen(scored, loaded, self.options))
        validation = self._scored(loaded, self.workspace.labels, VALIDATION)
        yield self.plan.doing(THRESHOLDS, 1, 1)
        return (yield from decide_unseen(validation, loaded, self.options))

    def _scored_by_folds(self, loaded: Checkpoint) -> Generator[Event, None, list[Scored]]:
        training = [i for i in self.planned.parts.of(TRAINING) if i not in self.failed]
        folds = folds_of(training)
        scored: list[Scored] = []
        for at, fold in enumerate(folds):
            folder, labels = self.workspace.fold(at + 1), self.planned.parts.labels
            subsets = {i: VALIDATION if i in fold else TRAINING for i in training}
            videos = {i: replace(labels.videos[i], subset=subset) for i, subset in subsets.items()}
            write_labels(folder / "labels.json", replace(labels, videos=videos))
            yield from self.train_model(folder / "labels.json", folder / "run", THRESHOLDS, (at, len(folds)))
            of_fold = self._scored(load(folder / "run" / "checkpoint.pt"), folder / "labels.json", VALIDATION)
            scored += of_fold.values()
        return scored

    def _scored(self, loaded: Checkpoint, labels: Path, subset: str) -> dict[str, Scored]:
        split = read_split(self.workspace.features, labels, subset, skip_missing=True)
        split = split.narrowed(loaded.config, streams_taken(loaded))
        segments = {video.id: split.labels.videos[video.id].segments for video in split.videos}
        return {
            video.id: Scored(predict(loaded.model, video.features[:]).numpy(), segments[video.id])
            for video in split.videos
        }

    def measure(
        self, decided: Decided, checkpoint: Path, subset: str, folds: Sequence[Fold] = ()
    ) -> Generator[Event, None, dict[str, Any]]:
        """Metrics and the report of the held-out videos, or of all by folds."""
        options = EvaluateOptions(
            [checkpoint],
            [self.workspace.features],
            self.workspace.labels,
            subset=subset,
            folds=folds,
            name=self.planned.model.stem,
            output=self.workspace.report,
            skip_missing=True,
            device=self.options.device,
        )
        document: dict[str, Any] = {}
        for event in evaluate(options):
            match event:
                case Progress(_, done, total):
                    yield self.plan.doing(MEASURE, done, total)
                case Finished(result):
                    document = result.document
        return document | {"thresholds_f1": decided.f1}
