"""What keeps a long memory from learning few videos by heart; writes small-memory.json.

    python benchmarks/frontier.py learn SHARED/data --work FEATURES --points live
    nice python benchmarks/small_memory.py SHARED/data --features FEATURES --work WORK [--settings hide-80]

Each setting is LSTR of the preset `lstr-small` with a long memory, and answers two questions. On the folds of
UT-Interaction and UR Fall (16 s of memory; features and folds of benchmarks/kinds.py), where nobody knows what a memory
could gain: how far are the training videos ahead of the test videos, and is it worse than the preset, which has no
memory? On the joined videos of benchmarks/joined.py (80 s of memory), where all depends on the memory: does it still
recall? Intervals are those of benchmarks/kinds.py and joined.py.

Scores are kept in WORK, the record is written after each setting, and what is kept is not trained again; `--on SET`
changes the record of that set alone.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from finetuned import N_FOLDS, folds_of
from held_out import HeldOut, Scores
from joined import AGAINST, LONG, ROWS, Row, Tests, kept_scores, read_folds, with_leads
from joined import judge as judge_joined
from joined_clips import SETS
from real_data import RESAMPLES, judge
from regularised import plain, regularised, regularised_by

from lstr.labels.label_set import read_labels
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).with_name("small-memory.json")
PRESET, POINT = "lstr-small", "smallest"
NONE, JOINED = "none", "joined"


@dataclass(frozen=True)
class Setting:
    """A way to have a long memory, or none."""

    about: str
    model: Mapping[str, object] = field(default_factory=dict)
    hide: float = 0.0
    """share of the slots hidden in training (`train.hide_long`)"""
    drop: float = 0.0
    """share of the training windows that see none of their memory but its newest slot"""
    mean_free: bool = False
    """whether the mean of a window's memory tokens is taken off each"""
    seeds: int = 1
    """on the folds, at most: two of what came close to no memory with one, and of nothing"""
    steps: int = 0
    """of training on the joined videos, where not joined.py's; such a setting is for these alone"""

    def changes(self, long: Mapping[str, object]) -> dict[str, str]:
        """For `resolve`, and what it does not know as `memory.x`."""
        found = {f"model.{name}": str(value) for name, value in {**long, **self.model}.items()}
        found["train.hide_long"] = str(self.hide)
        own = {"memory.drop": str(self.drop) if self.drop else "", "memory.mean_free": "true" if self.mean_free else ""}
        return found | {name: value for name, value in own.items() if value}


SHORT = {"long_length": 64, "long_stride": 4}
SETTINGS = {
    "plain": Setting("nothing against it", seeds=2),
    "hide-80": Setting("80 % of the slots hidden", hide=0.8, seeds=2),
    "stride-16": Setting("a slot in 4 s", {"long_stride": 16}),
    "drop-50": Setting("half of the memories dropped whole", drop=0.5, seeds=2),
    "mean-free": Setting("tokens without their mean", mean_free=True),
    "plain-longer": Setting("nothing against it, three times the steps", steps=1800),
    "hide-80-longer": Setting("80 % of the slots hidden, three times the steps", hide=0.8, steps=1800),
    "queries-1": Setting("one query in each stage", {"n0": 1, "n1": 1}),
}


class Regularised(HeldOut):
    """As HeldOut, for settings with `memory.drop` and `memory.mean_free` too."""

    def _trained(self, settings: Mapping[str, str], seed: int, training: list, testing: list) -> list[np.ndarray]:
        with regularised_by(settings):
            return super()._trained(plain(settings), seed, training, testing)


