"""The job of `lstr learn`: train a model file on labelled videos, by a fixed plan.

The steps are: check and divide labels, cache frames, finetune the networks of the recipe, compute features, train and
average models, choose thresholds, measure the result, and pack everything. With folds, networks and models are trained
once on all videos, for the model file, and once without each fold, to score the fold's videos.
"""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from lstr.average import mean_of
from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import VideoError
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.stages import torch_threads
from lstr.files.atomic import sweep
from lstr.files.remote import Place, place
from lstr.labels.label_set import without_ambiguous
from lstr.metrics.actions import FOUND_IOU, sentence
from lstr.pipelines.evaluation.chosen_thresholds import choose_training_thresholds, choose_validated_thresholds
from lstr.pipelines.evaluation.evaluate import EvaluateOptions, evaluate
from lstr.pipelines.evaluation.scoring import means_of
from lstr.pipelines.evaluation.tables import figure_text
from lstr.pipelines.evaluation.thresholds import Scored
from lstr.pipelines.features.chunk_cache import find_cache
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.features.extract import extract
from lstr.pipelines.features.extraction import ExtractOptions, Outcome
from lstr.pipelines.features.extraction import Plan as ExtractPlan
from lstr.pipelines.features.recipes import StoredRecipe, choose_recipe, weights_for
from lstr.pipelines.learning import plan as steps
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION
from lstr.pipelines.learning.plan import LearnOptions, StepProgress, Workspace, describe_limitation, write_labels
from lstr.pipelines.learning.preparation import Learning, check_output, prepare
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.networks import streams_of_checkpoint
from lstr.pipelines.model_files.packing import checkpoint_of, write_average, write_model
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice, Progress
from lstr.pipelines.training.finetune import Filling, FinetuneOptions, VideoOptions, finetune
from lstr.pipelines.training.network_run import NetworkFiles
from lstr.pipelines.training.run import CONFIG, Step
from lstr.pipelines.training.train import TrainOptions, train
from lstr.pipelines.training.training_videos import recordings_of

# What poses must add to the mAP of the folds, because detection costs more than twice as much with them.
POSE_GAIN = 0.02
THRESHOLD_GROUPS = 10  # groups of videos; the thresholds of each group are chosen on the others
# Entries of an evaluation with times and paths of this machine. They are not stored in a model file, so that equal runs
# write equal files.
LOCAL_ENTRIES = ("seconds", "checkpoint", "warnings")


@dataclass(frozen=True)
class Learnt:
    """The result of a learning."""

    model: Path
    about: Mapping[str, Any]  # the content of model.json, with `metrics` and `split`
    report: Path | None  # None if its folder was deleted or belongs to another learning
    failed: Sequence[Failed] = ()  # videos that were skipped because they cannot be read

    def lines(self) -> list[str]:
        """Summarise the result in two sentences, with a third if too little video was measured for a rate."""
        metrics, split = self.about["metrics"], self.about["split"]
        prior, f1 = "", figure_text(metrics["events"]["together"]["iou"][str(FOUND_IOU)]["f1"], 2)
        if "time_prior" in metrics:
            prior = f"; a guess by time alone has {figure_text(metrics['time_prior']['mAP'], 2)}"
        return [
            sentence(metrics["events"]),
            f"{split[0].upper()}{split[1:]}; F1 {f1}, per-frame mAP {figure_text(metrics['lstr']['mAP'], 2)}{prior}",
            *filter(None, [describe_limitation(metrics["events"]["hours"])]),
        ]


Event = LabelFindings | Notice | Learning | StepProgress | Failed | Finished[Learnt]


