"""The training loss."""

from __future__ import annotations

import torch
from torch import Tensor

from lstr.errors import LstrError


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
    if ignore is not None:
        logits, targets = (torch.cat([x[:, :ignore], x[:, ignore + 1 :]], 1) for x in (logits, targets))  # (N, C - 1)
    if total is not None and logits.device.type != "cpu":  # how many are kept would have to be waited for
        losses = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)  # (N,)
        return torch.where(keep, losses, 0).sum() / total
    logits, targets = logits[keep], targets[keep]
    if len(logits) == 0:
        return logits.sum()
    losses = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)  # (N,)
    return losses.mean() if total is None else losses.sum() / total


def loss_mask(targets: Tensor, ignore: int | None = None, valid: Tensor | None = None) -> Tensor:
    """Which chunks (...) take part in the loss of targets (..., C)."""
    keep = torch.ones(targets.shape[:-1], dtype=torch.bool, device=targets.device) if valid is None else valid
    return keep if ignore is None else keep & (targets[..., ignore] == 0)
