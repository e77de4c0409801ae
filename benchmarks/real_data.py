"""Extract, train and test on two sets of real videos, and write benchmarks/real-data.json.

UT-Interaction by leaving two of its ten sequences out in turn (the other eight train), UR Fall on its own subsets;
scores of all test chunks pooled before the metrics. The networks carry random weights with calibrated batch-norm
statistics, so the figures show what the chain makes of untrained features.

Each trained system has candidate settings. On UT-Interaction the one that scores a fold is chosen by what the
candidates score on the other folds, in models that saw nothing of it (`held_out.chosen_without`, one seed); UR Fall
has no part in any choice and gets the usual settings. Intervals are over the test videos, resampled together for all
systems and averaged over seeds. What is already in WORK is kept, features too: a run that was stopped goes on where
it was.

    nice python benchmarks/real_data.py SHARED/data --work WORK [--seeds 5]
"""

import argparse
import json
from pathlib import Path

import numpy as np
from held_out import HeldOut, Scores, Settings, chosen_without, folds_of

from lstr.extractors.flow.workers import choose_backend
from lstr.extractors.presets import PRESETS
from lstr.extractors.video.inputs import find_videos
from lstr.labels.label_set import read_labels
from lstr.metrics import bootstrap
from lstr.metrics import per_frame as metrics
from lstr.pipelines.extraction.job import extract
from lstr.pipelines.extraction.options import ExtractOptions
from lstr.pipelines.extraction.resume import Outcome
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.progress import Failed
from lstr.pipelines.provenance import about_machine

PRESET = "lstr-small"
RESAMPLES = 1000
MEANS = ("mAP", "mcAP")
PENALTIES = ("1e4", "1e3", "3e3", "3e4")
CANDIDATES: dict[str, dict[str, Settings]] = {
    "linear_1_chunk": {f"penalty {p}": {"penalty": p, "chunks": "1"} for p in PENALTIES},
    "linear_4_chunks": {f"penalty {p}": {"penalty": p, "chunks": "4"} for p in PENALTIES},
    "lstr": {
        "40 epochs": {},
        "20 epochs": {"train.epochs": "20"},
        "40 epochs, twice the rate": {"train.lr": "1e-3"},
        "20 epochs, 16 s of long memory": {"train.epochs": "20", "model.long_length": "64"},
        "40 epochs, 16 s of long memory": {"model.long_length": "64"},
    },
    "rnn": {
        "windows of 8 chunks": {"model.kind": "rnn"},
        "windows of 32 chunks": {"model.kind": "rnn", "model.work_length": "32", "train.epochs": "80"},
    },
}
"""What each system chooses among, its usual settings first: those score UR Fall."""


def extract_set(videos: Path, labels: Path, output: Path) -> None:
    """Extract what is not there yet of a set, with the fast recipe."""
    options = ExtractOptions(output, workers=1, recipe=PRESETS["fast"], calibrate=labels)
    for event in extract(find_videos([videos]), options):
        if isinstance(event, Outcome):
            print(f"  {event.id} {event.state} {event.seconds:.0f} s", flush=True)
        if isinstance(event, Failed):
            print(f"  {event.id} failed: {event.reason}", flush=True)


def score_of_labels(held: HeldOut, training: list[str], testing: list[str]) -> dict[str, Scores]:
    """Scores of the two baselines that see no video."""
    counted = [held.videos[i].targets for i in training]
    return {
        name: {i: system(counted, len(held.videos[i].targets)) for i in testing}
        for name, system in (("chance", metrics.chance), ("time_prior", metrics.time_prior))
    }


