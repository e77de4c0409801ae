"""Labels of chunks out of what is known of whole videos, as WOAD makes them while it trains (published code)."""

from __future__ import annotations

import torch
from torch import Tensor

SHARE = 8
PEAK_SHARE = 0.7
"""What the class's own score adds to a run's peak."""
CONFIDENCE = 0.7
SHORTEST = 2


def runs_of(activity: Tensor) -> list[list[tuple[int, int, float]]]:
    """Of each class, its runs (first chunk, end, score) in a video whose chunks are as active as (L, K) says.

    A class has runs where the mean of its highest eighth is above 0: where it is above the middle of its range.
    """
    found: list[list[tuple[int, int, float]]] = []
    length = len(activity)
    for values in activity.T:
        runs = []
        score = float(values.topk(max(1, length // SHARE)).values.mean())
        if score > 0:
            above = values > (values.max() - values.min()) / 2 + values.min()
            edges = torch.nn.functional.pad(above.int(), (1, 1)).diff()
            for first, end in zip((edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0], strict=True):
                if end - first >= SHORTEST:
                    runs.append((int(first), int(end), float(values[first:end].max()) + PEAK_SHARE * score))
        found.append(runs)
    return found


def pseudo_targets(activity: Tensor, labels: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which classes (B, L, K) chunks of videos are taken for, which of them are starts (B, L), and which videos to use.

    activity (B, L, K), classes of the videos (B, K), present (B, L). Runs of at least `CONFIDENCE` of a video's own
    classes count, one chunk past their end too, as published; a video to use (B,) has one of each of its classes.
    """
    targets, starts = torch.zeros_like(activity), torch.zeros_like(present)
    usable = labels.any(dim=1)
    for b, (one, those, chunks) in enumerate(zip(activity, labels, present, strict=True)):
        length = int(chunks.sum())
        for k, runs in enumerate(runs_of(one[:length]) if length else []):
            kept = [run for run in runs if run[2] >= CONFIDENCE and those[k] > 0]
            if those[k] > 0 and not kept:
                usable[b] = False
            for first, end, _ in kept:
                targets[b, first : min(end + 1, length), k] = 1
                starts[b, first] = True
    return targets, starts, usable
