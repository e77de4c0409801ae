"""The training loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.errors import LstrError
from lstr.windows.windows import Outputs, Part


@dataclass(frozen=True)
class Supervision:
    """What the N outputs of B windows are held against."""

    targets: Tensor
    """(B, N, C), multi-hot or scaled"""
    counts: Tensor
    """(B, N) bool: outputs that count. A window in which none does stands in for one of another process."""
    ignore: int | None = None
    """Column of the ambiguous class; None where it is a class like any other"""
    totals: Sequence[float] | None = None
    """How many outputs of each part count in the whole batch, where these windows are but a piece of it; `totals_of`"""
    n_windows: float | None = None
    """Windows of the whole batch, likewise"""
    soft: Tensor | None = None
    """(B, N, C) probabilities by a teacher of what `targets` are about, zeros where it has none; None without one"""

    @property
    def share(self) -> float:
        """How much of the whole batch these windows are."""
        return 1.0 if self.n_windows is None else float(self.counts.any(dim=1).sum()) / self.n_windows

    def part(self, index: int, rows: NDArray[np.int64]) -> Supervision:
        """The supervision of the outputs `rows` (n,) alone, which are the part with this index."""
        totals = None if self.totals is None else [self.totals[index]]
        targets, counts = chosen(self.targets, rows), chosen(self.counts, rows)
        soft = None if self.soft is None else chosen(self.soft, rows)
        return Supervision(targets, counts, self.ignore, totals, self.n_windows, soft)


def loss_of(logits: Tensor, outputs: Outputs, supervision: Supervision) -> Tensor:
    """The sum over parts of their weight times the mean of their cross entropy: a scalar, of logits (B, N, C)."""
    total = logits.new_zeros(())
    for part, logit, labels in by_part(logits, outputs, supervision):
        size = None if labels.totals is None else max(1.0, labels.totals[0])
        total = total + part.weight * multi_hot_cross_entropy(logit, labels.targets, labels.ignore, labels.counts, size)
    return total


def distillation(logits: Tensor, outputs: Outputs, supervision: Supervision, temperature: float) -> Tensor:
    """How far logits (B, N, C) are from a teacher's scores, `supervision.soft`: a scalar (Hinton et al. 2015).

    For each part its weight times the mean, over the outputs that count, of the squared temperature times the KL
    divergence of both, softened by it; an output that the teacher has no scores for adds 0.
    """
    total = logits.new_zeros(())
    for part, logit, labels in by_part(logits, outputs, supervision):
        assert labels.soft is not None, "by_part passes it on"
        keep = loss_mask(labels.targets, labels.ignore, labels.counts)  # (B, n)
        both = labels.soft.clamp(min=torch.finfo(logit.dtype).tiny).log(), logit
        teacher, student = ((without(x, labels.ignore) / temperature).log_softmax(dim=-1) for x in both)
        each = (teacher.exp() * (teacher - student)).sum(dim=-1)
        losses = torch.where(labels.soft.any(dim=-1), each, 0)
        total = total + part.weight * temperature**2 * mean_of_kept(losses, keep, labels.totals)
    return total


def by_part(logits: Tensor, outputs: Outputs, supervision: Supervision) -> Iterator[tuple[Part, Tensor, Supervision]]:
    """Each part with its logits (B, n, C), of logits (B, N, C), and its own supervision, whose `totals` is one number.

    A loss of another kind that is a mean divides by max(1, that number), not by the outputs here.
    """
    for i, part in enumerate(outputs.parts):
        yield part, chosen(logits, part.rows), supervision.part(i, part.rows)


def totals_of(targets: Tensor, counts: Tensor, outputs: Outputs, ignore: int | None) -> list[float]:
    """How many outputs of each part take part in the loss, of targets (B, N, C) and counts (B, N)."""
    keep = loss_mask(targets, ignore, counts)  # (B, N)
    return [float(keep[:, torch.from_numpy(part.rows)].sum()) for part in outputs.parts]


def chosen(tensor: Tensor, rows: NDArray[np.int64]) -> Tensor:
    """(B, n, ...) of the outputs `rows` (n,); neighbours without an index, which a GPU would wait for."""
    first, end = int(rows[0]), int(rows[-1]) + 1
    if end - first == len(rows):
        return tensor[:, first:end]
    return torch.cat([tensor[:, at : at + 1] for at in rows.tolist()], 1)


def multi_hot_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    ignore: int | None = None,
    valid: Tensor | None = None,
    total: float | None = None,
) -> Tensor:
    """Mean over chunks of the sum over classes of -target * log_softmax(logits): a scalar (published code, criterion).

    logits and targets (..., C); targets are multi-hot and not normalised, so a chunk of two classes weighs double.
    ignore: the column of the ambiguous class; it takes no part in the softmax, and chunks that carry it are left
    out. valid (...) bool: chunks that count. When none is left the loss is 0, with a gradient of 0. total: chunks to
    divide by in place of those here, where they are but a part of a batch.
    Raises LstrError when the shapes differ.
    """
    if logits.shape != targets.shape:
        raise LstrError(
            f"Logits have shape {tuple(logits.shape)} and targets {tuple(targets.shape)}.",
            "Make the targets with the classes the model was made for.",
        )
    n_classes = logits.shape[-1]
    logits = logits.reshape(-1, n_classes)  # (N, C)
    targets = targets.reshape(-1, n_classes).to(logits.dtype)
    keep = loss_mask(targets, ignore, None if valid is None else valid.reshape(-1))
    logits, targets = without(logits, ignore), without(targets, ignore)  # (N, C - 1)
    if total is not None and logits.device.type != "cpu":  # how many are kept would have to be waited for
        losses = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)  # (N,)
        return torch.where(keep, losses, 0).sum() / total
    logits, targets = logits[keep], targets[keep]
    if len(logits) == 0:
        return logits.sum()
    losses = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)  # (N,)
    return losses.mean() if total is None else losses.sum() / total


def without(x: Tensor, ignore: int | None) -> Tensor:
    """Logits or targets (..., C) without the column of the ambiguous class, where there is one."""
    return x if ignore is None else torch.cat([x[..., :ignore], x[..., ignore + 1 :]], dim=-1)


def mean_of_kept(losses: Tensor, keep: Tensor, totals: Sequence[float] | None) -> Tensor:
    """The mean of losses (...) where keep (...) is True: a scalar, 0 where it nowhere is.

    totals: those of `Supervision`; the first is divided by in place of how many are kept here.
    """
    size = keep.sum().clamp(min=1) if totals is None else max(1.0, totals[0])
    return torch.where(keep, losses, 0).sum() / size


def loss_mask(targets: Tensor, ignore: int | None = None, valid: Tensor | None = None) -> Tensor:
    """Which chunks (...) take part in the loss of targets (..., C)."""
    keep = torch.ones(targets.shape[:-1], dtype=torch.bool, device=targets.device) if valid is None else valid
    return keep if ignore is None else keep & (targets[..., ignore] == 0)
