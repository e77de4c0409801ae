"""Kinds of model by the instances that they tell as these end, by starts, segments and events: instances.json.

    python benchmarks/instances.py SHARED/data --work WORK [--sets urfall thumos_synthetic] [--kinds rnn lstr]

The two small sets have the features of the recipe `pretrained`: three EfficientNet-Lite0 as ImageNet has taught them,
which no video has trained, so that all that is compared is the model. Three folds; every kind takes the first of its
settings in benchmarks/kinds.py, chosen before. The third set is that of benchmarks/thumos_synthetic.py: synthetic
features on THUMOS'14's labels, at its reduced size; its actions are the runs of the published targets, four chunks to a
second.

Detections are told as by `lstr detect`. Its thresholds are chosen on other videos than those that are scored: on the
other folds', or on the training videos that are held out. One seed; intervals resample the videos, the same for
every kind. Features, scores and finished rows are kept, and the same command goes on where it was.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import thumos_synthetic as thumos
from finetuned import folds_of
from held_out import HeldOut, Settings
from kinds import CANDIDATES, PRESET
from synthetic_features import Generator

from lstr.batch import predict
from lstr.labels.label_set import THUMOS_CLASSES, read_labels, segments_of
from lstr.metrics import bootstrap
from lstr.metrics import per_frame as metrics
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.metrics.instances import measure_instances, resampled_instances
from lstr.metrics.segmentation import measure_segmentation
from lstr.metrics.starts import start_precision
from lstr.pipelines.datasets.dataset import LabelledVideo
from lstr.pipelines.evaluation.analysis import RESAMPLES, detect_events
from lstr.pipelines.evaluation.findings import without_nan
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.thresholds.by_actions import Scored, choose_rule, choose_without_each
from lstr.pipelines.training.config import resolve
from lstr.timeline import Thresholds

RECIPE = "pretrained"
SMALL = ("ut_interaction", "urfall")
SYNTHETIC = "thumos_synthetic"
PRIOR = "time_prior"
AGAINST = "rnn"
DRAWN = "drawn"
"""Instance mAP of each resample: kept beside the scores, and not in the record"""
KINDS = ("rnn", "gru", "lfb", "lstr", "testra", "colar", "oadtr", "gatehub", "miniroad", "cmert", "trn", "mat")
"""From the quickest to the slowest"""
ON_THUMOS: dict[str, Settings] = {
    "rnn": {"kind": "rnn"},
    "gru": {"kind": "rnn", "cell": "gru"},
    "lstr": {"long_length": "0"},
    "miniroad": {"kind": "miniroad", "long_length": "0"},
    "testra": {"kind": "testra"},
    "trn": {"kind": "trn"},
    "lfb": {"kind": "lfb"},
    "colar": {"kind": "colar", "long_length": "0"},
    "oadtr": {"kind": "oadtr", "long_length": "0"},
}
"""What each kind changes of the paper's model; `lstr` is without its long memory, which does not pay at this size"""
READERS = 1
Rules = Thresholds | Mapping[str, Thresholds]
Row = dict[str, Any]


