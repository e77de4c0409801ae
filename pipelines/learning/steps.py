"""The steps of a learning, in their order."""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from lstr.average import mean_of
from lstr.batch import predict
from lstr.checkpoint import load
from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import CacheError, VideoError
from lstr.extractors.networks.weights_folder import open_weights
from lstr.files.remote import Place, place
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.video_ids import recording_of
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.evaluation.chosen_thresholds import Chosen, choose_seen_thresholds, choose_unseen_thresholds
from lstr.pipelines.evaluation.job import EvaluateOptions, evaluate
from lstr.pipelines.evaluation.scoring import Fold, means_of
from lstr.pipelines.evaluation.thresholds import Scored
from lstr.pipelines.features.chunk_cache import find_cache
from lstr.pipelines.features.dataset import LabelledVideo, read_split
from lstr.pipelines.features.extract import extract
from lstr.pipelines.features.extraction import ExtractOptions, Outcome
from lstr.pipelines.features.extraction_plan import Plan as ExtractPlan
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.recipes import StoredRecipe, choose_recipe, weights_for
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION, folds_of
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.learning.plan import (
    CHUNKS,
    FEATURES,
    MEASURE,
    MODEL,
    NETWORKS,
    PACK,
    THRESHOLDS,
    TIME_MARGIN,
    StepProgress,
)
from lstr.pipelines.learning.preparation import Learning
from lstr.pipelines.learning.workspace import write_labels
from lstr.pipelines.model_files.averaging import write_average
from lstr.pipelines.model_files.networks import streams_taken
from lstr.pipelines.model_files.packing import checkpoint_of
from lstr.pipelines.progress import Failed, Finished, Notice, Progress
from lstr.pipelines.training.finetune import Filled, Filling, FinetuneOptions, VideoOptions, finetune
from lstr.pipelines.training.networks import NetworkFiles
from lstr.pipelines.training.run_folder import CONFIG, Step
from lstr.pipelines.training.train import TrainOptions, train

THRESHOLD_GROUPS = 10  # of videos; the thresholds of each group are chosen on the others
# Entries of an evaluation with times and paths of this machine, which a model file leaves out so that the same
# learning writes the same file.
LOCAL_ENTRIES = ("seconds", "checkpoint", "warnings")


