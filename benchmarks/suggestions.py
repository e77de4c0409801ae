"""Which proposals are worth looking at first: simulated corrections on two small public sets, and a figure.

python benchmarks/suggestions.py SHARED/data --work WORK [--seeds 2]

Two sequences of UT-Interaction, or four videos of UR Fall, are labelled. A model of them proposes actions in a pool of
other videos; a program looks at proposals in one of the orders of `lstr label`, with a second before and after each,
and learns what is true of what it saw, which always includes whole actions; a model of all that is known so far
proposes again, after each quarter of the pool's length. What is not looked at teaches nothing. `in turn` is a person
without a model, who watches the pool's videos one after the other. Each model is scored on a third of the videos, in
three folds, that were never shown. Features are those of networks as ImageNet has taught them (the streams
`difference` and `change`), so that no network has seen the pool. Writes suggestions.json and the figure.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from few_videos import all_training
from finetuned import lstr
from held_out import HeldOut, Scores
from learn import PICTURES, SETS

from lstr.chunk import CHUNK_SECONDS
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, read_labels, runs
from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.pipelines.datasets.dataset import LabelledVideo
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.labelling.orders import ORDERS, Placed, at_random, densest, in_time, least_sure
from lstr.pipelines.labelling.values import Proposal
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.thresholds.by_actions import Rule, Scored, choose_rule, choose_without_each
from lstr.pipelines.thresholds.by_chunks import curves_of, detect_spans
from lstr.timeline import Thresholds

RECORD = Path(__file__).resolve().parent / "suggestions.json"
FIGURE = PICTURES / "suggestions.png"
N_FOLDS, PARTS = 3, 4
LABELLED = {"ut_interaction": 2, "urfall": 4}
Order = Callable[[list[Placed]], list[Placed]]
AROUND = 4  # chunks before and after a proposal that are seen with it
IN_TURN = "in turn"
COLOURS = {"least sure": "#1f77b4", "densest": "#2ca02c", "random": "#8c8c8c", "in time": "#ff7f0e", IN_TURN: "#d62728"}


def features_of(name: str, data: Path, work: Path) -> tuple[Path, Path]:
    """Features of a set by networks as ImageNet has taught them, and its labels with every video for training."""
    labels = all_training(data / name / "labels.json", work)
    weights, features = (work / f"{name}{end}" for end in ("-weights", "-features"))
    videos = data / name / "videos"
    frozen = ["--recipe", "motion", "--set", "epochs=0", "--set", f"cache={work / 'chunks'}"]
    if not weights.exists():
        lstr("finetune", videos, "--labels", labels, "-o", weights, *frozen)
    lstr("extract", videos, "-o", features, "--recipe", weights)
    return features, labels


@dataclass
class Pool:
    """The videos of one fold, and what is known of each chunk."""

    held: HeldOut
    labelled: Sequence[str]
    pool: Sequence[str]
    testing: Sequence[str]
    known: dict[str, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        whole = {i: len(self.held.videos[i].targets) for i in (*self.labelled, *self.pool)}
        self.known = {i: np.full(n, i in self.labelled) for i, n in whole.items()}

    @property
    def looked(self) -> int:
        """Chunks of the pool that were looked at."""
        return sum(int(self.known[i].sum()) for i in self.pool)

    @property
    def length(self) -> int:
        """Chunks of the pool."""
        return sum(len(self.known[i]) for i in self.pool)

    def look(self, video: str, start: int, end: int) -> None:
        """Know what is true from one chunk to another, and of every action that begins or ends there."""
        for column in range(1, self.held.videos[video].targets.shape[1]):
            for a, b in runs(self.held.videos[video].targets[:, column] > 0):
                if a < end and b > start and self.held.labels.classes[column] != AMBIGUOUS:
                    self.known[video][a:b] = True
        self.known[video][max(0, start) : end] = True

    def targets_of(self, video: str, classes: Sequence[str]) -> np.ndarray:
        """What is known of a video (L, C): ambiguous where nothing is."""
        result, column = self.held.videos[video].targets.copy(), list(classes).index(AMBIGUOUS)
        result = np.pad(result, ((0, 0), (0, len(classes) - result.shape[1])))
        result[~self.known[video]] = 0
        result[~self.known[video], column] = 1
        return result

    def train(self, seed: int) -> tuple[Scores, Rule]:
        """Scores of the pool and of the testing videos by a model of what is known, and the rule it would detect by."""
        held, classes = self.held, self.held.labels.classes
        classes = classes if AMBIGUOUS in classes else (*classes, AMBIGUOUS)
        teaching = [i for i in (*self.labelled, *self.pool) if self.known[i].any()]
        videos = [LabelledVideo(i, held.videos[i].features, self.targets_of(i, classes)) for i in teaching]
        wanted = list(dict.fromkeys((*teaching, *self.pool, *self.testing)))
        found = held.trained({}, seed, videos, [held.videos[i] for i in wanted], classes)
        scores = {i: rows[:, : len(held.labels.classes)] for i, rows in zip(wanted, found, strict=True)}
        seen = [held_truth(held, i, scores[i]) for i in self.labelled]
        return scores, choose_rule(seen, held.labels.classes, seen=True)

    def proposals(self, scores: Scores, rule: Rule) -> list[Placed]:
        """Actions and near misses in chunks of the pool that nobody has looked at."""
        found = []
        classes = self.held.labels.classes
        columns = [c for c, label in enumerate(classes) if label not in (BACKGROUND, AMBIGUOUS)]
        for video in self.pool:
            curves = curves_of(scores[video], columns, rule.thresholds.highest)
            for at, column in enumerate(columns):
                on = rule.by_class.get(classes[column], rule.thresholds).on
                near = Thresholds(on=on / 2, off=on / 3, min_length=0.25, merge_gap=0.5)
                for k, (start, end) in enumerate(detect_spans(curves[:, at], near)):
                    chunks = slice(round(start / CHUNK_SECONDS), round(end / CHUNK_SECONDS))
                    if not self.known[video][chunks].all():
                        peak = float(curves[chunks, at].max())
                        proposal = Proposal(classes[column], float(start), float(end), peak, on, "model")
                        found.append(Placed(video, f"{column}-{k}", proposal))
        return found


def held_truth(held: HeldOut, video: str, scores: np.ndarray) -> Scored:
    """A video's scores beside its labels."""
    return Scored(scores, held.labels.videos[video].segments)


