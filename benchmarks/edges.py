"""Whether chunks beside an action's edges should teach: edges.json.

python benchmarks/edges.py SHARED/data --work WORK [--seeds 3]

A person's edges are off by some tenths of a second, so that the chunks around them may be labelled wrong. `ignored 1`
trains without the chunk before and after each edge, `ignored 2` without two; `as labelled` with all of them. `small` on
features of networks as ImageNet has taught them, three folds of all videos; the same chunks are scored in every case.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from held_out import HeldOut, Scores
from learn import SETS
from real_data import RESAMPLES, judge
from suggestions import N_FOLDS, features_of, judge_events

from lstr.labels.label_set import AMBIGUOUS, read_labels
from lstr.pipelines.datasets.dataset import LabelledVideo
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).resolve().parent / "edges.json"
VARIANTS = {"as labelled": 0, "ignored 1": 1, "ignored 2": 2}


def without_edges(targets: np.ndarray, chunks: int) -> np.ndarray:
    """Targets (L, C + 1) whose last class, "Ambiguous", is on in so many chunks before and after each change."""
    result = np.pad(targets, ((0, 0), (0, 1)))
    for change in np.flatnonzero((targets[1:] != targets[:-1]).any(axis=1)) + 1 if chunks else ():
        around = slice(max(0, change - chunks), change + chunks)
        result[around] = 0
        result[around, -1] = 1
    return result


def out_of_fold(
    held: HeldOut, seed: int, targets_of: Callable[[np.ndarray], np.ndarray], outputs: Sequence[str]
) -> Scores:
    """Scores (L, outputs) of every video by a model that lacked its fold and was taught changed targets."""
    ids = sorted(held.videos)
    found: Scores = {}
    for fold in range(N_FOLDS):
        testing = ids[fold::N_FOLDS]
        teaching = [held.videos[i] for i in ids if i not in testing]
        videos = [LabelledVideo(one.id, one.features, targets_of(one.targets)) for one in teaching]
        scored = held.trained({}, seed, videos, [held.videos[i] for i in testing], outputs)
        found |= dict(zip(testing, scored, strict=True))
    return {i: found[i] for i in ids}


def scores_of(held: HeldOut, chunks: int, seed: int) -> Scores:
    """Scores of every video by a model that lacked its fold."""
    outputs = (*held.labels.classes, AMBIGUOUS)
    found = out_of_fold(held, seed, lambda targets: without_edges(targets, chunks), outputs)
    return {i: rows[:, :-1] for i, rows in found.items()}


def main() -> None:
    """Train, score, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="as of suggestions.py, whose features are taken")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    record: dict = {}
    for name in SETS:
        features, labels = features_of(name, options.data, options.work)
        held = HeldOut(open_features(features), read_labels(labels), "small", options.work / f"{name}-kept")
        runs = {
            variant: [scores_of(held, chunks, seed) for seed in range(options.seeds)]
            for variant, chunks in VARIANTS.items()
        }
        judged = judge(held, runs, "as labelled")
        for variant, of_seeds in runs.items():
            judged[variant]["f1_by_seed"] = [judge_events(held, scores) for scores in of_seeds]
            print(name, variant, round(judged[variant]["mAP"], 3), judged[variant]["f1_by_seed"], flush=True)
        record[name] = judged
    write_json(RECORD, record | {"seeds": options.seeds, "resamples": RESAMPLES} | about_machine())


if __name__ == "__main__":
    main()