class Learner:
    """Runs the steps of a plan; `failed` has the videos that were skipped."""

    def __init__(self, learning: Learning, options: LearnOptions, started: float):
        self.learning, self.options, self.started = learning, options, started
        self.workspace, self.plan, self.division = learning.workspace, learning.plan, learning.division
        self.failed: dict[str, Failed] = {**learning.failed}

    def run(self) -> Generator[StepProgress | Notice | Failed, None, tuple[Path, dict[str, Any]]]:
        """Run all steps but packing; return the checkpoint and what the model file says about itself."""
        try:
            yield from self.train_networks()
        except CacheError as error:  # its hint names an option of `lstr finetune`
            raise CacheError(str(error), "learn again with the same options, which makes it again.") from error
        yield from self.compute_features()
        folds = self._model_folds()
        yield from self.train_models(folds)
        yield self.plan.progress(THRESHOLDS)
        checkpoint = self._average(0)
        loaded = load(checkpoint)
        videos, scores, tried = self._score(folds)
        held_out = {video.id: Scored(scores[video.id], self._segments(video.id)) for video in videos}
        if self.plan.folds:
            chosen = yield from self._choose_unseen(held_out, loaded)
        elif folds or not self.division.of(VALIDATION):
            chosen = yield from choose_seen_thresholds([*held_out.values()], loaded, self.options.false_alarms)
        else:
            split = read_split(self.workspace.features, self.workspace.labels, VALIDATION, skip_missing=True)
            split = split.narrowed(loaded.config, streams_taken(loaded))
            rows = {video.id: predict(loaded.model, video.features[:]).numpy() for video in split.videos}
            validation = {i: Scored(own, self._segments(i)) for i, own in rows.items()}
            chosen = yield from self._choose_unseen(validation, loaded)
        yield self.plan.progress(THRESHOLDS, 1, 1)
        about: dict[str, Any] = {
            "request": self.learning.stored.request,
            "split": self.division.sentence,
            "data": self._describe_data(),
            "videos": {i: video.subset for i, video in sorted(self.division.labels.videos.items())},
        }
        scored_folds: list[Fold] = []
        if self.plan.folds:
            about |= tried
            if not self.division.of(TESTING):
                numbers = sorted({*folds.values()})
                by_fold = [sorted(v.id for v in videos if folds[v.id] == fold) for fold in numbers]
                about["folds"] = by_fold
                scored_folds = [
                    Fold({i: scores[i] for i in ids}, {i: chosen.without[i] for i in ids if i in chosen.without})
                    for ids in by_fold
                ]
        document = yield from self.measure(checkpoint, scored_folds)
        about["metrics"] = {name: value for name, value in document.items() if name not in LOCAL_ENTRIES}
        about["metrics"]["thresholds_f1"] = chosen.f1
        yield self.plan.progress(PACK)
        return checkpoint, about

    def train_networks(self) -> Generator[StepProgress | Failed, None, None]:
        """Cache frames and flow, and train the feature networks."""
        weights, folds = self.workspace.weights, self.plan.folds
        recipe, stream, algorithm = self.learning.features
        settings = {
            name: value
            for name, value in self.learning.settings.items()
            if name.rpartition(".")[2] not in ("epochs", "draws")
        }
        settings |= {f"{name}.epochs": str(n) for name, n in self.plan.epochs.items()}
        seconds = None
        if self.plan.budget is not None:
            later = sum(step.seconds for step in self.plan.since(FEATURES))
            seconds = self.plan.budget - (perf_counter() - self.started) - TIME_MARGIN * later
        shared = {field.name: getattr(self.options, field.name) for field in fields(VideoOptions)}
        shared |= {"labels": str(self.workspace.labels), "output": weights, "seed": None, "seconds": seconds}
        shared |= {"settings": {**settings, "draws": str(self.plan.draws)}}
        options = FinetuneOptions(
            **shared,
            resume=(weights / CONFIG).is_file(),
            recipe=recipe,
            stream=stream,
            algorithm=algorithm,
            folds=folds or None,
            align=False,  # models see the features of one network of each stream
            spare=not folds,
            at_once=self.plan.at_once,
        )
        networks = [NetworkFiles(weights, name, fold or None) for name in self.plan.epochs for fold in range(1 + folds)]
        trained = {network.name: 1.0 for network in networks if network.is_finished()}
        total, done = 0, dict[str, int]()
        with closing(finetune(options)) as events:
            for event in events:
                match event:
                    case Filling(chunks):
                        total = sum(chunks.values())
                        yield self.plan.progress(CHUNKS)
                    case Filled():
                        total = 0
                    case Progress(what, number, _) if total:
                        done[what] = number
                        yield self.plan.progress(CHUNKS, sum(done.values()), total)
                    case Progress(what, number, of):
                        name = what.partition(" without fold ")[0]
                        trained[what] = number / of
                        shares = sum(share for network, share in trained.items() if network.split()[0] == name)
                        yield self.plan.progress(NETWORKS[name], round(shares * of), (1 + folds) * of)
                    case Outcome(id=video_id, chunks=n_chunks):
                        done[video_id] = n_chunks
                    case Failed():
                        yield from self._skip(event)

    def compute_features(self) -> Generator[StepProgress | Notice | Failed, None, None]:
        """Compute features by networks that have not learnt from a video, and by those that models are trained on.

        Without folds, both are the same.
        """
        yield self.plan.progress(FEATURES)
        folds = open_weights(self.workspace.weights).folds
        networks = [0, *sorted({*folds.values()})] if folds and any(self.plan.epochs.values()) else []
        of = 1 + len(networks)
        yield from self._extract(self.workspace.features, self.learning.videos, None, (0, of))
        training = {i: folds.get(i) for i in self.division.of(TRAINING) if i not in self.failed}
        for at, fold in enumerate(networks, start=1):
            seen = {i: self.learning.videos[i] for i, own in training.items() if own != fold}
            yield from self._extract(self.workspace.seen_features(fold), seen, fold, (at, of))

    def _extract(
        self, folder: Path, videos: Mapping[str, Place], without: int | None, share: tuple[int, int]
    ) -> Generator[StepProgress | Notice | Failed, None, None]:
        recipe = choose_recipe(str(self.workspace.weights))
        assert isinstance(recipe, StoredRecipe)
        cache = find_cache(str(self.options.cache) if self.options.cache else None)
        output, weights, device = place(str(folder)), weights_for(recipe, {}), self.options.device
        options = ExtractOptions(output, weights, device, recipe=recipe, cache=cache, without=without)
        total, done = 0, dict[str, int]()
        with closing(extract(videos, options)) as events:
            for event in events:
                match event:
                    case ExtractPlan():
                        total = event.chunks
                    case Progress(what, number, _):
                        done[what] = number
                        at, of = share
                        yield self.plan.progress(FEATURES, at * total + sum(done.values()), of * total)
                    case Failed():
                        yield from self._skip(event)

    def _model_folds(self) -> dict[str, int]:
        """Return the fold of each training video that models are trained without, from 1.

        They are those of the networks. Without them, models alone are trained in folds, to choose thresholds, unless
        validation videos do.
        """
        training = [i for i in self.division.of(TRAINING) if i not in self.failed]
        if self.plan.folds:
            return {i: fold for i, fold in open_weights(self.workspace.weights).folds.items() if i in training}
        if self.division.of(VALIDATION):
            return {}
        return {i: at for at, ids in enumerate(folds_of(training), start=1) for i in ids}

    def train_models(self, folds: Mapping[str, int]) -> Generator[StepProgress, None, None]:
        """Train the models on all videos, and without each fold."""
        labels, runs = self.division.labels, [0, *sorted({*folds.values()})]
        streams_of = open_weights(self.workspace.weights).streams
        total = len(runs) * len(self.plan.models)
        for at, (fold, streams) in enumerate((fold, streams) for fold in runs for streams in self.plan.models):
            run, labels_file = self._run(fold, streams), self.workspace.labels
            if fold:
                labels_file = self.workspace.models / f"labels_without_{fold}.json"
                subsets = {i: VALIDATION if own == fold else TRAINING for i, own in folds.items()}
                videos = {i: replace(labels.videos[i], subset=subset) for i, subset in subsets.items()}
                write_labels(labels_file, replace(labels, videos=videos))
            seen = self.workspace.seen_features(fold)
            options = TrainOptions(
                [seen if seen.is_dir() else self.workspace.features],
                labels_file,
                run,
                preset=self.plan.preset,
                settings=self.options.model_settings,
                skip_missing=True,
                resume=(run / "resume.pt").exists(),
                device=self.options.device,
                streams=() if streams == tuple(streams_of) else streams,
            )
            yield self.plan.progress(MODEL, at, total)
            for event in train(options):
                if isinstance(event, Step):
                    yield self.plan.progress(MODEL, at * event.steps + event.step, total * event.steps)

    def _run(self, fold: int, streams: Sequence[str]) -> Path:
        """Return the run folder of a model; fold 0 is the model of all videos."""
        return self.workspace.models / "+".join(streams) / (f"without_{fold}" if fold else "all")

    def _average(self, fold: int) -> Path:
        """Return the checkpoint of the model, or of the average of several."""
        files = [checkpoint_of(self._run(fold, streams)) for streams in self.plan.models]
        return files[0] if len(files) == 1 else write_average(self.workspace.models / "average.pt", files)

    def _score(self, folds: Mapping[str, int]) -> tuple[list[LabelledVideo], dict[str, Any], dict[str, Any]]:
        """Return the videos of all folds, their scores (L, C) by models that lack them, and the mAP of each model."""
        if not folds:
            return [], {}, {}
        split = read_split(self.workspace.features, self.workspace.labels, TRAINING, skip_missing=True)
        videos = [video for video in split.videos if video.id in folds]
        by_model: dict[str, dict[str, Any]] = {}
        for streams in self.plan.models:
            rows = by_model["+".join(streams)] = {}
            for fold in sorted({*folds.values()}):
                loaded = load(checkpoint_of(self._run(fold, streams)))
                held = replace(split, videos=[video for video in videos if folds[video.id] == fold])
                for video in held.narrowed(loaded.config, streams_taken(loaded)).videos:
                    rows[video.id] = predict(loaded.model, video.features[:]).numpy()
        scores = next(iter(by_model.values()))
        if len(by_model) > 1:
            scores = {video.id: mean_of([rows[video.id] for rows in by_model.values()]) for video in videos}
            by_model["average"] = scores
        targets = [video.targets for video in videos]
        mAP = {
            name: means_of([rows[video.id] for video in videos], targets, self.division.labels.classes)["mAP"]
            for name, rows in by_model.items()
        }
        tried = [{"model": name, "mAP": value if value == value else 0.0} for name, value in mAP.items()]
        return videos, scores, {"tried": tried, "taken": tried[-1]["model"]}

    def measure(self, checkpoint: Path, folds: Sequence[Fold]) -> Generator[StepProgress, None, dict[str, Any]]:
        """Write the report and return the metrics, of the testing videos or of the videos of all folds."""
        options = EvaluateOptions(
            [checkpoint],
            [self.workspace.features],
            self.workspace.labels,
            subset=TRAINING if folds else TESTING,
            folds=folds,
            name=self.learning.model.stem,
            output=self.workspace.report,
            skip_missing=True,
            device=self.options.device,
        )
        document: dict[str, Any] = {}
        for event in evaluate(options):
            match event:
                case Progress(_, done, total):
                    yield self.plan.progress(MEASURE, done, total)
                case Finished(result):
                    document = result.document
        return document

    def _choose_unseen(self, scored: Mapping[str, Scored], loaded: Checkpoint) -> Generator[Notice, None, Chosen]:
        groups = folds_of([*scored], THRESHOLD_GROUPS) or [[*scored]]
        return (yield from choose_unseen_thresholds(scored, groups, loaded, self.options.false_alarms))

    def _segments(self, video_id: str) -> Sequence[Any]:
        return self.division.labels.videos[video_id].segments

    def _skip(self, event: Failed) -> Iterator[Failed]:
        """Continue without a video. Raises VideoError if too few recordings are left for the folds."""
        if event.id in self.failed:
            return
        self.failed[event.id] = event
        yield event
        left = {recording_of(i) for i in self.division.of(TRAINING) if i not in self.failed}
        if len(left) < self.plan.folds:
            raise VideoError(
                f"Cross-validation with {self.plan.folds} folds needs as many readable recordings, but only "
                f"{len(left)} could be read.",
                "leave out what cannot be read, or copy it again, then learn again with a new plan.",
            )

    def _describe_data(self) -> dict[str, Any]:
        """Return videos, seconds and labelled actions by subset, and the names of the files without their folders.

        A video counts as long as its features are, and not at all if it has none.
        """
        labels, subsets = self.division.labels, dict[str, dict[str, Any]]()
        lengths = open_features(self.workspace.features).lengths()
        lengths = {i: length for i, length in lengths.items() if i in labels.videos}
        for video_id, chunks in lengths.items():
            video = labels.videos[video_id]
            about = subsets.setdefault(video.subset, {"videos": 0, "seconds": 0.0, "labels": Counter()})
            about["videos"] += 1
            about["seconds"] += chunks / FEATURES_PER_SECOND
            about["labels"].update(s.label for s in video.segments if s.label not in (BACKGROUND, AMBIGUOUS))
        return {"subsets": subsets, "files": sorted(self.learning.videos[video_id].name for video_id in lengths)}
