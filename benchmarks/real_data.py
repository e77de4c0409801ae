"""Extract, train and test on two sets of real videos, and write benchmarks/real-data.json.

UT-Interaction by leaving one sequence out in turn (the other nine train), UR Fall on its given subsets; scores of all
test chunks pooled before the metrics. The networks carry random weights with calibrated batch-norm statistics, so
the figures say what the chain makes of untrained features. Seconds are of this machine.

    python benchmarks/real_data.py SHARED/data --work WORK [--seeds 3]
"""

import argparse
import json
import os
import platform
import shutil
from datetime import date
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from extractors.flow import FlowWorkers, choose_backend, default_workers
from extractors.presets import PRESETS
from extractors.twostream import WeightSources, default_device
from extractors.video import find_videos
from lstr import metrics
from lstr.batch import predict
from lstr.checkpoint import load
from lstr.labels import Labels, read_labels, targets
from pipelines.dataset import LabelledVideo, Split, TwoStreamArray
from pipelines.extract import extract
from pipelines.networks import prepare
from pipelines.store import FeatureFolder, open_features, write_json
from pipelines.train import train
from pipelines.train_config import resolve

SETS = {"ut_interaction": "leave one sequence out", "urfall": "training 1-14, testing 15-20"}
LAST = 4  # chunks the linear classifier averages
RIDGE = 1e4  # its penalty; 1e5 is worse everywhere
PRESET = "small"


def quiet(*_) -> None:
    """A progress callback for nobody."""


def extract_set(videos: Path, labels: Path, output: Path) -> float:
    """Extract a set with the fast recipe; seconds over its videos as recorded, calibration not counted."""
    found = find_videos([videos])
    with FlowWorkers(default_workers()) as workers:
        twostream, folder = prepare(
            found, output, PRESETS["fast"], WeightSources(), labels, workers, default_device(), quiet
        )
        for outcome in extract(found, folder, twostream, workers, quiet):
            print(f"  {outcome.id} {outcome.state} {outcome.seconds:.0f} s", flush=True)
    records = (json.loads(folder.record(video_id).read_text()) for video_id in folder.ids())
    return sum(record["seconds"]["total"] for record in records)


def read_videos(folder: FeatureFolder, labels: Labels) -> dict[str, LabelledVideo]:
    """Every labelled video with its features and targets."""
    videos = {}
    for video_id, entry in labels.videos.items():
        array = TwoStreamArray(*folder.load(video_id))
        videos[video_id] = LabelledVideo(video_id, array, targets(entry, labels.classes, len(array)))
    return videos


def folds_of(name: str, labels: Labels) -> list[list[str]]:
    """The ids each fold tests on."""
    if name == "ut_interaction":
        return [[video_id] for video_id in sorted(labels.videos)]
    return [sorted(i for i, video in labels.videos.items() if video.subset == "testing")]


def running_mean(rows: np.ndarray, n: int) -> np.ndarray:
    """Mean of each row (L, D) and the up to n − 1 before it."""
    total = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, 0, dtype=np.float64)])
    k = np.arange(len(rows))
    first = np.maximum(k - n + 1, 0)
    return (total[k + 1] - total[first]) / (k + 1 - first)[:, None]


def linear_scores(training: list[LabelledVideo], testing: list[LabelledVideo], n: int) -> list[np.ndarray]:
    """Ridge regression of the targets on the mean of the last n chunks' features: what needs no memory."""
    rows = np.concatenate([running_mean(video.features[:], n) for video in training])
    wanted = np.concatenate([video.targets for video in training]).astype(float)
    mean, std, prior = rows.mean(0), rows.std(0) + 1e-6, wanted.mean(0)
    rows = (rows - mean) / std
    weights = rows.T @ np.linalg.solve(rows @ rows.T + RIDGE * np.eye(len(rows)), wanted - prior)
    return [(running_mean(video.features[:], n) - mean) / std @ weights + prior for video in testing]


def lstr_scores(split: Split, testing: list[LabelledVideo], run: Path, seed: int) -> list[np.ndarray]:
    """Scores of LSTR trained on a split with the small preset."""
    model, config = resolve(PRESET, {"train.seed": str(seed)}, split.dims)
    shutil.rmtree(run, ignore_errors=True)
    for _ in train(split, model, config, run, default_device()):
        pass
    loaded = load(run / "checkpoint.pt")
    return [predict(loaded.model, video.features[:]).numpy() for video in testing]


def measure(name: str, folder: FeatureFolder, labels: Labels, work: Path, seeds: int) -> tuple[dict, float]:
    """{system: {mAP, mcAP, per_class}} pooled over folds, and the seconds of training LSTR once on all folds."""
    videos = read_videos(folder, labels)
    folds = folds_of(name, labels)
    truth = np.concatenate([videos[i].targets for fold in folds for i in fold])
    scores: dict[str, list[np.ndarray]] = {}
    seconds = 0.0
    for fold in folds:
        testing = [videos[i] for i in fold]
        training = [video for i, video in videos.items() if i not in fold]
        if name == "urfall":
            training = [video for video in training if labels.videos[video.id].subset == "training"]
        counted = [video.targets for video in training]
        add = scores.setdefault
        for video in testing:
            add("chance", []).append(metrics.chance(counted, len(video.targets)))
            add("time_prior", []).append(metrics.time_prior(counted, len(video.targets)))
        add("linear_1_chunk", []).extend(linear_scores(training, testing, 1))
        add("linear_4_chunks", []).extend(linear_scores(training, testing, LAST))
        split = Split(folder, labels, training)
        for seed in range(seeds):
            start = perf_counter()
            add(f"lstr seed {seed}", []).extend(lstr_scores(split, testing, work / "run", seed))
            seconds += perf_counter() - start
        print(f"  {name}: {', '.join(fold)}", flush=True)
    results = {
        system: metrics.per_frame(np.concatenate(parts), truth, labels.classes) for system, parts in scores.items()
    }
    runs = [results.pop(f"lstr seed {seed}") for seed in range(seeds)]
    mean = {key: float(np.mean([r[key] for r in runs])) for key in ("mAP", "mcAP")}
    results["lstr"] = {**mean, "mAP_by_seed": [r["mAP"] for r in runs], "per_class": runs[0]["per_class"]}
    return results, seconds / seeds


def main() -> None:
    """Run both sets and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for features and runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("real-data.json"))
    given = parser.parse_args()
    record: dict = {"seconds": {}}
    for name, protocol in SETS.items():
        source, output = given.data / name, given.work / name
        record["seconds"][f"{name} extract"] = round(extract_set(source / "videos", source / "labels.json", output), 1)
        folder, labels = open_features(output), read_labels(source / "labels.json")
        results, seconds = measure(name, folder, labels, given.work, given.seeds)
        record["seconds"][f"{name} train and score, one seed"] = round(seconds, 1)
        chunks = sum(len(folder.load(i)[0]) for i in folder.ids())
        record[name] = {"protocol": protocol, "videos": len(folder.ids()), "chunks": chunks, **results}
        for system, result in results.items():
            print(f"{name} {system}: mAP {result['mAP']:.3f} mcAP {result['mcAP']:.3f}", flush=True)
    record |= {
        "weights": "random",
        "recipe": {name: open_features(given.work / name).recipe.id for name in SETS},
        "preset": PRESET,
        "seeds": given.seeds,
        "flow_backend": choose_backend(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {processor()}",
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "date": date.today().isoformat(),
    }
    write_json(given.output, record)


def processor() -> str:
    """The processor's name, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