def score_sequences(held: HeldOut, seeds: int) -> tuple[dict[str, list[Scores]], dict]:
    """Scores of every sequence by each system, a seed, in models that did not see it; and how settings were chosen."""
    ids = sorted(held.videos)
    scores: dict[str, list[Scores]] = {"chance": [{}], "time_prior": [{}]}
    choices = {}
    for training, testing in folds_of(ids):
        for name, found in score_of_labels(held, training, testing).items():
            scores[name][0] |= found
    for system, candidates in CANDIDATES.items():
        choice, by_group = chosen_without(held, candidates, ids)
        choices[system] = {"mAP of the other folds, by the fold left out": by_group, "chosen": choice}
        scores[system] = [{} for _ in range(seeds_of(system, seeds))]
        for seed, found in enumerate(scores[system]):
            for training, testing in folds_of(ids):
                found |= held.scores(candidates[choice[testing[0]]], seed, training, testing)
            print(f"  {system} {held.per_frame(found)['mAP']:.3f}", flush=True)
    return scores, choices


def score_subsets(held: HeldOut, seeds: int) -> dict[str, list[Scores]]:
    """Scores of the testing videos by each system as it usually is, a seed."""
    training, testing = (
        sorted(i for i, video in held.labels.videos.items() if video.subset == subset)
        for subset in ("training", "testing")
    )
    scores = {name: [found] for name, found in score_of_labels(held, training, testing).items()}
    for system, candidates in CANDIDATES.items():
        usual = next(iter(candidates.values()))
        runs = range(seeds_of(system, seeds))
        scores[system] = [held.scores(usual, seed, training, testing) for seed in runs]
    return scores


def seeds_of(system: str, seeds: int) -> int:
    """How often a system is trained: the linear classifiers have nothing random."""
    return 1 if system.startswith("linear") else seeds


def judge(held: HeldOut, scores: dict[str, list[Scores]], against: str) -> dict:
    """{system: {mAP, mcAP, interval, ahead of `against`, by seed, per class}} of scores, a seed."""
    ids = list(scores[against][0])
    truth = [held.videos[i].targets for i in ids]
    draws = bootstrap.draw(len(ids), RESAMPLES)
    resampled, result = {}, {}
    for system, runs in scores.items():
        found = [held.per_frame({i: run[i] for i in ids}) for run in runs]
        resampled[system] = {
            mean: np.mean(
                [
                    bootstrap.resampled_means(
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
            "interval": {mean: bootstrap.interval(values) for mean, values in resampled[system].items()},
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
                "interval": bootstrap.interval(resampled[system][mean] - resampled[against][mean]),
            }
            for mean in MEANS
        }
    return result


def main() -> None:
    """Run both sets and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for features and scores")
    parser.add_argument("--features", type=Path, help="folder with both sets' features, extracted before")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("real-data.json"))
    options = parser.parse_args()
    record: dict = {}
    for name in ("urfall", "ut_interaction"):
        source, features = options.data / name, (options.features or options.work) / name
        if not options.features:
            extract_set(source / "videos", source / "labels.json", features)
        folder, labels = open_features(features), read_labels(source / "labels.json")
        held = HeldOut(folder, labels, PRESET, options.work / f"{name} scores")
        if name == "urfall":
            scores, chosen = score_subsets(held, options.seeds), {}
        else:
            scores, choices = score_sequences(held, options.seeds)
            chosen = {"choices": choices}
        stored = [json.loads(folder.record(video_id).read_text()) for video_id in folder.ids()]
        record[name] = {
            "protocol": "training 1-14, testing 15-20" if name == "urfall" else "five folds of two sequences",
            "videos": len(folder.ids()),
            "chunks": sum(len(video.features) for video in held.videos.values()),
            "recipe": folder.recipe.id,
            "seconds": {
                "extract, as recorded": round(sum(one["seconds"]["total"] for one in stored), 1),
                "processor time a training, by settings": {
                    key: round(float(np.mean(values)), 1) for key, values in held.seconds.items()
                },
            },
            **judge(held, scores, "linear_4_chunks"),
            **chosen,
        }
        for system, result in record[name].items():
            if isinstance(result, dict) and "mAP" in result:
                print(f"{name} {system}: mAP {result['mAP']:.3f} {result['interval']['mAP']}", flush=True)
    record |= {
        "weights": "random",
        "preset": PRESET,
        "seeds": options.seeds,
        "resamples": RESAMPLES,
        "flow_backend": choose_backend(),
        **about_machine(),
    }
    write_json(options.output, record)


if __name__ == "__main__":
    main()
