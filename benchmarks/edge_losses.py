"""Whether a loss that knows edges or hard negatives teaches more: edge-losses.json.

python benchmarks/edge_losses.py SHARED/data --work WORK [--seeds 3]

Each alone, against the loss as it is. `smoothed`: the labels of a chunk are blurred with those beside it, so that a
chunk at an edge is partly both (1/4, 1/2, 1/4, or twice that wide). `boundary channel`: one more output learns how near
the next edge is, 1 at an edge and 0.14 two chunks away; it has no part in the scores, and its binary cross entropy
weighs 0.2 or 1. `hard negatives`: of the background of a batch only the half, or the quarter, with the highest loss
counts; `focal negatives`: background weighs less the surer it is, with the exponent 2 of GateHUB's suppression. `small`
on features of networks as ImageNet has taught them, three folds of all videos, as in edges.py.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from edges import out_of_fold
from held_out import HeldOut, Scores
from learn import SETS
from real_data import RESAMPLES, judge
from suggestions import features_of, judge_events
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from lstr.labels.label_set import read_labels
from lstr.models import kind
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine
from lstr.windows.loss import Supervision, by_part
from lstr.windows.windows import Outputs

RECORD = Path(__file__).resolve().parent / "edge-losses.json"
BOUNDARY = "Boundary"
NEAR = 1.0  # chunks: one standard deviation of what counts as near an edge
Loss = Callable[[Tensor, Tensor], Tensor]
"""The mean loss of logits (n, C) and targets (n, C)"""


def plain(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss as it is."""
    return -(targets * logits.log_softmax(dim=-1)).sum(dim=-1).mean()


def with_boundary(weight: float) -> Loss:
    """The loss of all outputs but the last, and that of the last by itself."""

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        beside = binary_cross_entropy_with_logits(logits[:, -1], targets[:, -1])
        return plain(logits[:, :-1], targets[:, :-1]) + weight * beside

    return loss


def hardest(share: float) -> Loss:
    """The loss of all actions, and of the background that is hardest to tell."""

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        losses = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)
        negative = targets[:, 0] > 0
        n = int(share * negative.sum())
        return torch.cat([losses[~negative], losses[negative].topk(n).values]).mean()

    return loss


def focal(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss in which background weighs less the surer it is."""
    logs = logits.log_softmax(dim=-1)
    weights = torch.where(targets[:, 0] > 0, (1 - logs[:, 0].exp()) ** 2, 1.0)
    return (weights * -(targets * logs).sum(dim=-1)).mean()


def near_edges(targets: np.ndarray) -> np.ndarray:
    """Targets (L, C + 1) with how near the next change is."""
    changes = np.flatnonzero((targets[1:] != targets[:-1]).any(axis=1)) + 0.5
    apart = np.abs(np.arange(len(targets))[:, None] - changes).min(axis=1, initial=np.inf)
    return np.column_stack([targets, np.exp(-(np.maximum(apart - 0.5, 0) ** 2) / (2 * NEAR**2))]).astype(np.float32)


def smoothed(times: int) -> Callable[[np.ndarray], np.ndarray]:
    """Targets that are blurred so many times."""

    def blur(targets: np.ndarray) -> np.ndarray:
        rows = targets.astype(np.float32)
        for _ in range(times):
            padded = np.concatenate([rows[:1], rows, rows[-1:]])
            rows = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
        return rows

    return blur


def unchanged(targets: np.ndarray) -> np.ndarray:
    """Targets as they are labelled."""
    return targets


@dataclass(frozen=True)
class Variant:
    """A loss, and the targets that it is of."""

    loss: Loss = plain
    targets: Callable[[np.ndarray], np.ndarray] = unchanged
    boundary: bool = False


VARIANTS = {
    "as it is": Variant(),
    "smoothed": Variant(targets=smoothed(1)),
    "smoothed twice": Variant(targets=smoothed(2)),
    "boundary channel 0.2": Variant(with_boundary(0.2), near_edges, True),
    "boundary channel 1": Variant(with_boundary(1.0), near_edges, True),
    "hard negatives, half": Variant(hardest(0.5)),
    "hard negatives, quarter": Variant(hardest(0.25)),
    "focal negatives": Variant(focal),
}


@contextmanager
def trained_with(loss: Loss) -> Iterator[None]:
    """Models have this loss in the block."""

    def loss_of(logits: Tensor, outputs: Outputs, supervision: Supervision) -> Tensor:
        total = logits.new_zeros(())
        for part, of_part, labels in by_part(logits, outputs, supervision):
            total = total + part.weight * loss(of_part[labels.counts], labels.targets[labels.counts])
        return total

    before = kind.loss_of
    kind.loss_of = loss_of
    try:
        yield
    finally:
        kind.loss_of = before


def scores_of(held: HeldOut, variant: Variant, seed: int) -> Scores:
    """Scores of every video by a model that lacked its fold."""
    classes = held.labels.classes
    outputs = (*classes, BOUNDARY) if variant.boundary else classes
    with trained_with(variant.loss):
        found = out_of_fold(held, seed, variant.targets, outputs)
    actions = {i: rows[:, : len(classes)] for i, rows in found.items()}
    return {i: rows / rows.sum(axis=1, keepdims=True) for i, rows in actions.items()}


def main() -> None:
    """Train, score, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="as of suggestions.py, whose features are taken")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=SETS)
    options = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in options.sets:
        features, labels = features_of(name, options.data, options.work)
        held = HeldOut(open_features(features), read_labels(labels), "small", options.work / f"{name}-kept")
        runs = {}
        for variant in VARIANTS:
            runs[variant] = [scores_of(held, VARIANTS[variant], seed) for seed in range(options.seeds)]
            print(name, variant, flush=True)
        judged = judge(held, runs, "as it is")
        for variant, of_seeds in runs.items():
            by_seed = [judge_events(held, scores) for scores in of_seeds]
            judged[variant] |= {"f1_by_seed": by_seed, "f1": float(np.mean(by_seed))}
            print(name, variant, round(judged[variant]["mAP"], 3), judged[variant]["f1_by_seed"], flush=True)
        record[name] = judged
        write_json(RECORD, record | {"seeds": options.seeds, "resamples": RESAMPLES} | about_machine())


if __name__ == "__main__":
    main()
