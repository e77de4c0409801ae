"""The networks of folds in one feature space, so that a model may learn from the features of all.

Networks that were trained apart express the same in other directions: on UT-Interaction, LSTR that had learnt from one
network's features scored .34 on another's, .61 on the first's own. So each network without a fold gets a last, linear
layer that turns its features into those of the network of all videos, by ridge regression over videos that both have
learnt from. The fold's own videos have no part in it.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from lstr.extractors.networks.weights import ALIGNMENT
from lstr.extractors.prefetch import closed_after
from lstr.extractors.presets import Preset
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_twostream
from lstr.extractors.weights.content import read_content
from lstr.extractors.weights.model_card import network_file
from lstr.extractors.weights.sources import WeightSources
from lstr.files.atomic import replacing, write_tensors
from lstr.pipelines.extraction.chunk_cache import CachedVideo, cached_chunks

MOST_CHUNKS = 20_000  # many times the width of the features; of more, evenly chosen ones are used
PENALTY = 1.0  # on features of unit variance, per chunk; .1 and 10 did as well
Rows = NDArray[np.float32]


def align(
    folder: Path,
    preset: Preset,
    stream: str,
    folds: Mapping[int, Collection[str]],
    videos: Mapping[str, CachedVideo],
    device: str,
) -> None:
    """Give the network of each fold its last layer, in its file; one that has it is left alone.

    folds: the videos that each has learnt from, as the network of all has.
    """
    files = {fold: network_file(folder, stream, fold) for fold in folds}
    left = {fold: ids for fold, ids in folds.items() if ALIGNMENT not in _content(files[fold], mapped=True)}
    if not left:
        return
    used = sorted({video_id for ids in left.values() for video_id in ids})
    step = -(-sum(len(videos[video_id]) for video_id in used) // MOST_CHUNKS)
    whole = _network(network_file(folder, stream), preset, stream, device)
    wanted = {video_id: _features(whole, stream, videos[video_id], step) for video_id in used}
    for fold, ids in left.items():
        network = _network(files[fold], preset, stream, device)
        found = np.concatenate([_features(network, stream, videos[video_id], step) for video_id in ids])
        weight, bias = linear_map(found, np.concatenate([wanted[video_id] for video_id in ids]))
        layer = {"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)}
        with replacing(files[fold]) as temporary:
            write_tensors(temporary, {**_content(files[fold]), ALIGNMENT: layer})


def linear_map(rows: Rows, wanted: Rows) -> tuple[Rows, Rows]:
    """Weight (D', D) and bias (D',) float32 that turn rows (N, D) into wanted ones (N, D'), by ridge regression."""
    mean, target = rows.mean(0, dtype=np.float64), wanted.mean(0, dtype=np.float64)
    centred = rows - mean
    scale = centred.std() or 1.0
    gram = centred.T @ centred / scale**2 + PENALTY * len(rows) * np.eye(rows.shape[1])
    weight = np.linalg.solve(gram, centred.T @ (wanted - target) / scale) / scale  # (D, D')
    return weight.T.astype(np.float32), (target - mean @ weight).astype(np.float32)


def _content(file: Path, mapped: bool = False) -> dict[str, Any]:
    return cast(dict[str, Any], read_content(file, mapped))  # files of ours hold a dictionary


def _network(file: Path, preset: Preset, stream: str, device: str) -> TwoStream:
    sources = WeightSources.of({stream: str(file)})
    return build_twostream(preset.narrowed([stream]), sources, device)


def _features(network: TwoStream, stream: str, video: CachedVideo, step: int) -> Rows:
    with closed_after(network.rows_with_flow(cached_chunks(video, step), 0)) as rows:
        return np.stack([row.features[stream] for row in rows])  # (L / step, D)
