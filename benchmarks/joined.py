"""Real clips joined into long videos in which an early hug decides how a later fall is called; writes joined.json.

    python benchmarks/frontier.py learn SHARED/data --work FEATURES --points live
    nice python benchmarks/joined.py SHARED/data --features FEATURES --work WORK [--rows lstr-80s rnn-8s --seeds 0]

`joined_clips.py` says how videos are joined. Of each fold the networks of both sets, fine-tuned on the fold's training
videos, make features of all clips, so that no network and no model has seen a clip that it is judged on. Each step of
training joins new videos from the clips of the training videos; the videos that are scored are the same for every row.
The rows differ in kind, memory and windows; all else is the preset `lstr-small`. `rule` is no model of time: a linear
detector of hugs, and a fall is called A where it ever went above a threshold that the training clips chose.

Scores are kept in WORK, the record is written after each row, and what is kept is not trained again. Intervals resample
the ten sequences and the twenty falls, a joined video counting as often as the product of its two.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import process_time

import numpy as np
import torch
from finetuned import lstr
from joined_clips import (
    CLASSES,
    GAPS,
    LEAD,
    SETS,
    WIDTH,
    Fold,
    Joined,
    draw,
    draw_tests,
    read_fold,
)
from joined_seams import check_seams
from recall_task import NOTHING

from lstr.batch import predict
from lstr.chunk import FEATURES_PER_SECOND
from lstr.config import WindowConfig
from lstr.kinds import change, presets
from lstr.labels.label_set import read_labels
from lstr.metrics import bootstrap
from lstr.metrics import per_frame as metrics
from lstr.models.kind import Model
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.training.batches import PieceMaker
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.ranks import ALONE
from lstr.pipelines.training.schedule import rates
from lstr.pipelines.training.step import Learner

RECORD = Path(__file__).with_name("joined.json")
PRESET, POINT, N_FOLDS = "lstr-small", "smallest", 3
TEST_GAPS = (5.0, 10.0, 20.0, 40.0, 60.0)  # seconds
EACH = 20  # scored videos of a gap and fold
RESAMPLES = 1000
AGAINST = "lstr-0s"
REACH = 80 * FEATURES_PER_SECOND  # chunks that hold the whole hug at every gap
TRAINING = TrainConfig(lr=1e-3, weight_decay=1e-4, warmup=0.1, batch_size=16, max_steps=600)
OF_FALLS = 0.5  # share of the training windows that end in a fall


@dataclass(frozen=True)
class Row:
    """One model of the study: what it has otherwise than the preset and the training above."""

    about: str
    model: Mapping[str, object] = field(default_factory=dict)
    train: Mapping[str, object] = field(default_factory=dict)
    seeds: int = 3
    """at most"""

    def configs(self, seed: int) -> tuple[WindowConfig, TrainConfig]:
        """Model and training."""
        model = change(presets()[PRESET].model, {"rgb_dim": 0, "flow_dim": WIDTH, **self.model})
        return model, replace(TRAINING, seed=seed, **self.train)


LONG = {"long_length": REACH, "long_stride": 4}
ROWS = {
    "lstr-80s": Row("LSTR, 80 s of long memory", LONG),
    AGAINST: Row("LSTR without long memory"),
    "rnn-8s": Row("RNN, windows of 8 s (paper)", {"kind": "rnn", "work_length": 32}),
    "miniroad-32s": Row("MiniROAD, windows of 32 s (paper)", {"kind": "miniroad", "work_length": 128}),
    "rnn-80s": Row("RNN, windows of 80 s", {"kind": "rnn", "work_length": REACH}),
    "miniroad-80s": Row("MiniROAD, windows of 80 s", {"kind": "miniroad", "work_length": REACH}),
}


def extract_features(data: Path, features: Path, work: Path, fold: int) -> dict[str, list[Path]]:
    """Feature folders of each set's videos by the networks of both sets that were trained in a fold."""
    found: dict[str, list[Path]] = {name: [] for name in SETS}
    for trained_on in SETS:
        learnt = features / trained_on / f"fold_{fold}" / f"{POINT}.learn"
        for name in SETS:
            path = learnt / "features"
            if name != trained_on:
                path, videos = work / f"fold_{fold}" / f"{name} by {trained_on}", data / name / "videos"
                done = set(open_features(path).ids()) if path.exists() else set()
                if done < read_labels(data / name / "labels.json").videos.keys():
                    lstr("extract", videos, "-o", path, "--recipe", learnt / "weights", "--stream", "flow")
            found[name].append(path)
    return found


def read_folds(data: Path, features: Path, work: Path) -> list[Fold]:
    """The clips of every fold, of features that are extracted where they are not yet."""
    numbers = range(1, N_FOLDS + 1)
    return [read_fold(data, extract_features(data, features, work, fold), fold) for fold in numbers]


