"""The scores of every chunk of a stored video, computing what its windows have in common once.

Neighbouring windows see almost the same chunks. Each chunk goes through the feature heads once, and through the keys
and values of the long memory once; windows with the same long memory share its encoding; of the decoder's last layer
only the newest chunk is computed. What a window needs of its own is what `caches` states for a step of a stream,
but here many windows are multiplied together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lstr.models import lstr_caches as caches
from lstr.models.lstr_config import LSTRConfig
from lstr.models.lstr_network import LSTRNetwork
from lstr.models.lstr_precomputed import Constants
from lstr.models.stream import Tensors, take
from lstr.windows import indices as index

# Chunks that go through a feature head together: enough to be quick, few enough for little memory.
ROWS = 4096


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
        decoded: Tensors = {}
        if config.n_long:
            decoded = _encode(constants, long, ends, _apart(len(features), config))
        if histories is not None:
            decoded = _with_history(model, decoded, histories[index.older_ends(ends, config)])
        logits[ends] = model.classifier(_decode(constants, work, decoded, buffers, ends))
    return logits


def _by_parts(layer: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
    return torch.cat([layer(part) for part in features.split(ROWS)])


def _histories(model: LSTRNetwork, features: Tensor) -> Tensor:
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
        yield from (run[rows] for rows in index.in_pieces(len(run), batch_size))


def _long_memory(constants: Constants, features: Tensor) -> Tensors:
    """What the encoder takes of each chunk that some window has in its long memory: a row per chunk, and one of zeros.

    Every `apart`-th chunk has a row.
    """
    config = constants.model.config
    if not config.n_long:
        return {}
    apart = _apart(len(features), config)
    parts = [caches.stored(constants, part) for part in features[::apart].split(ROWS)]
    rows = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return {name: F.pad(tensor, (0, 0, 0, 1)) for name, tensor in rows.items()}


def _apart(n_chunks: int, config: LSTRConfig) -> int:
    """A sliding grid uses the multiples of its stride alone until the memory is full."""
    until_full = config.grid == "sliding" and n_chunks <= config.long_length + config.work_length
    return config.long_stride if until_full else index.spacing(config)


def _encode(constants: Constants, long: Tensors, ends: NDArray[np.int64], apart: int) -> Tensors:
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
    rings = {name: tensor[rows][None] for name, tensor in long.items()}  # one stream of R rows
    device = rings[next(iter(rings))].device
    held, hidden, positions = (torch.from_numpy(a).to(device) for a in (places, ~visible, distances[new]))
    tokens, mask = caches.encode(
        constants,
        rings,
        torch.zeros_like(held[:, 0]),
        held,
        None if visible.all() else hidden,
        positions if config.positions == "distance" else None,
    )  # (U, M, d_model)
    decoded = caches.as_decoded(constants.model, tokens)
    if mask is not None:
        decoded["memory_mask"] = mask
    which = torch.from_numpy(np.cumsum(new) - 1).to(tokens.device)  # (B,)
    return {name: tensor[which] for name, tensor in decoded.items()}


def _with_history(model: LSTRNetwork, decoded: Tensors, history: Tensor) -> Tensors:
    """The same with GRU states (B, d_model) as one more token."""
    added = caches.as_decoded(model, history[:, None])
    if "memory_mask" in decoded:
        decoded["memory_mask"] = F.pad(decoded["memory_mask"], (0, 1), value=True)
    return decoded | {
        name: torch.cat([decoded[name], last], dim=-2) if name in decoded else last for name, last in added.items()
    }


def _decode(constants: Constants, work: Tensor, decoded: Tensors, buffers: Tensors, ends: NDArray[np.int64]) -> Tensor:
    """Decoder output (B, 1 + anticipation, ...) of the windows that end at `ends` (B,)."""
    model, config = constants.model, constants.model.config
    chunks, present = index.work_indices(ends, config)  # (B, W)
    chunks, places = np.unique(chunks, return_inverse=True)
    zeros = len(chunks)
    places = np.where(present, places.reshape(present.shape), zeros)
    places = np.pad(places, ((0, 0), (0, config.anticipation)), constant_values=zeros)
    tokens = work[chunks]
    rows = torch.from_numpy(places.ravel()).to(work.device)
    by_slot: Tensors = {}
    for name, kept in caches.of_work(model, tokens).items():
        if name not in buffers or len(buffers[name]) < len(ends):
            buffers[name] = tokens.new_empty(*places.shape, kept.shape[-1])
        ring = F.pad(kept, (0, 0, 0, 1))[None]
        by_slot[name] = take(ring, rows, places.shape[1], out=buffers[name][: len(ends)])
    absent = None if present.all() else torch.from_numpy(~present).to(work.device)
    return caches.decode(constants, by_slot, decoded, absent)
