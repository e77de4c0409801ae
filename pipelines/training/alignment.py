"""One feature space for networks of folds, so that a model may learn from the features of all of them.

Networks that were trained apart express the same in other directions: on UT-Interaction, LSTR that had learnt from one
network's features scored .34 on another's, .61 on the first's own. So each network without a fold gets a last, linear
layer that turns its features into those of the network of all videos, by ridge regression over videos that both have
learnt from. The fold's own videos have no part in it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from lstr.extractors.networks.build import ALIGNMENT
from lstr.extractors.networks.weights_file import WeightSources, network_file, read_content
from lstr.extractors.presets import Preset
from lstr.extractors.run import TwoStream
from lstr.extractors.stages import closed_after
from lstr.extractors.twostream import build_twostream
from lstr.files.atomic import replacing, write_tensors
from lstr.pipelines.features.chunk_cache import CachedVideo, cached_chunks

MOST_CHUNKS = 20_000  # many times the width of the features; of more, evenly chosen ones are used
PENALTY = 1.0  # on features of unit variance, per chunk; .1 and 10 did as well
Rows = NDArray[np.float32]


def align_folds(
    folder: Path,
    preset: Preset,
    stream: str,
    folds: Mapping[int, Sequence[str]],
    videos: Mapping[str, CachedVideo],
    device: str,
) -> None:
    """Give the network of each fold its last layer, in its file; one that has it is left alone.

    Args:
        folds: the videos that each network has learnt from, as the network of all videos has.
    """

    def build(file: Path) -> TwoStream:
        return build_twostream(preset.narrowed([stream]), WeightSources({stream: str(file)}), device)

    def features(network: TwoStream, video: CachedVideo, step: int) -> Rows:
        """(L / step, D)"""
        with closed_after(network.rows_with_flow(cached_chunks(video, step), 0)) as rows:
            return np.stack([row.features[stream] for row in rows])

    files = {fold: network_file(folder, stream, fold) for fold in folds}
    left = {fold: ids for fold, ids in folds.items() if ALIGNMENT not in read_dict(files[fold], mapped=True)}
    if not left:
        return
    used = sorted({video_id for ids in left.values() for video_id in ids})
    step = -(-sum(len(videos[video_id]) for video_id in used) // MOST_CHUNKS)
    whole = build(network_file(folder, stream))
    wanted = {video_id: features(whole, videos[video_id], step) for video_id in used}
    for fold, ids in left.items():
        network = build(files[fold])
        found = np.concatenate([features(network, videos[video_id], step) for video_id in ids])
        weight, bias = linear_map(found, np.concatenate([wanted[video_id] for video_id in ids]))
        layer = {"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)}
        with replacing(files[fold]) as temporary:
            write_tensors(temporary, {**read_dict(files[fold]), ALIGNMENT: layer})


def read_dict(file: Path, mapped: bool = False) -> dict[str, Any]:
    """Return the content of a weights file that this program has written."""
    return cast(dict[str, Any], read_content(file, mapped))


def linear_map(rows: Rows, wanted: Rows) -> tuple[Rows, Rows]:
    """Fit weight (D', D) and bias (D',) float32 that turn rows (N, D) into wanted (N, D'), by ridge regression."""
    mean, target = rows.mean(0, dtype=np.float64), wanted.mean(0, dtype=np.float64)
    centred = rows - mean
    scale = centred.std() or 1.0
    gram = centred.T @ centred / scale**2 + PENALTY * len(rows) * np.eye(rows.shape[1])
    weight = np.linalg.solve(gram, centred.T @ (wanted - target) / scale) / scale  # (D, D')
    return weight.T.astype(np.float32), (target - mean @ weight).astype(np.float32)