def seams(data: Path, features: Path, work: Path) -> dict:
    """What `check_seams` finds of the network that the interactions of the first fold trained."""
    folders = extract_features(data, features, work, 1)
    kept = work / "seams.json"
    if not kept.exists():
        weights = features / SETS[0] / "fold_1" / f"{POINT}.learn" / "weights"
        write_json(kept, check_seams(data, folders, weights, work / "seams"))
    return json.loads(kept.read_text())


def train_on(fold: Fold, model: WindowConfig, config: TrainConfig) -> Model:
    """A model after `config.max_steps` steps, each on new videos of a fold's training clips.

    The videos follow from the seed alone: every row sees the same.
    """
    random = np.random.default_rng([config.seed, 0])
    learner = Learner(model, config, CLASSES, NOTHING, "cpu", ALONE)
    rate = rates(config, config.max_steps, config.max_steps)
    for step in range(config.max_steps):
        joined = [draw(random, fold.training) for _ in range(config.batch_size)]
        ends = [_end(random, one) for one in joined]
        make = PieceMaker([one.video for one in joined], model, config, learner.outputs, ALONE, learner.device)
        learner.step(make(list(enumerate(ends))), step, rate(step))
    return learner.model.eval()


def _end(random: np.random.Generator, joined: Joined) -> int:
    """The last chunk of a training window: in the fall, or anywhere."""
    in_fall, anywhere = random.integers(*joined.fall), random.integers(len(joined.video.targets))
    return int(in_fall if random.random() < OF_FALLS else anywhere)


def detect_hugs(fold: Fold, tests: list[Joined], window: int = 8, penalty: float = 1e3) -> np.ndarray:
    """How far the highest mean so far of a linear hug detector over 2 s is above its threshold at each fall (n,).

    Detector and threshold are of the training clips: what is known of hugs, with a memory without end.
    """
    clips = fold.training
    kinds = (clips.hugs, clips.others, clips.quiet, clips.falls)
    rows = np.concatenate([clip.rows for kind in kinds for clip in kind])
    wanted = np.zeros(len(rows))
    wanted[: sum(len(clip.rows) for clip in clips.hugs)] = 1
    mean = rows.mean(axis=0)
    centred = rows - mean
    weights = np.linalg.solve(
        centred.T @ centred + penalty * np.eye(rows.shape[1]), centred.T @ (wanted - wanted.mean())
    )

    def highest(joined: Joined) -> float:
        shown = np.cumsum([0.0, *((joined.video.features[: joined.fall[0]] - mean) @ weights)])
        return float((shown[window:] - shown[:-window]).max() / window)

    random = np.random.default_rng(1)
    seen = [draw(random, clips) for _ in range(400)]
    found, hugs = np.array([highest(one) for one in seen]), np.array([one.called == 1 for one in seen])
    order = np.sort(found)
    threshold = max((order[1:] + order[:-1]) / 2, key=lambda edge: np.mean((found > edge) == hugs))
    return np.array([highest(one) for one in tests]) - threshold


class Tests:
    """The joined videos of all folds that are scored, and what a row's scores of them come to."""

    def __init__(self, folds: list[Fold]):
        self.of_fold = [
            draw_tests(np.random.default_rng([2, place]), fold.testing, TEST_GAPS, EACH)
            for place, fold in enumerate(folds)
        ]
        self.all = [one for tests in self.of_fold for one in tests]
        self.hugs = np.array([one.called == 1 for one in self.all])
        self.gaps = np.array([one.gap for one in self.all])
        self.draws = np.ones((RESAMPLES, len(self.all)), np.int64)
        for part in range(2):  # sequences, then falls
            names = sorted({one.sources[part] for one in self.all})
            drawn = bootstrap.draw(len(names), RESAMPLES, seed=part)
            self.draws *= drawn[:, [names.index(one.sources[part]) for one in self.all]]

    def accuracy(self, margins: np.ndarray) -> dict:
        """Of falls called right by margins (seeds, n) of A over B, and its resamples (seeds, R)."""
        right = (margins > 0) == self.hugs  # (seeds, n)
        resampled = right @ self.draws.T / np.maximum(self.draws.sum(axis=1), 1)
        sizes = np.cumsum([len(tests) for tests in self.of_fold])[:-1]
        return {
            "accuracy": float(right.mean()),
            "interval": bootstrap.interval(resampled.mean(axis=0)),
            "by_gap": {f"{gap:g}": float(right[:, self.gaps == gap].mean()) for gap in TEST_GAPS},
            "by_fold": [float(part.mean()) for part in np.split(right, sizes, axis=1)],
            "by_seed": right.mean(axis=1).tolist(),
            "resampled": resampled,
        }

    def margins(self, scores: list[np.ndarray]) -> np.ndarray:
        """Mean lead (n,) of A over B in the chunks of each fall."""
        return np.array(
            [(rows[slice(*one.fall)] @ [0, 1, -1]).mean() for rows, one in zip(scores, self.all, strict=True)]
        )

    def mean_ap(self, runs: list[list[np.ndarray]]) -> dict:
        """Per-frame mAP of A and B, mean over seeds, and its resamples (seeds, R)."""
        truth = [one.video.targets for one in self.all]
        whole = [metrics.per_frame(np.concatenate(run), np.concatenate(truth), CLASSES)["mAP"] for run in runs]
        drawn = np.stack([bootstrap.resampled_means(run, truth, CLASSES, self.draws) for run in runs])
        interval = bootstrap.interval(drawn.mean(axis=0))
        return {"mAP": float(np.mean(whole)), "interval": interval, "by_seed": whole, "resampled": drawn}