def judge_events(held: HeldOut, scores: Mapping[str, np.ndarray]) -> float:
    """F1 of the events of each video by thresholds that the others chose."""
    classes = held.labels.classes
    actions = [c for c, label in enumerate(classes) if label not in (BACKGROUND, AMBIGUOUS)]
    videos = [held_truth(held, i, rows) for i, rows in scores.items()]
    _, rules = choose_without_each([[video] for video in videos], classes)
    events = []
    for video, rule in zip(videos, rules, strict=True):
        curves = curves_of(video.scores, actions, rule.thresholds.highest)
        found = [
            Segment(float(a), float(b), classes[column])
            for at, column in enumerate(actions)
            for a, b in detect_spans(curves[:, at], rule.by_class[classes[column]])
        ]
        events.append(VideoEvents(video.truth, found, len(video.scores) * CHUNK_SECONDS))
    return float(measure_events(events, classes)["together"]["iou"]["0.3"]["f1"])


def look_around(pool: Pool, order: Order, scores: Scores, rule: Rule, most: int) -> None:
    """Look at proposals in an order until so many chunks were looked at, or none is left."""
    for placed in order(pool.proposals(scores, rule)):
        if pool.looked >= most:
            return
        start, end = (round(at / CHUNK_SECONDS) for at in (placed.proposal.start, placed.proposal.end))
        if not pool.known[placed.video][start:end].all():
            pool.look(placed.video, max(0, start - AROUND), end + AROUND)


def watch(pool: Pool, most: int, seed: int) -> None:
    """Watch the pool's videos from beginning to end, in an order of chance."""
    for video in np.random.default_rng(seed).permutation(pool.pool):
        left = most - pool.looked
        unseen = np.flatnonzero(~pool.known[video])
        if left > 0 and len(unseen):
            pool.look(video, int(unseen[0]), int(unseen[0]) + left)


def orders_of(pool: Pool, seed: int) -> dict[str, Order | None]:
    """How proposals are ordered, by name; None of who watches without any."""
    seconds = {i: len(rows) * CHUNK_SECONDS for i, rows in pool.known.items()}
    orders = {"least sure": least_sure, "densest": partial(densest, durations=seconds), "in time": in_time}
    orders |= {"random": partial(at_random, seed=seed)}
    assert orders.keys() == ORDERS.keys()
    return {**orders, IN_TURN: None}