class RealFolds:
    """The folds of one set, and every setting's scores of all its videos."""

    def __init__(self, data: Path, features: Path, work: Path, name: str):
        ids = sorted(read_labels(data / name / "labels.json").videos)
        self.ids, self.folds, self.held = ids, folds_of(ids), []
        for fold in range(1, N_FOLDS + 1):
            learnt, kept = features / name / f"fold_{fold}", work / name / f"fold_{fold}"
            kept.mkdir(parents=True, exist_ok=True)
            folder = open_features(learnt / f"{POINT}.learn" / "features")
            self.held.append(Regularised(folder, read_labels(learnt / "labels.json"), PRESET, kept))

    def run(self, changes: Mapping[str, str], seeds: int) -> tuple[list[Scores], float]:
        """Scores of each video by models that did not see it, a seed each; and the mAP of the training videos."""
        runs: list[Scores] = []
        on_training = []
        for seed in range(seeds):
            runs.append({})
            for held, testing in zip(self.held, self.folds, strict=True):
                training = [i for i in self.ids if i not in testing]
                found = held.scores(changes, seed, training, self.ids)
                runs[-1] |= {i: found[i] for i in testing}
                on_training.append(held.per_frame({i: found[i] for i in training})["mAP"])
        return runs, float(np.mean(on_training))

    def judge(self, without: list[Scores], runs: list[Scores], on_training: float) -> dict:
        """A row of the record: mAP of the test videos, how far it is ahead of no memory and behind training videos."""
        row = judge(self.held[0], {NONE: without[: len(runs)], "row": runs}, NONE)["row"]
        lead = row[f"ahead of {NONE}"]["mAP"]
        return {
            "mAP": row["mAP"],
            "interval": row["interval"]["mAP"],
            "mAP_by_seed": row["mAP_by_seed"] if len(runs) > 1 else [row["mAP"]],
            "seeds": len(runs),
            f"ahead of {NONE}": lead,
            "mAP_of_training_videos": on_training,
            "gap": on_training - row["mAP"],
        }


def run_joined(work: Path, folds: list, tests: Tests, name: str, seeds: int) -> dict:
    """A setting's row of the joined videos; those without memory and without anything against it are joined.py's."""
    known = {NONE: AGAINST, "plain": "lstr-80s"}
    setting = SETTINGS.get(name, Setting(""))
    if name in known:
        row = ROWS[known[name]]
    else:
        train = {"hide_long": setting.hide} | ({"max_steps": setting.steps} if setting.steps else {})
        row = Row(setting.about, {**LONG, **setting.model}, train, seeds=1)
    runs, seconds = {}, []
    for seed in range(min(seeds, row.seeds)):
        runs[seed] = []
        for place, fold in enumerate(folds):
            path = work / f"fold_{place + 1}" / f"{known.get(name, f'memory-{name}')}-{seed}.npz"
            with regularised(setting.drop, setting.mean_free):
                found, spent = kept_scores(path, fold, tests.of_fold[place], row, seed)
            runs[seed].append(found)
            seconds.append(spent)
    return judge_joined(tests, row, runs, seconds)


def main(arguments: list[str] | None = None) -> None:
    """Train what is missing, and write the record after each setting."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--features", type=Path, required=True, help="the WORK of benchmarks/frontier.py")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for scores; benchmarks/joined.py's own may serve"
    )
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS, metavar="SETTING")
    parser.add_argument("--on", nargs="+", default=[*SETS, JOINED], choices=[*SETS, JOINED])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=RECORD)
    options = parser.parse_args(arguments)
    torch.set_flush_denormal(True)
    before = json.loads(options.output.read_text()) if options.output.exists() else {}
    record: dict = {**before, **about_machine(), "preset": PRESET, "features": POINT, "resamples": RESAMPLES}
    record["settings"] = {name: one.about for name, one in SETTINGS.items()}
    for name in options.on:
        rows = _on_joined(options) if name == JOINED else _on_folds(options, name)
        record[name] = {}
        for setting, row in rows:
            record[name][setting] = row
            write_json(options.output, record)
            figure = row["falls"]["accuracy"] if name == JOINED else row["mAP"]
            print(f"{name}, {setting}: {figure:.3f}", flush=True)


def _on_folds(options: argparse.Namespace, name: str) -> Iterator[tuple[str, dict]]:
    """Each setting's row of one set."""
    folds = RealFolds(options.data, options.features, options.work, name)
    without, on_training = folds.run({}, options.seeds)
    yield NONE, folds.judge(without, without, on_training)
    for setting in [name for name in options.settings if not SETTINGS[name].steps]:
        one = SETTINGS[setting]
        yield setting, folds.judge(without, *folds.run(one.changes(SHORT), min(one.seeds, options.seeds)))


def _on_joined(options: argparse.Namespace) -> Iterator[tuple[str, dict]]:
    """Each setting's row of the joined videos."""
    folds = read_folds(options.data, options.features, options.work)
    tests, rows = Tests(folds), {}
    for setting in (NONE, *options.settings):
        rows[AGAINST if setting == NONE else setting] = run_joined(options.work, folds, tests, setting, options.seeds)
        yield setting, [*with_leads(rows).values()][-1]


if __name__ == "__main__":
    main()
