"""Two ways against a memory that knows videos by heart, which no setting of the product has: for studies of them."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

import torch
from torch import Tensor

from lstr.models.lstr.model import LSTR
from lstr.models.lstr.network import LSTRNetwork, mean_token
from lstr.pipelines.training import step
from lstr.windows.windows import Windows


def plain(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings by name without these two, `memory.drop` and `memory.mean_free`, which the product does not know."""
    return {name: value for name, value in settings.items() if not name.startswith("memory.")}


def regularised_by(settings: Mapping[str, str]) -> AbstractContextManager[None]:
    """As `regularised`, by settings among which these two may be."""
    return regularised(float(settings.get("memory.drop", 0)), "memory.mean_free" in settings)


@contextmanager
def regularised(drop: float, mean_free: bool) -> Iterator[None]:
    """Let training drop memories, and models take the mean off their memory tokens.

    drop: the share of training windows that see none of their memory but its newest slot.
    """
    hide, encode = step.hide_slots, LSTRNetwork.encode

    def hide_and_drop(windows: Windows, share: float) -> Windows:
        windows = hide(windows, share)
        kept = (torch.rand(len(windows), 1) >= drop).expand(windows.long_mask.shape).clone()  # (B, n_long)
        kept[:, -1:] = True
        return replace(windows, long_mask=windows.long_mask & kept, long=windows.long * kept[..., None])

    def encode_without_mean(
        self: LSTRNetwork, long: Tensor, mask: Tensor, distances: Tensor, history: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        return encode(self, long - mean_token(long, mask)[:, None], mask, distances, history)

    with ExitStack() as stack:
        if drop:
            stack.enter_context(patch.object(step, "hide_slots", hide_and_drop))
        if mean_free:
            stack.enter_context(patch.object(LSTRNetwork, "encode", encode_without_mean))
            # by `encode`, not by parts of it that are kept from chunk to chunk
            stack.enter_context(patch.object(LSTR, "dense_logits", lambda self, rows, n, _: self.video_logits(rows, n)))
        yield