def simulate(held: HeldOut, name: str, fold: int, seed: int, work: Path) -> dict[str, list[tuple[float, Scores]]]:
    """{order: minutes looked at and the scores of the testing videos then, first without and last with all of it}."""
    ids = sorted(held.videos)
    testing = ids[fold::N_FOLDS]
    others = [i for i in ids if i not in testing]
    result: dict[str, list[tuple[float, Scores]]] = {}
    path = work / f"{name}-{fold}-{seed}.npz"
    if path.exists():
        with np.load(path) as file:
            for key in file.files:
                order, part, minutes, video = key.split("|")
                steps = result.setdefault(order, [])
                steps.extend((float(minutes), {}) for _ in range(int(part) + 1 - len(steps)))
                steps[int(part)][1][video] = file[key]
        return result

    def fresh() -> Pool:
        return Pool(held, others[: LABELLED[name]], others[LABELLED[name] :], testing)

    def of_testing(scores: Scores) -> Scores:
        return {i: scores[i] for i in testing}

    whole = fresh()
    for video in whole.pool:
        whole.look(video, 0, len(whole.known[video]))
    last = of_testing(whole.train(seed)[0])
    first, first_rule = fresh().train(seed)
    for order_name, order in orders_of(whole, seed).items():
        pool, scores, rule = fresh(), first, first_rule
        steps = [(0.0, of_testing(first))]
        for part in range(1, PARTS):
            most = round(pool.length * part / PARTS)
            before = pool.looked
            if order is None:
                watch(pool, most, seed)
            else:
                look_around(pool, order, scores, rule, most)
            if pool.looked == before:
                break
            scores, rule = pool.train(seed)
            steps.append((pool.looked * CHUNK_SECONDS / 60, of_testing(scores)))
        result[order_name] = [*steps, (whole.length * CHUNK_SECONDS / 60, last)]
        print(name, fold, seed, order_name, [round(minutes, 2) for minutes, _ in steps], flush=True)
    arrays = {
        f"{order}|{part}|{minutes}|{video}": rows
        for order, steps in result.items()
        for part, (minutes, scores) in enumerate(steps)
        for video, rows in scores.items()
    }
    np.savez(path, **arrays)
    return result


def measured(held: HeldOut, runs_by_seed: Sequence[Sequence[Mapping[str, list[tuple[float, Scores]]]]]) -> dict:
    """{order: steps with minutes (mean over the folds), mAP and F1 over all videos, means of the seeds}."""
    result = {}
    for order in (*ORDERS, IN_TURN):
        n_steps = min(len(fold[order]) for folds in runs_by_seed for fold in folds)
        steps = []
        for part in range(n_steps):
            at = part if part < n_steps - 1 else -1
            minutes = np.mean([fold[order][at][0] for folds in runs_by_seed for fold in folds])
            together = [{i: s for fold in folds for i, s in fold[order][at][1].items()} for folds in runs_by_seed]
            found = [{"mAP": float(held.per_frame(s)["mAP"]), "f1": judge_events(held, s)} for s in together]
            means = {value: float(np.mean([one[value] for one in found])) for value in ("mAP", "f1")}
            steps.append({"minutes": float(minutes), **means, "by_seed": found})
        result[order] = steps
    return result


def draw(record: dict) -> None:
    """mAP and event F1 against minutes of the pool looked at."""
    names = [name for name in SETS if name in record]
    figure, panels = plt.subplots(2, len(names), figsize=(5.4 * len(names), 6.6), squeeze=False)
    for column, name in enumerate(names):
        for order, steps in record[name]["orders"].items():
            across = [step["minutes"] for step in steps]
            for panel, value in zip(panels[:, column], ("mAP", "f1"), strict=True):
                panel.plot(
                    across, [step[value] for step in steps], "o-", color=COLOURS[order], label=order, markersize=4
                )
        panels[0, column].set_title(SETS[name])
        panels[1, column].set_xlabel("minutes of new video looked at, mean of three folds")
    for row, what in zip(panels, ("per-frame mAP", "event F1, IoU 0.3"), strict=True):
        row[0].set_ylabel(what)
    for panel in panels.flat:
        panel.grid(alpha=0.25)
    panels[0, 0].legend(loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=110)


def main() -> None:
    """Simulate what is not yet simulated in the work folder, then write the record and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=SETS)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in options.sets:
        features, labels = features_of(name, options.data, options.work)
        held = HeldOut(open_features(features), read_labels(labels), "small", options.work / f"{name}-kept")
        seeds = range(options.seeds)
        found = [[simulate(held, name, f, seed, options.work) for f in range(N_FOLDS)] for seed in seeds]
        record[name] = {"labelled": LABELLED[name], "seeds": options.seeds, "orders": measured(held, found)}
        record[name] |= about_machine()
        write_json(RECORD, record)
    draw(record)


if __name__ == "__main__":
    main()
