"""Models that take a millisecond a step."""

from __future__ import annotations

import itertools

import torch

from lstr.config import ENCODERS, INTEGRATIONS, LSTRConfig
from lstr.kinds import make_model

TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=6, long_length=16, n0=3, n1=4)

DESIGNS = [
    {"encoder": encoder, "integration": integration}
    for encoder, integration in itertools.product(ENCODERS, INTEGRATIONS)
    if encoder != "joined" or integration == "cross-attention"
]


def tiny(seed=0, n_classes=5, **changes):
    torch.manual_seed(seed)
    return make_model(LSTRConfig(**{**TINY, **changes}), n_classes).eval()


def video(length, seed=0):
    return torch.randn(length, 8, generator=torch.Generator().manual_seed(seed))