def small_set(name: str, data: Path, work: Path, wanted: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """The rows of a set of real videos, whose folds are scored by models that lack them."""
    features = work / name / RECIPE
    if not features.exists():
        command = ["extract", data / name / "videos", "-o", features, "--recipe", RECIPE, "--cache", "none"]
        subprocess.run([sys.executable, "-m", "lstr_cli", *map(str, command)], check=True)
    labels = read_labels(data / name / "labels.json")
    held = HeldOut(open_features(features), labels, PRESET, work / name)
    ids = sorted(labels.videos)
    folds = folds_of(ids)
    truth = {i: labels.videos[i].segments for i in ids}
    for kind in wanted:
        scores, before = {}, process_time()
        for fold in folds:
            others = [i for i in ids if i not in fold]
            if kind == PRIOR:
                counted = [held.videos[i].targets for i in others]
                scores |= {i: metrics.time_prior(counted, len(held.videos[i].targets)) for i in fold}
            else:
                scores |= held.scores(CANDIDATES[kind][0], 0, others, fold)
        groups = [[Scored(scores[i], truth[i]) for i in fold] for fold in folds]
        chosen = choose_without_each(groups, labels.classes)[1]
        rules = {i: rule.by_class for fold, rule in zip(folds, chosen, strict=True) for i in fold}
        seconds = sum(held.seconds.get(json.dumps(dict(CANDIDATES.get(kind, [{}])[0]), sort_keys=True), ()))
        videos = [detect_events(scores[i], labels.classes, rules[i], truth[i]) for i in ids]
        row = measured(videos, [scores[i] for i in ids], [held.videos[i] for i in ids], labels.classes)
        yield kind, row | {"processor_seconds": round(seconds or process_time() - before, 1)}


def synthetic_set(published: Path, work: Path, wanted: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """The rows of synthetic features on THUMOS'14's labels, scored on its test videos."""
    size = thumos.SMALL
    videos = thumos.make_videos(published, Generator(rgb=size.rgb, flow=size.flow))
    truth = [segments_of(video.targets, THUMOS_CLASSES) for video in videos.testing]
    for kind in wanted:
        if kind != PRIOR and kind not in ON_THUMOS:
            continue
        kept = work / SYNTHETIC / f"{kind}.npz"
        if not kept.exists():
            before = process_time()
            validation, testing = thumos_scores(kind, videos, size)
            seconds = process_time() - before
            kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as temporary, temporary.open("wb") as file:
                chunks = {f"v{k}": rows for k, rows in enumerate(validation)}
                chunks |= {f"t{k}": rows for k, rows in enumerate(testing)}
                np.savez(file, seconds=seconds, **chunks)
        with np.load(kept) as file:
            validation = [file[f"v{k}"] for k in range(len(videos.validation))]
            testing, seconds = [file[f"t{k}"] for k in range(len(videos.testing))], float(file["seconds"])
        chosen_on = [
            Scored(rows, segments_of(video.targets, THUMOS_CLASSES))
            for rows, video in zip(validation, videos.validation, strict=True)
        ]
        rules = choose_rule(chosen_on, THUMOS_CLASSES).by_class
        pairs = zip(testing, truth, strict=True)
        told = [detect_events(rows, THUMOS_CLASSES, rules, labelled) for rows, labelled in pairs]
        row = measured(told, testing, videos.testing, THUMOS_CLASSES)
        yield kind, row | {"processor_seconds": round(seconds, 1)}


def thumos_scores(kind: str, videos: thumos.Videos, size: thumos.Size) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores (L, C) of the videos that are held out and of the test videos, by a new model or by the time prior."""
    if kind == PRIOR:
        trained = list(videos.training.values())
        found = [[metrics.time_prior(trained, len(video.targets)) for video in some] for some in of_both(videos)]
        return found[0], found[1]
    changes = {f"model.{name}": value for name, value in ON_THUMOS[kind].items()}
    changes = {**size.changes(), "train.seed": "0", **changes}
    model, config = resolve("thumos14", changes, (size.rgb, size.flow))
    trained_model, _ = thumos.train_row(model, config, size.patience, videos, "cpu", READERS)
    found = [[predict(trained_model, video.features[:]).numpy() for video in some] for some in of_both(videos)]
    return found[0], found[1]


def of_both(videos: thumos.Videos) -> tuple[list[LabelledVideo], list[LabelledVideo]]:
    """The videos that are held out, and those of the test."""
    return videos.validation, videos.testing


def measured(
    videos: Sequence[VideoEvents], scores: list[np.ndarray], labelled: list[LabelledVideo], classes: Sequence[str]
) -> Row:
    """Every figure of a row with its interval, and the means of each class."""
    draws = bootstrap.draw(len(videos), RESAMPLES)
    targets = [video.targets for video in labelled]
    chunks = metrics.per_frame(np.concatenate(scores), np.concatenate(targets), classes)
    means = bootstrap.resampled_means(scores, targets, classes, draws)
    instances = measure_instances(videos, classes, draws)
    starts = start_precision(scores, targets, [video.truth for video in videos], classes, draws=draws)
    segments = measure_segmentation(scores, targets, classes, draws)
    together = measure_events(videos, classes, draws)["together"]
    per_class = {
        label: {
            "labels": entry["labels"],
            "instance_mAP": entry["mean"],
            "start_mAP": starts["per_class"][label]["mean"],
            "F1": segments["per_class"][label]["F1"],
            "edit": segments["per_class"][label]["edit"],
        }
        for label, entry in instances["per_class"].items()
    }
    row = {
        "frames": {"mAP": chunks["mAP"], "interval": {"mAP": bootstrap.interval(means)}},
        "instances": {name: value for name, value in instances.items() if name != "per_class"},
        "starts": {name: value for name, value in starts.items() if name != "per_class"},
        "segments": {name: value for name, value in segments.items() if name != "per_class"},
        "events": {name: together[name] for name in ("labels", "found", "detections", "onset", "edges", "interval")},
        "per_class": per_class,
    }
    return {**rounded(without_nan(row)), DRAWN: resampled_instances(videos, classes, draws)}


def rounded(value: Any) -> Any:
    """The same with four digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def ahead_of(rows: dict[str, Row], kept: Path) -> None:
    """Give each row how far its instance mAP is ahead of the RNN's, by the same resamples."""
    against = kept / f"{AGAINST}.{DRAWN}.npy"
    if AGAINST not in rows or not against.exists():
        return
    for kind, row in rows.items():
        difference = row["instances"]["mean"] - rows[AGAINST]["instances"]["mean"]
        drawn = np.load(kept / f"{kind}.{DRAWN}.npy") - np.load(against)
        edges = bootstrap.interval(drawn)
        row[f"ahead of {AGAINST}"] = rounded({"difference": difference, "interval": edges})


def main() -> None:
    """Run what the record lacks, and write it after each row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/, urfall/ and thumos14/")
    parser.add_argument("--work", type=Path, required=True, help="folder for features and scores")
    parser.add_argument("--sets", nargs="+", default=[*SMALL, SYNTHETIC], choices=[*SMALL, SYNTHETIC])
    parser.add_argument("--kinds", nargs="+", default=[PRIOR, *KINDS], choices=[PRIOR, *KINDS])
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("instances.json"))
    options = parser.parse_args()
    record: Row = json.loads(options.output.read_text()) if options.output.exists() else {}
    for name in options.sets:
        rows = record.setdefault(name, {})
        wanted = [kind for kind in options.kinds if kind not in rows]
        if name == SYNTHETIC:
            found = synthetic_set(options.data / "thumos14", options.work, wanted)
        else:
            found = small_set(name, options.data, options.work, wanted)
        kept = options.work / name
        kept.mkdir(parents=True, exist_ok=True)
        for kind, row in found:
            with replacing(kept / f"{kind}.{DRAWN}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, row.pop(DRAWN))
            rows[kind] = row
            ahead_of(rows, kept)
            about = {"recipe": RECIPE, "preset": PRESET, "seeds": 1, "resamples": RESAMPLES}
            write_json(options.output, {**record, **about, **about_machine()})
            print(name, kind, row["frames"]["mAP"], row["instances"]["mean"], row["segments"]["edit"], flush=True)


if __name__ == "__main__":
    main()
