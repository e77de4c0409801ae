"""Whether a state without end drifts: held-out videos played many times in a row; writes long-stream.json.

    python benchmarks/frontier.py learn SHARED/data --work FEATURES --points live
    python benchmarks/long_stream.py SHARED/data --features FEATURES

The preset `small` carries a state from chunk to chunk and is trained on windows of 8 s. Here a model of each fold
scores its videos alone, then all of them one after the other, again and again without a reset: each time has an mAP.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from finetuned import folds_of
from held_out import HeldOut

from lstr.batch import predict
from lstr.checkpoints.checkpoint import load
from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import read_labels
from lstr.metrics import per_frame as metrics
from lstr.pipelines.datasets.dataset import Split
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.run import Task, train_model

PRESET, POINT, SET = "small", "smallest", "ut_interaction"
TIMES = 40


def drift(held: HeldOut, training: list[str], testing: list[str], run: Path) -> dict:
    """mAP of the videos alone, and of each time that they are played in a row."""
    split = Split(held.folder, held.labels, [held.videos[i] for i in training])
    for _ in train_model(Task(split, *resolve(PRESET, {}, split.dims)), run):
        pass
    model, videos = load(run / "checkpoint.pt").model, [held.videos[i] for i in testing]
    truth = np.concatenate([video.targets for video in videos])
    rows = np.concatenate([video.features[:] for video in videos])

    def mean_ap(scores: np.ndarray) -> float:
        return round(metrics.per_frame(scores, truth, held.labels.classes)["mAP"], 4)

    alone = np.concatenate([predict(model, video.features[:]).numpy() for video in videos])
    played = predict(model, np.tile(rows, (TIMES, 1))).numpy().reshape(TIMES, *alone.shape)
    return {
        "alone": mean_ap(alone),
        "hours": round(TIMES * len(rows) / FEATURES_PER_SECOND / 3600, 2),
        "times": [mean_ap(scores) for scores in played],
    }


def main() -> None:
    """Measure each fold and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help=f"folder with {SET}/")
    parser.add_argument("--features", type=Path, required=True, help="the WORK of benchmarks/frontier.py")
    options = parser.parse_args()
    ids = sorted(read_labels(options.data / SET / "labels.json").videos)
    found = []
    for fold, testing in enumerate(folds_of(ids), start=1):
        work = options.features / SET / f"fold_{fold}"
        with tempfile.TemporaryDirectory() as folder:
            features = open_features(work / f"{POINT}.learn" / "features")
            held = HeldOut(features, read_labels(work / "labels.json"), PRESET, Path(folder))
            found.append(drift(held, [i for i in ids if i not in testing], testing, Path(folder) / "run"))
        print(found[-1], flush=True)
    about = {"preset": PRESET, "features": POINT, "set": SET, "times": TIMES}
    write_json(Path(__file__).with_name("long-stream.json"), {**about_machine(), **about, "folds": found})


if __name__ == "__main__":
    main()
