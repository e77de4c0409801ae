"""The scores of every chunk of a stored video, computing what its windows have in common once.

Neighbouring windows see almost the same chunks. Each chunk goes through the feature heads once, and through the keys
and values of the long memory once; windows with the same long memory share its encoding; of the decoder's last layer
only the newest chunk is computed. What a window needs of its own is what `caches` states for a step of a stream,
but here many windows are multiplied together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lstr.models.kind import Tensors
from lstr.models.lstr import caches
from lstr.models.lstr.config import LSTRConfig
from lstr.models.lstr.network import Network
from lstr.models.lstr.precomputed import Constants
from lstr.models.lstr.stream_plan import Plan, make_plan, spacing
from lstr.windows import indices as index

ROWS = 4096
"""Chunks that go through a feature head together: enough to be quick, few enough for little memory."""


def video_logits(constants: Constants, features: Tensor, batch_size: int) -> Tensor:
    """Logits (L, 1 + anticipation, C) of a video's features (L, D), as `Network.video_logits` defines them.

    batch_size is the number of windows that are decoded together.
    """
    model, config = constants.model, constants.model.config
    work = _by_parts(model.feature_head_work, features)  # (L, d_model)
    long = _long_memory(constants, features)
    histories = _histories(model, features) if config.gru else None  # (L + 1, d_model)
    buffers: Tensors = {}
    logits = work.new_empty(len(features), 1 + config.anticipation, model.n_classes)
    for ends in _blocks(len(features), batch_size, config):
        plan = make_plan(config, ends)
        decoded: Tensors = {}
        if config.n_long:
            decoded = _encode(constants, long, plan, ends, _apart(len(features), config))
        if histories is not None:
            decoded = _with_history(model, decoded, histories[index.older_ends(ends, config)])
        logits[ends] = model.classifier(_decode(constants, work, decoded, buffers, plan, ends))
    return logits


def _by_parts(layer: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
    return torch.cat([layer(part) for part in features.split(ROWS)])


def _histories(model: Network, features: Tensor) -> Tensor:
    """GRU states (L + 1, d_model): row n is the state after the first n chunks."""
    tokens = _by_parts(model.feature_head_long, features)
    return F.pad(model.gru(tokens[None])[0][0], (0, 0, 1, 0))


def _blocks(n_chunks: int, batch_size: int, config: LSTRConfig) -> Iterator[NDArray[np.int64]]:
    """Ends of the windows that are computed together: those whose long memories have most chunks in common.

    On a sliding grid that is every stride-th window, once the memory is full; on an anchored one, always.
    """
    full = n_chunks
    if config.n_long and config.grid == "sliding":
        full = min(n_chunks, config.long_length + config.work_length)
    elif config.n_long and config.grid == "anchored":
        full = min(n_chunks, config.work_length)
    runs = [np.arange(full), *(np.arange(full + i, n_chunks, config.long_stride) for i in range(config.long_stride))]
    for run in runs:
        yield from (run[i : i + batch_size] for i in range(0, len(run), batch_size))


def _long_memory(constants: Constants, features: Tensor) -> Tensors:
    """What the encoder takes of each chunk that some window has in its long memory: a row per chunk, and one of zeros.

    Every `apart`-th chunk has a row.
    """
    model, config = constants.model, constants.model.config
    if not config.n_long:
        return {}
    apart = _apart(len(features), config)
    tokens = _by_parts(model.feature_head_long, features[::apart])
    if constants.stage1 is None:
        rows = {"long_tokens": tokens}
    else:
        rows = {
            "long_scores": F.linear(tokens, constants.stage1.score_weight),
            "long_values": F.linear(tokens, constants.stage1.value_weight),
        }
    return {name: F.pad(tensor, (0, 0, 0, 1)) for name, tensor in rows.items()}


def _apart(n_chunks: int, config: LSTRConfig) -> int:
    """A sliding grid uses the multiples of its stride alone until the memory is full."""
    until_full = config.grid == "sliding" and n_chunks <= config.long_length + config.work_length
    return config.long_stride if until_full else spacing(config)


def _encode(constants: Constants, long: Tensors, plan: Plan, ends: NDArray[np.int64], apart: int) -> Tensors:
    """The long memories of windows that end at `ends` (B,), as the decoder takes them; equal ones are encoded once."""
    config = constants.model.config
    chunks, visible = index.long_indices(ends, config)  # (B, n_long)
    distances = index.long_distances(ends, config)
    seen = np.where(visible, chunks, -1)
    if config.positions == "distance":
        seen = np.concatenate([seen, distances], axis=1)
    new = np.append(True, (seen[1:] != seen[:-1]).any(axis=1))  # (B,)
    spare = len(next(iter(long.values()))) - 1
    rows, places = np.unique(np.where(visible, chunks // apart, spare)[new], return_inverse=True)  # (R,), (U, n_long)
    places = places.reshape(new.sum(), -1)
    visible = visible[new]
    positions = np.broadcast_to(np.arange(config.n_long), chunks.shape) if config.positions == "slot" else distances
    rings = {name: tensor[rows][None] for name, tensor in long.items()}  # one stream of R rows
    plan = replace(
        plan,
        changed=torch.arange(len(places)),
        long_rows=torch.from_numpy(places.ravel()),
        ring_rows=torch.from_numpy((places + len(rows) * np.arange(len(places))[:, None]).ravel()),
        positions=torch.from_numpy(positions[new]),
        long_mask=None if visible.all() else torch.from_numpy(visible),
    ).to(next(iter(long.values())).device)
    tokens, mask = caches.encode(constants, rings, plan)  # (U, M, d_model)
    decoded = caches.as_decoded(constants.model, tokens)
    if mask is not None:
        decoded["memory_mask"] = mask
    which = torch.from_numpy(np.cumsum(new) - 1).to(tokens.device)  # (B,)
    return {name: tensor[which] for name, tensor in decoded.items()}


def _with_history(model: Network, decoded: Tensors, history: Tensor) -> Tensors:
    """The same with GRU states (B, d_model) as one more token."""
    added = caches.as_decoded(model, history[:, None])
    if "memory_mask" in decoded:
        decoded["memory_mask"] = F.pad(decoded["memory_mask"], (0, 1), value=True)
    return decoded | {
        name: torch.cat([decoded[name], last], dim=-2) if name in decoded else last for name, last in added.items()
    }


def _decode(
    constants: Constants, work: Tensor, decoded: Tensors, buffers: Tensors, plan: Plan, ends: NDArray[np.int64]
) -> Tensor:
    """Decoder output (B, 1 + anticipation, ...) of the windows that end at `ends` (B,)."""
    model, config = constants.model, constants.model.config
    chunks, present = index.work_indices(ends, config)  # (B, W)
    chunks, places = np.unique(chunks, return_inverse=True)
    zeros = len(chunks)
    places = np.where(present, places.reshape(present.shape), zeros)
    places = np.pad(places, ((0, 0), (0, config.anticipation)), constant_values=zeros)
    tokens = work[chunks]
    rings = {name: F.pad(kept, (0, 0, 0, 1))[None] for name, kept in caches.of_work(model, tokens).items()}
    tensors = decoded | rings
    for name in rings:
        shape = (*places.shape, tensors[name].shape[-1])
        if name not in buffers or len(buffers[name]) < len(ends):
            buffers[name] = tokens.new_empty(shape)
        tensors[f"{name}_by_slot"] = buffers[name][: len(ends)]
    rows = torch.from_numpy(places.ravel())
    return caches.decode(constants, tensors, replace(plan, work_rows=rows).to(work.device))