def kept_scores(path: Path, fold: Fold, tests: list[Joined], row: Row, seed: int) -> tuple[list[np.ndarray], float]:
    """Scores (L, 3) of each test, and the processor seconds they took; from `path` where they are kept there."""
    if not path.exists():
        start = process_time()
        model = train_on(fold, *row.configs(seed))
        scores = [predict(model, one.video.features[:]).numpy() for one in tests]
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, scores=np.concatenate(scores), seconds=process_time() - start)
    with np.load(path) as file:
        edges = np.cumsum([len(one.video.targets) for one in tests])[:-1]
        return np.split(file["scores"], edges), float(file["seconds"])


def judge(tests: Tests, row: Row, runs: Mapping[int, list[list[np.ndarray]]], seconds: list[float]) -> dict:
    """A row of the record, with the resamples that a lead needs; `runs` has the scores of each fold by seed."""
    whole = [[rows for part in parts for rows in part] for parts in runs.values()]
    model, train = row.configs(0)
    return {
        "about": row.about,
        "falls": tests.accuracy(np.stack([tests.margins(scores) for scores in whole])),
        "per_frame": tests.mean_ap(whole),
        "seeds": list(runs),
        "processor_seconds": round(float(np.mean(seconds)), 1),
        "steps": train.max_steps,
        "model": {
            key: value for key, value in asdict(model).items() if value != getattr(presets()[PRESET].model, key, None)
        },
        "train": dict(row.train),
    }


def with_leads(rows: Mapping[str, dict]) -> dict:
    """The rows with their leads over the one without memory, of the same seeds, in the place of resamples."""
    found = {}
    for name, row in rows.items():
        found[name] = {**row}
        for part in ("falls", "per_frame"):
            found[name][part] = {key: value for key, value in row[part].items() if key != "resampled"}
            if AGAINST in rows and name != AGAINST:
                n = min(len(rows[AGAINST]["seeds"]), len(row["seeds"]))
                ours, theirs = row[part], rows[AGAINST][part]
                found[name][part][f"ahead of {AGAINST}"] = {
                    "difference": float(np.mean(ours["by_seed"][:n]) - np.mean(theirs["by_seed"][:n])),
                    "interval": bootstrap.interval((ours["resampled"][:n] - theirs["resampled"][:n]).mean(axis=0)),
                }
    return found


def main(arguments: list[str] | None = None) -> None:
    """Train what is missing, seed after seed, and write the record after each row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--features", type=Path, required=True, help="the WORK of benchmarks/frontier.py")
    parser.add_argument("--work", type=Path, required=True, help="folder for features and scores")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=RECORD)
    options = parser.parse_args(arguments)
    torch.set_flush_denormal(True)  # a gradient that fades over 80 s is made of numbers that are slow to compute with
    folds = read_folds(options.data, options.features, options.work)
    tests = Tests(folds)
    record = {
        **about_machine(),
        "joined": {"gaps": GAPS, "lead": LEAD, "directions": WIDTH, "scored_gaps": TEST_GAPS, "tests": len(tests.all)},
        "clips": [{name: len(found) for name, found in vars(fold.testing).items()} for fold in folds],
        "training": asdict(TRAINING),
        "preset": PRESET,
        "resamples": RESAMPLES,
    }
    record["seams"] = seams(options.data, options.features, options.work)
    rule = tests.accuracy(
        np.concatenate([detect_hugs(fold, part) for fold, part in zip(folds, tests.of_fold, strict=True)])[None]
    )
    record["rule"] = {key: value for key, value in rule.items() if key != "resampled"}
    runs: dict[str, dict[int, list]] = {}
    seconds: dict[str, list[float]] = {}
    rows: dict[str, dict] = {}
    for seed in range(options.seeds):
        for name in [name for name in options.rows if seed < ROWS[name].seeds]:
            found = []
            for place, fold in enumerate(folds):
                path = options.work / f"fold_{place + 1}" / f"{name}-{seed}.npz"
                scores, spent = kept_scores(path, fold, tests.of_fold[place], ROWS[name], seed)
                found.append(scores)
                seconds.setdefault(name, []).append(spent)
            runs.setdefault(name, {})[seed] = found
            rows[name] = judge(tests, ROWS[name], runs[name], seconds[name])
            write_json(options.output, record | {"rows": with_leads(rows)})
            print(f"{name}, seed {seed}: {rows[name]['falls']['accuracy']:.3f} of falls", flush=True)


if __name__ == "__main__":
    main()
