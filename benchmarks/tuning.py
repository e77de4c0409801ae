"""Change each setting of finetuning for few videos alone, and write benchmarks/tuning.json.

Of each fold the other videos train the network of differences from ImageNet weights, as `lstr finetune` does but on
small pictures, 64 × 85 pixels. Two things score the fold's own videos: the network's own head on single chunks, and
`small`, trained on the features of the videos that trained the network. Scores of all folds are pooled before metrics;
intervals are over the videos, resampled together for a variant and what it is compared with, and averaged over seeds.
Each variant is compared with `base`, the defaults; where some videos choose the epoch, with `held_out`, which gives up
the same videos. Scores that WORK has are kept, so a run that was stopped goes on where it was. One core.

    nice python benchmarks/tuning.py SHARED/data --work WORK [--sets urfall] [--only head_lr] [--seeds 1]
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from finetuned import folds_of
from held_out import Scores
from network_trials import SIZE, STREAM, SYSTEMS, Fold, NetworkTrials
from real_data import RESAMPLES, judge

from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

SETS = ("ut_interaction", "urfall")
HELD_OUT = 4  # one training video in so many chooses the epoch, where a variant needs one


@dataclass(frozen=True)
class Variant:
    """What differs from the defaults."""

    settings: dict[str, str] = field(default_factory=dict)
    validates: bool = False
    """Whether some training videos choose the epoch."""


VARIANTS = {
    "base": Variant(),
    "one rate": Variant({"head_lr": "0"}),
    "layer decay": Variant({"layer_decay": "0.2"}),
    "batch norms kept": Variant({"partial_bn": "true"}),
    "no mixup": Variant({"mixup": "0"}),
    "CutMix": Variant({"mixup": "0", "cutmix": "1"}),
    "mixup and CutMix": Variant({"cutmix": "1"}),
    "classes as they are": Variant({"balanced": "0"}),
    "classes alike": Variant({"balanced": "1"}),
    "label smoothing": Variant({"smoothing": "0.1"}),
    "EMA": Variant({"ema": "0.98"}),
    "no larger crops": Variant({"crop_range": "1"}),
    "dropout": Variant({"dropout": "0.5"}),
    "held out": Variant({"eval_every": "16"}, True),
    "early end": Variant({"eval_every": "1", "chosen_by": "loss", "patience": "3"}, True),
}
"""Each setting alone; those that validate are compared with `held out`, which takes the last epoch."""


class Tuning:
    """Scores of one set's videos by each variant, kept in a folder."""

    def __init__(self, name: str, options: argparse.Namespace):
        self.trials = NetworkTrials(options.data / name, options.work / name, options.cache)
        self.work, self.epochs = options.work / name, options.epochs
        self.folds = folds_of(sorted(self.trials.cached))

    def fold(self, number: int, variant: Variant) -> Fold:
        """Which videos of a fold do what."""
        testing = self.folds[number]
        others = [i for i in sorted(self.trials.cached) if i not in testing]
        choosing = others[HELD_OUT // 2 :: HELD_OUT] if variant.validates else []
        return Fold([i for i in others if i not in choosing], testing, choosing)

    def scores(self, name: str, number: int, seed: int) -> dict[str, Scores]:
        """Scores of a fold's videos by both systems; computed where the folder lacks them."""
        kept = self.work / f"fold_{number}" / name.replace(" ", "_") / f"seed_{seed}.npz"
        fold = self.fold(number, VARIANTS[name])
        if not kept.exists():
            more = {"epochs": self.epochs} if self.epochs else {}
            config = self.trials.config({"seed": str(seed), **more, **VARIANTS[name].settings})
            found = self.trials.scores(self.trials.train(config, fold), fold, seed)
            kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as temporary, temporary.open("wb") as file:
                np.savez(file, **{f"{system} {i}": rows for system in SYSTEMS for i, rows in found[system].items()})
        with np.load(kept) as file:
            return {system: {i: file[f"{system} {i}"] for i in fold.testing} for system in SYSTEMS}

    def judged(self, variants: Sequence[str], seeds: int) -> dict[str, dict]:
        """{variant: {system: mAP, its interval, how far ahead of what it is compared with}}."""
        against = {v: "held out" if VARIANTS[v].validates else "base" for v in variants}
        scores: dict[str, dict[str, list[Scores]]] = {}
        known = self.trials.known()
        for seed in range(seeds):
            for variant in dict.fromkeys((*against.values(), *variants)):
                runs = scores.setdefault(variant, {system: [] for system in SYSTEMS})
                for system in SYSTEMS:
                    runs[system].append({})
                for number in range(len(self.folds)):
                    for system, found in self.scores(variant, number, seed).items():
                        runs[system][seed] |= found
                told = [f"{s} {known.per_frame(runs[s][seed])['mAP']:.3f}" for s in SYSTEMS]
                print(self.work.name, f"seed {seed}", variant, *told, flush=True)
        rows: dict[str, dict] = {}
        for variant, other in against.items():
            rows[variant] = {"settings": VARIANTS[variant].settings, "seeds": seeds}
            for system in SYSTEMS:
                both = {v: scores[v][system] for v in dict.fromkeys((other, variant))}
                rows[variant][system] = judge(known, both, other)[variant]
        return rows


def main() -> None:
    """Measure the variants and write the record, in which those of before stay."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for scores")
    parser.add_argument("--cache", type=Path, help="chunk cache; WORK/chunks by default")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", help="another number for all variants, as for a trial")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("tuning.json"))
    options = parser.parse_args()
    options.cache = options.cache or options.work / "chunks"
    torch.set_num_threads(1)
    for name in options.sets:
        tuning = Tuning(name, options)
        rows = tuning.judged(options.only, options.seeds)
        record = json.loads(options.output.read_text()) if options.output.exists() else {}
        record[name] = record.get(name, {}) | rows
        about = {"stream": STREAM, "size": SIZE, "defaults": asdict(tuning.trials.config({}))}
        write_json(options.output, record | about | {"resamples": RESAMPLES} | about_machine())


if __name__ == "__main__":
    main()
