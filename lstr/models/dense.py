"""The scores of every chunk of a stored video by LSTR, which compute what its windows have in common once.

Neighbouring windows see almost the same chunks. Each chunk passes the feature heads once, and the keys and values of
the long memory once; windows with the same long memory share its encoding; of the last layer of the decoder only the
newest chunk is computed. The rest is that of a step of a stream (`lstr.models.lstr_step`), for many windows at once.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lstr.models import lstr_step
from lstr.models.layers import Tensors, take
from lstr.windows import indices as index

ROWS = 4096  # chunks that pass a feature head together: enough to be quick, few enough for little memory


def video_logits(constants: lstr_step.Constants, features: Tensor, batch_size: int) -> Tensor:
    """Return logits (L, 1 + anticipation, C) of a video with features (L, D), batch_size windows at once."""
    model, config, L = constants.model, constants.model.config, len(features)
    work = torch.cat([model.feature_head_work(part) for part in features.split(ROWS)])  # (L, d_model)
    long, buffers, apart = Tensors(), Tensors(), index.spacing(config)
    if config.grid == "sliding" and L <= config.long_length + config.work_length:
        apart = config.long_stride  # until the memory is full, a sliding grid uses the multiples of its stride alone
    if config.n_long:  # a row for every `apart`-th chunk, and one of zeros
        parts = [lstr_step.stored(constants, part) for part in features[::apart].split(ROWS)]
        long = {name: F.pad(torch.cat([part[name] for part in parts]), (0, 0, 0, 1)) for name in parts[0]}
    histories = None  # (L + 1, d_model): row n is the state of the GRU after the first n chunks
    if config.gru:
        tokens = torch.cat([model.feature_head_long(part) for part in features.split(ROWS)])
        histories = F.pad(model.gru(tokens[None])[0][0], (0, 0, 1, 0))
    logits = work.new_empty(L, 1 + config.anticipation, model.n_classes)
    # Windows whose long memories have most chunks in common are computed together: every stride-th one, on a sliding
    # grid once the memory is full, on an anchored one once the work memory is.
    reach = {"sliding": config.long_length + config.work_length, "anchored": config.work_length}
    full = min(L, reach.get(config.grid, L)) if config.n_long else L
    runs = [np.arange(full), *(np.arange(full + i, L, config.long_stride) for i in range(config.long_stride))]
    for ends in (run[rows] for run in runs for rows in index.in_pieces(len(run), batch_size)):
        decoded = _encode(constants, long, ends, apart) if config.n_long else {}
        if histories is not None:
            history = lstr_step.as_decoded(model, histories[index.older_ends(ends, config)][:, None])
            if "memory_mask" in decoded:
                decoded["memory_mask"] = F.pad(decoded["memory_mask"], (0, 1), value=True)
            for name, last in history.items():
                decoded[name] = torch.cat([decoded[name], last], dim=-2) if name in decoded else last
        chunks, present = index.work_indices(ends, config)  # (B, W)
        chunks, places = np.unique(chunks, return_inverse=True)
        places = np.where(present, places.reshape(present.shape), len(chunks))  # absent slots and the future are zeros
        places = np.pad(places, ((0, 0), (0, config.anticipation)), constant_values=len(chunks))
        rows = torch.from_numpy(places.ravel()).to(work.device)
        by_slot: Tensors = {}
        for name, kept in lstr_step.of_work(model, work[chunks]).items():
            # In the same memory for each batch: allocating it again costs more than the copies.
            if name not in buffers or len(buffers[name]) < len(ends):
                buffers[name] = work.new_empty(*places.shape, kept.shape[-1])
            by_slot[name] = take(F.pad(kept, (0, 0, 0, 1))[None], rows, places.shape[1], buffers[name][: len(ends)])
        absent = None if present.all() else torch.from_numpy(~present).to(work.device)
        logits[ends] = model.classifier(lstr_step.decode(constants, by_slot, decoded, absent))
    return logits


def _encode(constants: lstr_step.Constants, long: Tensors, ends: NDArray[np.int64], apart: int) -> Tensors:
    """Return the long memories of windows that end at `ends` (B,) for the decoder; equal ones are encoded once."""
    config = constants.model.config
    chunks, visible = index.long_indices(ends, config)  # (B, n_long)
    distances = index.long_distances(ends, config)
    seen = np.where(visible, chunks, -1)
    if config.positions == "distance":
        seen = np.concatenate([seen, distances], axis=1)
    new = np.append(True, (seen[1:] != seen[:-1]).any(axis=1))  # (B,)
    spare = len(next(iter(long.values()))) - 1
    rows, places = np.unique(np.where(visible, chunks // apart, spare)[new], return_inverse=True)  # (R,), (U, n_long)
    visible = visible[new]
    rings = {name: tensor[rows][None] for name, tensor in long.items()}  # one stream of R rows
    places, hidden, distances = places.reshape(visible.shape), ~visible, distances[new]
    held, hides, positions = (torch.from_numpy(a).to(constants.work.device) for a in (places, hidden, distances))
    decoded = lstr_step.encode(
        constants,
        rings,
        torch.zeros_like(held[:, 0]),
        held,
        hides if hidden.any() else None,
        positions if config.positions == "distance" else None,
    )
    which = torch.from_numpy(np.cumsum(new) - 1).to(held.device)  # (B,)
    return {name: tensor[which] for name, tensor in decoded.items()}
