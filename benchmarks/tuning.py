"""Change each setting of finetuning for few videos alone, and write benchmarks/tuning.json.

Of each fold the other videos train the network of differences from ImageNet weights, as `lstr finetune` does but on
small pictures, 64 × 85 pixels. Two things score the fold's own videos: the network's own head on single chunks, and
`small`, trained on the features of the videos that trained the network. Scores of all folds are pooled before metrics;
intervals are over the videos, resampled together for a variant and what it is compared with, and averaged over seeds.
Each variant is compared with `base`, the defaults but for a camera that stands still; where some videos choose the
epoch, with `held_out`, which gives up the same videos. Scores that WORK has are kept, so a run that was stopped goes on
where it was. One core.

    nice python benchmarks/tuning.py SHARED/data --work WORK [--sets urfall] [--only head_lr] [--seeds 1]
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from network_trials import STILL, Fold, NetworkTrials, Systems, config_of, measure, parser_of

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


def fold_of(trials: NetworkTrials, number: int, variant: Variant) -> Fold:
    """Which videos of a fold do what."""
    left = trials.left(number)
    choosing = left[HELD_OUT // 2 :: HELD_OUT] if variant.validates else []
    return Fold([i for i in left if i not in choosing], trials.folds[number], choosing)


def scores(trials: NetworkTrials, more: dict[str, str], name: str, number: int, seed: int) -> Systems:
    """Scores of a fold's videos by a variant; more: settings of all variants."""
    fold = fold_of(trials, number, VARIANTS[name])
    config = config_of({"seed": str(seed), **STILL, **more, **VARIANTS[name].settings})
    model = trials.train(config, fold)
    return trials.scores(model, trials.features(model), fold, seed)


def judged(trials: NetworkTrials, variants: Sequence[str], seeds: int, more: dict[str, str]) -> dict[str, dict]:
    """{variant: {system: mAP, its interval, how far ahead of what it is compared with}}."""
    against = {name: "held out" if VARIANTS[name].validates else "base" for name in variants}

    def kept(name: str, number: int, seed: int) -> Systems:
        return trials.kept(name, number, seed, partial(scores, trials, more, name, number, seed))

    runs = trials.pooled(dict.fromkeys((*against.values(), *variants)), seeds, kept)
    return {
        name: {"settings": VARIANTS[name].settings, "seeds": seeds, **trials.judged(runs, name, other)}
        for name, other in against.items()
    }


def main() -> None:
    """Measure the variants and write the record."""
    parser = parser_of(__doc__, Path(__file__).with_name("tuning.json"))
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--epochs", help="another number for all variants, as for a trial")
    options = parser.parse_args()
    more = {"epochs": options.epochs} if options.epochs else {}
    defaults = asdict(config_of(STILL))
    measure(options, lambda trials: judged(trials, options.only, options.seeds, more), defaults=defaults)


if __name__ == "__main__":
    main()