def learn(options: LearnOptions) -> Generator[Event, None, None]:
    """Train a model file on labelled videos. The same options resume an earlier run, also with another time limit.

    Yields LabelFindings and Notices, Learning before the first long step, StepProgress, Failed for each unreadable
    video, and Finished. Close the generator to end all processes and threads; finished parts are kept.

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
        labels = learning.division.labels
        workspace.write_plan(learning.request, learning.task, learning.plan, labels, learning.is_resumed)
        sweep(workspace.path)
        learner = Learner(learning, options, started)
        with torch_threads(learning.plan.threads), closing(learner.run()) as events:
            checkpoint, about = yield from events
        written = write_model(model, checkpoint, workspace.weights, {**options.about, **about})
        yield Finished(Learnt(model, written.about, report, tuple(learner.failed.values())))


class Learner:
    """The execution of a plan; `failed` has the videos that were skipped."""

    def __init__(self, learning: Learning, options: LearnOptions, started: float):
        self.learning, self.options, self.started = learning, options, started
        self.workspace, self.plan, self.division = learning.workspace, learning.plan, learning.division
        self.failed: dict[str, Failed] = {**learning.failed}

    def run(self) -> Generator[StepProgress | Notice | Failed, None, tuple[Path, dict[str, Any]]]:
        """Run all steps except packing; return the checkpoint and the content of model.json."""
        yield from self.train_networks()
        yield from self.compute_features()
        training = [i for i in self.division.of(TRAINING) if i not in self.failed]
        if self.plan.folds:
            of_networks = open_weights(self.workspace.weights).folds
            folds = {i: fold for i, fold in of_networks.items() if i in training}
        else:  # train only models in folds, to choose thresholds, unless there are validation videos for it
            groups = [] if self.division.of(VALIDATION) else self.division.folds_of(training)
            folds = {i: at for at, ids in enumerate(groups, start=1) for i in ids}
        yield from self.train_models(folds)
        models, scores, tried = self.score_folds(folds)
        if ("pose",) in self.plan.models and len(tried) > 1:
            found = ", ".join(f"{one['model']} {figure_text(one['mAP'], 3)}" for one in tried)
            yield Notice(f"per-frame mAP in the folds: {found}; packed: {tried[-1]['model']}.", warning=False)
        files = [checkpoint_of(self.run_folder(0, streams)) for streams in models]
        checkpoint = files[0] if len(files) == 1 else write_average(self.workspace.models / "average.pt", files)
        return checkpoint, (yield from self.measure(checkpoint, folds, scores, tried))

    def train_networks(self) -> Generator[StepProgress | Failed, None, None]:
        """Cache frames and flow, and train the feature networks."""
        weights, folds, plan = self.workspace.weights, self.plan.folds, self.plan
        recipe, stream, algorithm = self.learning.features
        settings = {n: v for n, v in self.learning.settings.items() if n.rpartition(".")[2] not in ("epochs", "draws")}
        settings |= {f"{name}.epochs": str(n) for name, n in plan.epochs.items()} | {"draws": str(plan.draws)}
        seconds = None
        if plan.budget is not None:
            seconds = max(1.0, plan.budget - (perf_counter() - self.started))
        rounds = math.ceil((1 + folds) / plan.at_once)
        planned = {stream: plan.steps[steps.NETWORKS[stream]] / rounds for stream, n in plan.epochs.items() if n}
        shared = {field.name: getattr(self.options, field.name) for field in fields(VideoOptions)}
        shared |= {"labels": str(self.workspace.labels), "output": weights, "seconds": seconds}
        shared["videos"] = [*self.options.videos, *self.options.negatives]
        shared |= {"settings": settings, "algorithm": algorithm, "folds": folds or None, "at_once": plan.at_once}
        shared |= {"recipe": recipe, "stream": stream}
        options = FinetuneOptions(**shared, resume=(weights / CONFIG).is_file())
        later = sum(plan.since(steps.FEATURES))
        networks = [NetworkFiles(weights, name, fold or None) for name in plan.epochs for fold in range(1 + folds)]
        # count finished networks, so that a resumed run shows its true progress
        trained = {network.name: 1.0 for network in networks if network.is_finished()}
        total, done = 0, dict[str, int]()
        with closing(finetune(options, not folds, later, planned)) as events:
            for event in events:
                match event:
                    case Filling(chunks):
                        total = sum(chunks.values())
                        if chunks:
                            yield plan.progress(steps.CHUNKS)
                    case Progress(what, number, _) if total:
                        done[what] = number
                        yield plan.progress(steps.CHUNKS, sum(done.values()), total)
                    case Progress(what, number, of):
                        name = what.partition(" without fold ")[0]
                        trained[what] = number / of
                        shares = sum(share for network, share in trained.items() if network.split()[0] == name)
                        yield plan.progress(steps.NETWORKS[name], round(shares * of), (1 + folds) * of)
                    case Outcome(id=video_id, chunks=n_chunks):
                        done[video_id] = n_chunks
                    case Failed():
                        yield from self.skip(event)

    def compute_features(self) -> Generator[StepProgress | Notice | Failed, None, None]:
        """Compute features with networks that were not trained on a video, and the features that models are trained on.

        Without folds, both are the same.
        """
        yield self.plan.progress(steps.FEATURES)
        folds, videos = open_weights(self.workspace.weights).folds, self.learning.videos
        training = {i: folds.get(i) for i in self.division.of(TRAINING) if i not in self.failed}
        jobs: list[tuple[Path, Mapping[str, Place], int | None]] = [(self.workspace.features, videos, None)]
        if folds and any(self.plan.epochs.values()):
            for fold in (0, *sorted({*folds.values()})):
                seen = {i: videos[i] for i, own in training.items() if own != fold}
                jobs.append((self.workspace.seen_features(fold), seen, fold))
        recipe = choose_recipe(str(self.workspace.weights))
        assert isinstance(recipe, StoredRecipe)
        cache = find_cache(self.options.cache)
        weights, device = weights_for(recipe, {}), self.options.device
        for at, (folder, sources, without) in enumerate(jobs):
            options = ExtractOptions(place(str(folder)), weights, device, recipe=recipe, cache=cache, without=without)
            total, done = 0, dict[str, int]()
            with closing(extract(sources, options)) as events:
                for event in events:
                    match event:
                        case ExtractPlan():
                            total = event.to_dict()["chunks_to_do"]
                        case Progress(what, number, _):
                            done[what] = number
                            yield self.plan.progress(steps.FEATURES, at * total + sum(done.values()), len(jobs) * total)
                        case Failed():
                            yield from self.skip(event)

    def train_models(self, folds: Mapping[str, int]) -> Generator[StepProgress, None, None]:
        """Train the models on all videos, and without each fold."""
        labels, runs = self.division.labels, [0, *sorted({*folds.values()})]
        streams_of = open_weights(self.workspace.weights).recipe.streams
        total = len(runs) * len(self.plan.models)
        for at, (fold, streams) in enumerate((fold, streams) for fold in runs for streams in self.plan.models):
            run, labels_file = self.run_folder(fold, streams), self.workspace.labels
            if fold:
                labels_file = self.workspace.models / f"labels_without_{fold}.json"
                subsets = {i: VALIDATION if own == fold else TRAINING for i, own in folds.items()}
                videos = {i: replace(labels.videos[i], subset=subset) for i, subset in subsets.items()}
                write_labels(labels_file, replace(labels, videos=videos))
            seen = self.workspace.seen_features(fold)
            options = TrainOptions(
                run,
                features=[seen if seen.is_dir() else self.workspace.features],
                labels=labels_file,
                preset=self.plan.preset,
                settings=self.options.settings_of(streams, self.plan.preset),
                skip_missing=True,
                resume=(run / "resume.pt").exists(),
                device=self.options.device,
                streams=() if streams == streams_of else streams,
            )
            yield self.plan.progress(steps.MODEL, at, total)
            for event in train(options):
                if isinstance(event, Step):
                    yield self.plan.progress(steps.MODEL, at * event.steps + event.step, total * event.steps)

    def run_folder(self, fold: int, streams: Sequence[str]) -> Path:
        """Return the run folder of a model; fold 0 is the model of all videos."""
        return self.workspace.models / "+".join(streams) / (f"without_{fold}" if fold else "all")

    def measure(
        self, checkpoint: Path, folds: Mapping[str, int], scores: dict[str, Any], tried: list[dict[str, Any]]
    ) -> Generator[StepProgress | Notice, None, dict[str, Any]]:
        """Choose thresholds, write the report, and return the content of model.json.

        The testing videos are measured; without them, the videos of all folds. `scores` and `tried` are of
        `score_folds`.
        """
        yield self.plan.progress(steps.THRESHOLDS)
        loaded, false_alarms, labels = load(checkpoint), self.options.false_alarms, self.division.labels
        is_unseen = bool(self.plan.folds)
        if not is_unseen and self.division.of(VALIDATION):
            is_unseen = True
            split = read_split(self.workspace.features, self.workspace.labels, VALIDATION, skip_missing=True)
            split = split.narrowed(loaded.config, streams_of_checkpoint(loaded))
            scores = {video.id: predict(loaded.model, video.features[:]).numpy() for video in split.videos}
        scored = {i: Scored(own, labels.videos[i].segments) for i, own in scores.items()}
        if is_unseen:
            groups = self.division.folds_of([*scored], THRESHOLD_GROUPS) or [[*scored]]
            price = self.options.delay_price
            f1, without = yield from choose_validated_thresholds(scored, groups, loaded, false_alarms, price)
        else:
            without = {}
            f1 = yield from choose_training_thresholds([*scored.values()], loaded, false_alarms)
        yield self.plan.progress(steps.THRESHOLDS, 1, 1)
        about: dict[str, Any] = {
            "request": self.learning.request,
            "split": self.division.sentence,
            "data": self.workspace.describe_data(labels),
            "videos": {i: video.subset for i, video in sorted(labels.videos.items())},
        }
        measured: list[dict[str, Any]] = []
        if self.plan.folds:
            about |= {"tried": tried, "taken": tried[-1]["model"]} if tried else {}
            if not self.division.of(TESTING):
                about["folds"] = [sorted(i for i in scores if folds[i] == n) for n in sorted({*folds.values()})]
                measured = [{i: scores[i] for i in ids} for ids in about["folds"]]
        options = EvaluateOptions(
            [checkpoint],
            features=[self.workspace.features],
            labels=self.workspace.labels,
            subset=TRAINING if measured else TESTING,
            folds=measured,
            rules=without if measured else {},
            name=self.learning.model.stem,
            output=self.workspace.report,
            skip_missing=True,
            device=self.options.device,
        )
        document: dict[str, Any] = {}
        for event in evaluate(options):
            match event:
                case Progress(_, done, total):
                    yield self.plan.progress(steps.MEASURE, done, total)
                case Finished(result):
                    document = result.document
        about["metrics"] = {name: value for name, value in document.items() if name not in LOCAL_ENTRIES}
        about["metrics"]["thresholds_f1"] = f1
        yield self.plan.progress(steps.PACK)
        return about

    def score_folds(
        self, folds: Mapping[str, int]
    ) -> tuple[Sequence[Sequence[str]], dict[str, Any], list[dict[str, Any]]]:
        """Choose the models to average; the one of poses only if it raises the mAP of the folds by POSE_GAIN.

        Return their streams, scores (L, C) of the videos of all folds by models trained without them, and the mAP of
        each model and of the averages, the chosen one last.
        """
        models = self.plan.models
        if not folds:
            return models, {}, []
        split = read_split(self.workspace.features, self.workspace.labels, TRAINING, skip_missing=True)
        videos = [video for video in split.videos if video.id in folds]
        by_model: dict[str, dict[str, Any]] = {}
        for streams in models:
            rows = by_model["+".join(streams)] = {}
            for fold in sorted({*folds.values()}):
                loaded = load(checkpoint_of(self.run_folder(fold, streams)))
                held = replace(split, videos=[video for video in videos if folds[video.id] == fold])
                for video in held.narrowed(loaded.config, streams_of_checkpoint(loaded)).videos:
                    rows[video.id] = predict(loaded.model, video.features[:]).numpy()
        poses, choices = ("pose",), {"average": models} if len(models) > 1 else {}
        if choices and poses in models:
            images = tuple(streams for streams in models if streams != poses)
            choices |= {"average without poses": images, "pose": (poses,)}
        for name, members in choices.items():
            own = [by_model["+".join(streams)] for streams in members]
            by_model[name] = {v.id: mean_of([rows[v.id] for rows in own]) for v in videos}
        targets, classes = [video.targets for video in videos], split.labels.classes
        unknown = len(classes) - len(without_ambiguous(classes))  # a last column without scores
        mAP: dict[str, float] = {}
        for name, rows in by_model.items():
            scores = [np.pad(rows[v.id], ((0, 0), (0, unknown))) for v in videos]
            mAP[name] = float(np.nan_to_num(means_of(scores, targets, classes)["mAP"]))
        chosen = max(choices or mAP, key=lambda name: mAP[name] - POSE_GAIN * (poses in choices.get(name, ())))
        in_order = sorted(mAP, key=lambda name: name == chosen)  # the chosen one last
        tried = [{"model": name, "mAP": mAP[name]} for name in in_order]
        return choices.get(chosen, models), {video.id: by_model[chosen][video.id] for video in videos}, tried

    def skip(self, event: Failed) -> Iterator[Failed]:
        """Continue without a video. Raises VideoError if too few recordings remain for the folds."""
        if event.id in self.failed:
            return
        self.failed[event.id] = event
        yield event
        training = [i for i in self.division.of(TRAINING) if i not in self.failed]
        left = {*recordings_of(training, self.division.contents).values()}
        if len(left) < self.plan.folds:
            raise VideoError(
                f"Cross-validation with {self.plan.folds} folds needs {self.plan.folds} readable recordings, but only "
                f"{len(left)} could be read.",
                "remove the files that cannot be read, or copy them again; then start a new plan.",
            )
