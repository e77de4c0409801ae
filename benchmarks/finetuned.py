"""Train both feature networks on folds of two sets of real videos; writes finetuned.json.

All steps are commands that a user can type. For each fold, the networks are trained on the other videos (`lstr
finetune`, without choosing an epoch), compute features of all videos (`lstr extract`), and the models are trained on
the features of the same other videos. The videos of the fold are scored by models and networks that were not trained on
them. Scores of all folds are pooled before the metrics. The random networks differ only in their weights: they have the
same sizes, and batch-norm statistics calibrated on the same videos. No setting was chosen on UR Fall; the settings of
the networks were chosen on the second fold of UT-Interaction, so the record also has the figures of each fold.

Intervals are over videos, resampled together for all systems and averaged over seeds. Results in WORK are reused, so an
interrupted run resumes.

    nice python benchmarks/finetuned.py SHARED/data --work WORK [--sets ut_interaction] [--streams flow]
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from lstr.batch import predict
from lstr.checkpoint import load
from lstr.extractors.streams import STREAMS
from lstr.files.atomic import replacing
from lstr.files.content import write_json
from lstr.labels.label_set import Labels, targets
from lstr.metrics import intervals
from lstr.metrics import per_frame as metrics
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.features.dataset import LabelledVideo, Split, TwoStreamArray
from lstr.pipelines.features.folder import FeatureFolder, open_features
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.train import Task, train_model

Settings = Mapping[str, str]
"""`model.x` and `train.x` on top of a preset, or the `penalty` and number of `chunks` of the linear classifier."""
Scores = dict[str, np.ndarray]
"""(L, C) a video"""

PRESET = "lstr-small"
RESAMPLES = 1000
MEANS = ("mAP", "mcAP")
N_FOLDS = 3
SYSTEMS: dict[str, Settings] = {
    "linear_1_chunk": {"penalty": "1e4", "chunks": "1"},
    "linear_4_chunks": {"penalty": "1e4", "chunks": "4"},
    "rnn": {"model.kind": "rnn"},
    "lstr": {},
}
INPUTS = {"flow": ("flow",), "rgb": ("rgb",), "both": STREAMS}
SIZES = {"short_side": 64, "crop": 64}
"""Of the images: a step costs a fifth of what 224 pixels cost."""


class HeldOut:
    """Train on some videos of one or several feature folders and score others; results are stored in `kept`.

    The streams of several folders are joined.
    """

    def __init__(self, folder: FeatureFolder, labels: Labels, preset: str, kept: Path, *others: FeatureFolder):
        self.folder, self.labels, self.preset, self.kept = folder, labels, preset, kept
        self.seconds: dict[str, list[float]] = {}
        """Processor time of each training with its scoring, by settings."""
        self.videos = {}
        for video_id, entry in labels.videos.items():
            loaded = [one.load(video_id) for one in (folder, *others)]
            array = TwoStreamArray(*(np.concatenate(parts, axis=1) for parts in zip(*loaded, strict=True)))
            self.videos[video_id] = LabelledVideo(video_id, array, targets(entry, labels.classes, len(array)))

    def scores(self, settings: Settings, seed: int, training: Sequence[str], testing: Sequence[str]) -> Scores:
        """Return the scores of the testing videos by a model with these settings, trained on the training videos."""
        made_by = json.dumps([dict(settings), seed, sorted(training), sorted(testing), self.preset], sort_keys=True)
        path = self.kept / f"{hashlib.sha256(made_by.encode()).hexdigest()[:16]}.npz"
        if not path.exists():
            start = process_time()
            train_on, test_on = ([self.videos[i] for i in ids] for ids in (training, testing))
            if "penalty" in settings:
                found = linear_scores(train_on, test_on, int(settings["chunks"]), float(settings["penalty"]))
            else:
                found = self.trained(settings, seed, train_on, test_on)
            seconds = process_time() - start
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez(file, seconds=seconds, **{f"of {i}": s for i, s in zip(testing, found, strict=True)})
        with np.load(path) as file:
            name = json.dumps(dict(settings), sort_keys=True)
            self.seconds.setdefault(name, []).append(float(file["seconds"]))
            return {i: file[f"of {i}"] for i in testing}

    def trained(self, settings: Settings, seed: int, training: list, testing: list) -> list[np.ndarray]:
        """Train a model and return its scores of the testing videos."""
        split, run = Split(self.folder, self.labels, training), self.kept / "run"
        model, config = resolve(self.preset, {**settings, "train.seed": str(seed)}, split.dims)
        shutil.rmtree(run, ignore_errors=True)
        for _ in train_model(Task(split, model, config), run):
            pass
        loaded = load(run / "checkpoint.pt")
        return [predict(loaded.model, video.features[:]).numpy() for video in testing]

    def per_frame(self, scores: Scores) -> dict:
        """Return mAP, mcAP and per-class AP over all chunks of the scored videos."""
        truth = np.concatenate([self.videos[i].targets for i in scores])
        return metrics.per_frame(np.concatenate([*scores.values()]), truth, self.labels.classes)


def running_mean(rows: np.ndarray, n: int) -> np.ndarray:
    """Return the mean of each row of (L, D) and up to n − 1 rows before it."""
    total = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, 0, dtype=np.float64)])
    k = np.arange(len(rows))
    first = np.maximum(k - n + 1, 0)
    return (total[k + 1] - total[first]) / (k + 1 - first)[:, None]


def linear_scores(
    training: list[LabelledVideo], testing: list[LabelledVideo], n: int, penalty: float
) -> list[np.ndarray]:
    """Return scores of a ridge regression from the mean of the last n chunks' features to the targets."""
    rows = np.concatenate([running_mean(video.features[:], n) for video in training])
    wanted = np.concatenate([video.targets for video in training]).astype(float)
    mean, std, prior = rows.mean(0), rows.std(0) + 1e-6, wanted.mean(0)
    rows = (rows - mean) / std
    weights = rows.T @ np.linalg.solve(rows @ rows.T + penalty * np.eye(len(rows)), wanted - prior)
    return [(running_mean(video.features[:], n) - mean) / std @ weights + prior for video in testing]


