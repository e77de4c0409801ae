"""Change each setting of finetuning for few videos alone, and write benchmarks/tuning.json.

Of each fold the other videos train a network from ImageNet weights (`lstr finetune`), it makes features of all videos
(`lstr extract`), and two things score the fold's own videos: the network's own head on single chunks, and `small`,
trained on the features of the videos that trained the network. Scores of all folds are pooled before the metrics;
intervals are over the videos, resampled together for a variant and what it is compared with, and averaged over seeds.
Each variant is compared with `base`, the defaults; where some videos choose the epoch, with `held_out`, which gives up
the same videos. Scores that WORK has are kept, so a run that was stopped goes on where it was.

    nice python benchmarks/tuning.py SHARED/data --work WORK [--only head_lr --folds 1 --seeds 1]
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from finetuned import folds_of, lstr
from held_out import HeldOut, Scores
from real_data import RESAMPLES, judge

from lstr.extractors.weights.content import read_state_dict
from lstr.labels.label_set import Labels, read_labels, targets
from lstr.pipelines.datasets.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.features.folder import FeatureFolder, open_features
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

SETS = ("ut_interaction", "urfall")
SYSTEMS = ("head", "small")
HELD_OUT = 4  # one training video in so many chooses the epoch, where a variant needs one
SIDE = 112


@dataclass(frozen=True)
class Variant:
    """What differs from the defaults."""

    settings: dict[str, str] = field(default_factory=dict)
    validates: bool = False
    """Whether some training videos choose the epoch."""


VARIANTS = {
    "base": Variant(),
    "head_lr": Variant({"head_lr": "0"}),
    "layer_decay": Variant({"layer_decay": "0.2"}),
    "partial_bn": Variant({"partial_bn": "true"}),
    "no_mixup": Variant({"mixup": "0"}),
    "cutmix": Variant({"mixup": "0", "cutmix": "1"}),
    "mixup_and_cutmix": Variant({"cutmix": "1"}),
    "as_they_are": Variant({"balanced": "0"}),
    "balanced": Variant({"balanced": "1"}),
    "segments": Variant({"samples": "segments"}),
    "smoothing": Variant({"smoothing": "0.1"}),
    "ema": Variant({"ema": "0.98"}),
    "no_warmup": Variant({"warmup_steps": "0", "warmup": "0"}),
    "tsn_crops": Variant({"crop_range": "0"}),
    "no_crops": Variant({"crop_range": "1"}),
    "no_jitter": Variant({"contrast": "0", "brightness": "0"}),
    "colour": Variant({"colour": "0.3"}),
    "dropout": Variant({"dropout": "0.5"}),
    "weight_decay": Variant({"weight_decay": "0.1"}),
    "half_as_long": Variant({"epochs": "4"}),
    "twice_as_long": Variant({"epochs": "16"}),
    "held_out": Variant({"eval_every": "16"}, True),
    "best_mAP": Variant({"eval_every": "1"}, True),
    "early_end": Variant({"eval_every": "1", "chosen_by": "loss", "patience": "3"}, True),
}
"""Each setting alone; those that validate are compared with `held_out`, which takes the last epoch."""


class Known(HeldOut):
    """What videos show, for the metrics of scores whose features are gone."""

    def __init__(self, labels: Labels, lengths: dict[str, int]):
        self.labels, self.videos = labels, {}
        for video_id, n in lengths.items():
            nothing = TwoStreamArray(np.zeros((n, 0), np.float32), np.zeros((n, 0), np.float32))
            self.videos[video_id] = LabelledVideo(
                video_id, nothing, targets(labels.videos[video_id], labels.classes, n)
            )


def write_labels(source: Path, testing: Sequence[str], variant: Variant, output: Path) -> None:
    """The labels of a set with a fold's videos as testing, the others as training and, where wanted, validation."""
    document = json.loads(source.read_text())
    training = [video_id for video_id in sorted(document["database"]) if video_id not in testing]
    choosing = training[HELD_OUT // 2 :: HELD_OUT] if variant.validates else []
    for video_id, entry in document["database"].items():
        entry["subset"] = "validation" if video_id in choosing else "training" if video_id in training else "testing"
    write_json(output, document)


def head_scores(weights: Path, features: FeatureFolder, testing: Sequence[str]) -> Scores:
    """Class probabilities of single chunks, by the head that a network was trained with."""
    tensors = read_state_dict(weights)
    weight, bias = (tensors[f"cls_head.fc_cls.{name}"].float().numpy() for name in ("weight", "bias"))
    scores = {}
    for video_id in testing:
        logits = np.concatenate(features.load(video_id), axis=1).astype(np.float32) @ weight.T + bias
        powers = np.exp(logits - logits.max(1, keepdims=True))
        scores[video_id] = powers / powers.sum(1, keepdims=True)
    return scores


def score(options: argparse.Namespace, name: str, fold: int, variant: str, seed: int) -> dict[str, Scores]:
    """Scores of a fold's videos by both systems; computed where WORK lacks them."""
    work = options.work / name / f"fold_{fold}" / variant / f"seed_{seed}"
    kept, source = work / "scores.npz", options.data / name
    ids = sorted(read_labels(source / "labels.json").videos)
    testing = folds_of(ids)[fold - 1]
    if not kept.exists():
        labels, weights, features = work / "labels.json", work / "weights", work / "features"
        write_labels(source / "labels.json", testing, VARIANTS[variant], labels)
        cache = ["--set", f"cache={options.cache}"]
        if not (weights / "finetune.json").exists():
            changes = {"seed": str(seed), **VARIANTS[variant].settings}
            changes |= {"epochs": options.epochs} if options.epochs else {}
            words = [word for n, value in changes.items() for word in ("--set", f"{n}={value}")]
            words += ["--resume"] if weights.exists() else []
            begins = ["--recipe", options.recipe, "--stream", "rgb", "--init", "imagenet"]
            lstr("finetune", source / "videos", "--labels", labels, "-o", weights, *begins, *words, *cache)
        lstr("extract", source / "videos", "-o", features, "--recipe", weights, *cache)
        folder = open_features(features)
        held = HeldOut(folder, read_labels(labels), "small", work / "small")
        training = [video_id for video_id in ids if video_id not in testing]
        found = {
            "head": head_scores(weights / "rgb.pth", folder, testing),
            "small": held.scores({}, seed, training, testing),
        }
        with replacing(kept) as temporary, temporary.open("wb") as file:
            np.savez(file, **{f"{system} {i}": rows for system in SYSTEMS for i, rows in found[system].items()})
        for path in (weights, features, work / "small"):  # hundreds of megabytes each, of which the scores are all
            shutil.rmtree(path)
    with np.load(kept) as file:
        return {system: {i: file[f"{system} {i}"] for i in testing} for system in SYSTEMS}


def judge_set(options: argparse.Namespace, name: str, variants: Sequence[str]) -> dict[str, dict]:
    """{variant: {system: mAP, its interval, how far ahead of what it is compared with}}."""
    scores: dict[str, dict[str, list[Scores]]] = {}
    against = {v: "held_out" if VARIANTS[v].validates else "base" for v in variants}
    for variant in dict.fromkeys((*against.values(), *variants)):
        runs = scores[variant] = {system: [{} for _ in range(options.seeds)] for system in SYSTEMS}
        for seed in range(options.seeds):
            for fold in range(1, options.folds + 1):
                for system, found in score(options, name, fold, variant, seed).items():
                    runs[system][seed] |= found
    first = scores[against[variants[0]]]["head"][0]
    known = Known(read_labels(options.data / name / "labels.json"), {i: len(rows) for i, rows in first.items()})
    rows: dict[str, dict] = {}
    for variant in variants:
        other = against[variant]
        rows[variant] = {"settings": VARIANTS[variant].settings, "folds": options.folds, "seeds": options.seeds}
        for system in SYSTEMS:
            both = {v: scores[v][system] for v in dict.fromkeys((other, variant))}
            rows[variant][system] = found = judge(known, both, other)[variant]
            ahead = found[f"ahead of {other}"]["mAP"]
            print(f"{name} {variant} {system}: {found['mAP']:.3f}, ahead of {other}: {ahead}", flush=True)
    return rows


def main() -> None:
    """Measure the variants and write the record, in which those of before stay."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for weights, features and scores")
    parser.add_argument("--cache", type=Path, help="chunk cache; WORK/chunks by default")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--folds", type=int, default=3, choices=(1, 2, 3), help="how many of the three")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", help="another number for all variants, as for a trial")
    parser.add_argument("--recipe", type=Path, help="a recipe file of one RGB network with ImageNet weights")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("tuning.json"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.cache = options.cache or options.work / "chunks"
    if not options.recipe:
        options.recipe, network = options.work / "recipe.json", {"network": "efficientnet-lite0", "crops": 2}
        write_json(options.recipe, {"rgb": network, "flow": None, "short_side": SIDE, "crop": SIDE})
    record = json.loads(options.output.read_text()) if options.output.exists() else {}
    recipe = json.loads(options.recipe.read_text())
    if record.get("recipe", recipe) != recipe:
        parser.error(f"{options.output} is of another recipe: choose another --output.")
    for name in options.sets:
        record[name] = record.get(name, {}) | judge_set(options, name, options.only)
        write_json(options.output, record | {"recipe": recipe, "resamples": RESAMPLES} | about_machine())


if __name__ == "__main__":
    main()
