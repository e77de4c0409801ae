"""Compare all kinds of model on the same features of real videos with one protocol; writes kinds.json.

The features are from `lstr learn --recipe smallest`, by networks that were not trained on the scored videos. Each kind
has a few candidate settings on top of the preset `lstr-small`; a fold uses the candidate with the best mean on the
other folds. Scores of all folds are pooled before the metrics, three seeds are averaged, and intervals resample the
videos for all kinds together. Results in WORK are reused.

    nice python benchmarks/kinds.py SHARED/data --work WORK [--kinds lstr miniroad]
"""

import argparse
import json
from pathlib import Path

import numpy as np
from finetuned import RESAMPLES, HeldOut, Scores, Settings, folds_of, judge, lstr, write_labels

from lstr.files.content import write_json
from lstr.metrics import per_frame as metrics
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.provenance import about_machine

PRESET = "lstr-small"
RECIPE = "smallest"
AGAINST = "lstr"
SETS = {"ut_interaction": "UT-Interaction", "urfall": "UR Fall Detection"}

LONG = {"model.long_length": "64", "model.long_stride": "4"}
FUTURE = {**LONG, "model.future": "8", "model.n_generated": "8", "model.anticipation": "2"}
MINIROAD = {"train.windows": "every", "train.targets": "unit"}
CANDIDATES: dict[str, list[Settings]] = {
    "linear": [{"penalty": "1e4", "chunks": "1"}, {"penalty": "1e4", "chunks": "4"}],
    "lstr": [{}, {"model.work_length": "16"}, LONG],
    "rnn": [{}, {"model.work_length": "32"}],
    "gru": [{"model.kind": "rnn", "model.cell": "gru", "model.work_length": w} for w in ("8", "32")],
    "trn": [{}, {"model.work_length": "32"}],
    "miniroad": [{**MINIROAD, "model.work_length": "16"}, {**MINIROAD, "model.work_length": "64"}],
    "testra": [LONG, {**LONG, "model.decay": "0.8"}],
    "cmert": [FUTURE, {**FUTURE, "train.average": "0.98"}],
    "mat": [FUTURE, {**FUTURE, "train.average": "0.98"}],
    "gatehub": [{"model.long_length": "24", "model.long_stride": "1"}, {**LONG, "model.long_stride": "1"}],
    "oadtr": [{"model.work_length": "16", "model.anticipation": "2"}, {"model.work_length": "32"}],
    "colar": [{"model.work_length": "8"}, {"model.work_length": "16"}],
    "lfb": [LONG],
}
"""By kind, what is tried on top of the preset; `gru` is an RNN with another cell."""
CANDIDATES = {
    kind: [settings if kind == "linear" else {"model.kind": kind, **settings} for settings in candidates]
    for kind, candidates in CANDIDATES.items()
}


def score(held: list[HeldOut], folds: list[list[str]], candidates: list[Settings], seeds: int) -> tuple[list, dict]:
    """Return scores of all videos by seed, with the chosen candidate of each fold and the results of all candidates."""
    ids = [i for fold in folds for i in fold]
    parts = [(one, [i for i in ids if i not in fold], fold) for one, fold in zip(held, folds, strict=True)]
    tried = np.array([[one.per_frame(one.scores(c, 0, *on))["mAP"] for one, *on in parts] for c in candidates])
    chosen = [int(np.delete(tried, fold, axis=1).mean(1).argmax()) for fold in range(len(folds))]
    runs: list[Scores] = []
    for seed in range(seeds):
        runs.append({})
        for which, (one, *on) in zip(chosen, parts, strict=True):
            runs[-1] |= one.scores(candidates[which], seed, *on)
    of = [dict(candidates[which]) for which in chosen]
    seconds = [np.mean(one.seconds[json.dumps(s, sort_keys=True)]) for one, s in zip(held, of, strict=True)]
    by_fold = [float(np.mean([held[0].per_frame({i: run[i] for i in fold})["mAP"] for run in runs])) for fold in folds]
    return runs, {
        "candidates": [
            {"settings": dict(c), "mAP_by_fold": row.tolist()} for c, row in zip(candidates, tried, strict=True)
        ],
        "chosen": chosen,
        "mAP_by_fold": by_fold,
        "processor_seconds": round(float(np.mean(seconds)), 1),
    }


def main() -> None:
    """Run the kinds on both sets and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for networks, features and scores")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--kinds", nargs="+", default=list(CANDIDATES), choices=CANDIDATES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("kinds.json"))
    options = parser.parse_args()
    record: dict = {}
    for name in options.sets:
        ids = sorted(read_label_file(options.data / name / "labels.json").videos)
        folds, held = folds_of(ids), []
        for number, testing in enumerate(folds, 1):
            kept = options.work / name / f"fold_{number}"
            labels, model = kept / "labels.json", kept / f"{RECIPE}.lstr"
            if not model.exists():
                kept.mkdir(parents=True, exist_ok=True)
                write_labels(options.data / name / "labels.json", testing, labels)
                lstr("learn", options.data / name / "videos", labels, "-o", model, "--recipe", RECIPE)
            features = open_features(model.with_suffix(".learn") / "features")
            held.append(HeldOut(features, read_label_file(labels), PRESET, kept))
        flat, details = {}, {}
        for kind in options.kinds:
            seeds = 1 if kind == "linear" else options.seeds
            flat[kind], details[kind] = score(held, folds, CANDIDATES[kind], seeds)
            print(name, kind, details[kind], flush=True)
        counted = [[held[0].videos[i].targets for i in ids if i not in fold] for fold in folds]
        lengths = {i: len(held[0].videos[i].targets) for i in ids}
        for baseline, guess in (("chance", metrics.chance), ("time_prior", metrics.time_prior)):
            pairs = zip(folds, counted, strict=True)
            flat[baseline] = [{i: guess(seen, lengths[i]) for fold, seen in pairs for i in fold}]
        judged = judge(held[0], flat, AGAINST)
        record[name] = {kind: {**row, **details.get(kind, {})} for kind, row in judged.items()}
    record |= {"preset": PRESET, "features": RECIPE, "seeds": options.seeds, "resamples": RESAMPLES}
    write_json(options.output, record | about_machine())


if __name__ == "__main__":
    main()