def judge(held: HeldOut, scores: dict[str, list[Scores]], against: str) -> dict:
    """Return for each system mAP, mcAP, intervals, the difference to `against`, mAP by seed, and AP by class."""
    ids = list(scores[against][0])
    truth = [held.videos[i].targets for i in ids]
    draws = intervals.draw(len(ids), RESAMPLES)
    resampled, result = {}, {}
    for system, runs in scores.items():
        found = [held.per_frame({i: run[i] for i in ids}) for run in runs]
        resampled[system] = {
            mean: np.mean(
                [
                    metrics.resampled_means(
                        [run[i] for i in ids], truth, held.labels.classes, draws, calibrated=mean == "mcAP"
                    )
                    for run in runs
                ],
                axis=0,
            )
            for mean in MEANS
        }
        result[system] = {
            **{mean: float(np.mean([one[mean] for one in found])) for mean in MEANS},
            "interval": {mean: intervals.interval(values) for mean, values in resampled[system].items()},
            **({"mAP_by_seed": [one["mAP"] for one in found]} if len(found) > 1 else {}),
            "AP": {
                label: float(np.mean([one["per_class"][label]["AP"] for one in found]))
                for label in found[0]["per_class"]
            },
        }
    for system, row in result.items():
        row[f"ahead of {against}"] = {
            mean: {
                "difference": row[mean] - result[against][mean],
                "interval": intervals.interval(resampled[system][mean] - resampled[against][mean]),
            }
            for mean in MEANS
        }
    return result


def folds_of(ids: list[str]) -> list[list[str]]:
    """Return the folds: every third video of the sorted ids."""
    return [ids[fold::N_FOLDS] for fold in range(N_FOLDS)]


def write_labels(source: Path, testing: list[str], output: Path) -> None:
    """Write the labels of a set with the fold's videos for testing and all others for training."""
    document = json.loads(source.read_text())
    for video_id, entry in document["database"].items():
        entry["subset"] = "testing" if video_id in testing else "training"
    write_json(output, document)


def lstr(*words: object) -> float:
    """Run a command of lstr; return its seconds."""
    print("  lstr", *words, flush=True)
    start = perf_counter()
    subprocess.run([sys.executable, "-m", "lstr_cli", *map(str, words)], check=True)
    return perf_counter() - start


def make_features(videos: Path, labels: Path, work: Path, cache: Path, streams: tuple[str, ...], size: dict) -> dict:
    """Make the networks and features of a fold in WORK/{random,finetuned}_{stream}; return recorded seconds."""
    seconds = {}
    for stream in streams:
        weights, kept = work / f"weights_{stream}", ["--set", f"cache={cache}"]
        if not (weights / "finetune.json").exists():
            changes = [word for name, value in size.items() for word in ("--set", f"{name}={value}")]
            resume = ["--resume"] if weights.exists() else []
            lstr("finetune", videos, "--labels", labels, "-o", weights, "--stream", stream, *changes, *kept, *resume)
        about = json.loads((weights / "finetune.json").read_text())
        seconds[stream] = {"train": about["seconds"]}
        own = work / f"random_{stream}.json"
        write_json(own, {"based_on": "fast", **size})
        chosen = {"finetuned": ["--recipe", weights], "random": ["--recipe", own, "--calibrate", labels]}
        for name, options in chosen.items():
            features = work / f"{name}_{stream}"
            lstr("extract", videos, "-o", features, "--stream", stream, *options, *kept)
            folder = open_features(features)
            total = sum(folder.read_record(video_id)["seconds"]["total"] for video_id in folder.ids())
            seconds[stream][f"extract {name}"] = round(total, 1)
    return seconds


