"""What each runtime and precision of the feature networks costs in mAP on real videos: benchmarks/runtimes.json.

The model files of `frontier.py learn` score the videos of their fold, which neither their networks nor their model have
seen, from features that each runtime and precision makes. int8 is of `lstr quantise` on training videos of the fold.
The scores of all folds are pooled; the intervals resample the videos for all variants together.

    python benchmarks/runtimes.py SHARED/data --work WORK     the WORK of frontier.py
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from finetuned import folds_of
from frontier import SETS, lstr

from lstr.batch import predict
from lstr.extractors.networks.runtimes.runtimes import RUNTIMES, is_installed
from lstr.labels.label_set import Labels, read_labels, targets
from lstr.metrics import bootstrap
from lstr.metrics import per_frame as metrics
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).with_name("runtimes.json")
POINTS = {"smallest": "float32", "dis-bninception": "bf16"}
"""Of frontier.py, and the precision that its networks were trained for; ONNX Runtime computes bf16 in float32."""
RESAMPLES = 1000
INT8_VIDEOS = 4  # of the training videos: their first 400 quarter seconds are looked at


def variants(point: str) -> list[tuple[str, str]]:
    """(runtime, precision) that this machine can compute a point's networks in, torch first."""
    return [(name, POINTS[point]) for name in RUNTIMES if is_installed(name)] + [("openvino", "int8")]


def scores_of(data: Path, work: Path, name: str, point: str) -> dict[str, dict[str, np.ndarray]]:
    """Scores (L, C) of each held-out video, by variant; nothing where a fold's model is missing."""
    ids, found = sorted(read_labels(data / name / "labels.json").videos), {}
    paths = {path.stem: path for path in (data / name / "videos").iterdir()}
    for fold, testing in enumerate(folds_of(ids), 1):
        model = work / name / f"fold_{fold}" / f"{point}.lstr"
        if not model.exists():
            return {}
        predictor = open_model(model).checkpoint("cpu").model
        for runtime, precision in variants(point):
            made = model.with_suffix(".runtimes") / f"{runtime}-{precision}"
            recipe = model
            if precision == "int8":
                recipe = made.with_suffix(".lstr")
                training = [paths[i] for i in ids if i not in testing][:INT8_VIDEOS]
                if not recipe.exists():
                    recipe.parent.mkdir(parents=True, exist_ok=True)
                    lstr(work, "quantise", model, *training, "-o", recipe, "--set", f"runtime={runtime}")
            videos = [paths[i] for i in testing]
            lstr(work, "extract", *videos, "-o", made, "--recipe", recipe, "--set", f"runtime={runtime}")
            features = open_features(made)
            for video_id in testing:
                rows = np.concatenate([part[:] for part in features.load(video_id)], axis=1)
                found.setdefault(f"{runtime} {precision}", {})[video_id] = predict(predictor, rows).numpy()
    return found


def judged(labels: Labels, found: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict]:
    """By variant: mAP, its interval, and how far it is from the first, torch."""
    ids = sorted(labels.videos)
    reference = next(iter(found))
    exact = [found[reference][i] for i in ids]
    truth = [targets(labels.videos[i], labels.classes, len(of)) for i, of in zip(ids, exact, strict=True)]
    draws = bootstrap.draw(len(ids), RESAMPLES)
    rows, resampled = {}, {}
    for variant, of in found.items():
        scores = [of[i] for i in ids]
        whole = metrics.per_frame(np.concatenate(scores), np.concatenate(truth), labels.classes)
        resampled[variant] = bootstrap.resampled_means(scores, truth, labels.classes, draws)
        change = resampled[variant] - resampled[reference]
        rows[variant] = {
            "mAP": whole["mAP"],
            "interval": bootstrap.interval(resampled[variant]),
            f"ahead of {reference}": {
                "difference": whole["mAP"] - rows.get(reference, whole)["mAP"],
                "interval": bootstrap.interval(change),
            },
            "largest_score_difference": float(max(np.abs(a - b).max() for a, b in zip(scores, exact, strict=True))),
        }
    return rows


def main() -> None:
    """Extract, score, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="that of frontier.py learn")
    options = parser.parse_args()
    rows: dict[str, dict] = {}
    for name in SETS:
        labels = read_labels(options.data / name / "labels.json")
        for point in POINTS:
            if found := scores_of(options.data, options.work, name, point):
                rows.setdefault(name, {})[point] = judged(labels, found)
                print(name, point, {k: (v["mAP"], v["interval"]) for k, v in rows[name][point].items()}, flush=True)
    write_json(RECORD, {"accuracy": rows, "resamples": RESAMPLES} | about_machine())


if __name__ == "__main__":
    main()
