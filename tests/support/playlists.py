"""Videos that follow each other in one stream, and what a model gives for each of them alone."""

import numpy as np
import torch

from lstr import streaming
from tests.support.tiny_models import video


def playlists_of(cuts, total, width=8):
    """For each cut a playlist of two videos, of `cut` and `total - cut` chunks."""
    return [[video(cut, cut, width), video(total - cut, 1000 + cut, width)] for cut in cuts]


@torch.no_grad()
def scores_of(model, features):
    """Probabilities (L, 1 + n_ahead, C) of a video's features (L, D), by definition."""
    if len(features) == 0:
        return features.new_zeros(0, 1 + model.config.n_ahead, model.n_classes)
    return model.video_logits(features, 7).softmax(dim=-1)


def defined(model, playlists):
    """Probabilities (B, T, 1 + n_ahead, C) by definition: every video on its own."""
    return torch.stack([torch.cat([scores_of(model, video) for video in videos]) for videos in playlists])


@torch.no_grad()
def streamed(model, playlists):
    """The same from one stream for each playlist, whose videos follow each other; all streams go on together."""
    chunks = np.stack([np.concatenate([np.arange(len(v)) for v in videos]) for videos in playlists])  # (B, T)
    features = torch.stack([torch.cat(videos) for videos in playlists])  # (B, T, D)
    state, rows = streaming.create(model, len(playlists)), []
    for tensor in state.tensors.values():
        tensor.fill_(float("nan"))
    for t in range(chunks.shape[1]):
        state.chunks[:] = chunks[:, t]
        parts = features[:, t].split([model.config.rgb_dim, model.config.flow_dim], dim=1)
        rows.append(streaming.step_streams(model, state, range(len(playlists)), *parts))
    return torch.stack(rows, dim=1)