def open_held_out(folders: list[Path], labels: Path, kept: Path) -> HeldOut:
    """Return a HeldOut on the joined streams of some feature folders."""
    first, *others = (open_features(path) for path in folders)
    return HeldOut(first, read_label_file(labels), PRESET, kept, *others)


def score_set(
    options: argparse.Namespace, name: str, streams: tuple[str, ...]
) -> tuple[dict[str, dict], dict, dict[str, list[str]]]:
    """Return {row: {system: [scores by seed]}}, seconds by fold, and the videos of each fold."""
    source, size = options.data / name, SIZES
    ids = sorted(read_label_file(source / "labels.json").videos)
    rows: dict[str, dict[str, list[Scores]]] = {}
    seconds, folds = {}, {}
    inputs = {label: parts for label, parts in INPUTS.items() if set(parts) <= set(streams)}
    for fold, testing in enumerate(folds_of(ids), 1):
        work = options.work / name / f"fold_{fold}"
        labels = work / "labels.json"
        write_labels(source / "labels.json", testing, labels)
        seconds[f"fold {fold}"] = make_features(source / "videos", labels, work, options.cache, streams, size)
        folds[f"fold {fold}"] = testing
        training = [video_id for video_id in ids if video_id not in testing]
        for weights in ("random", "finetuned"):
            for label, parts in inputs.items():
                folders = [work / f"{weights}_{stream}" for stream in parts]
                held = open_held_out(folders, labels, work / f"scores_{weights}_{label}")
                row = rows.setdefault(f"{weights} {label}", {})
                for system, settings in SYSTEMS.items():
                    runs = range(1 if "penalty" in settings else options.seeds)
                    scores = row.setdefault(system, [{} for _ in runs])
                    for seed in runs:
                        scores[seed] |= held.scores(settings, seed, training, testing)
        counted = [held.videos[i].targets for i in training]
        for baseline, score in (("chance", metrics.chance), ("time_prior", metrics.time_prior)):
            found = rows.setdefault("labels", {}).setdefault(baseline, [{}])
            found[0] |= {i: score(counted, len(held.videos[i].targets)) for i in testing}
    return rows, seconds, folds


def main() -> None:
    """Run the sets and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for weights, features and scores")
    parser.add_argument("--cache", type=Path, help="chunk cache; WORK/chunks by default")
    parser.add_argument("--sets", nargs="+", default=["ut_interaction", "urfall"])
    parser.add_argument("--streams", nargs="+", default=["flow", "rgb"], choices=["flow", "rgb"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("finetuned.json"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.cache = options.cache or options.work / "chunks"
    record: dict = {}
    for name in options.sets:
        rows, seconds, folds = score_set(options, name, tuple(options.streams))
        flat = {f"{row}: {system}": runs for row, systems in rows.items() for system, runs in systems.items()}
        last = options.work / name / f"fold_{N_FOLDS}"
        held = open_held_out([last / f"finetuned_{options.streams[0]}"], last / "labels.json", last / "unused")
        against = f"random {'both' if len(options.streams) > 1 else options.streams[0]}: lstr"
        record[name] = {
            "folds": folds,
            "seconds": seconds,
            "mAP by fold": {
                key: {
                    fold: float(np.mean([held.per_frame({i: run[i] for i in ids})["mAP"] for run in runs]))
                    for fold, ids in folds.items()
                }
                for key, runs in flat.items()
            },
            **judge(held, flat, against),
        }
        for key in flat:
            print(f"{name} {key}: {record[name][key]['mAP']:.3f} {record[name]['mAP by fold'][key]}", flush=True)
    config = {}
    for path in (options.work / options.sets[0] / "fold_1").glob("weights_*/finetune.json"):
        config |= json.loads(path.read_text())["config"]
    record |= {"sizes": SIZES, "config": config, "preset": PRESET, "seeds": options.seeds, "resamples": RESAMPLES}
    write_json(options.output, record | about_machine())


if __name__ == "__main__":
    main()
