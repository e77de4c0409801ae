"""Models that take a millisecond a step."""

from __future__ import annotations

import itertools

import torch

from lstr.average import Member
from lstr.kinds import configure, make_model
from lstr.models.layers import newest
from lstr.models.lstr import ENCODERS, INTEGRATIONS
from lstr.windows.windows import gather

TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=6, long_length=16, n0=3, n1=4)

DESIGNS = [
    {"encoder": encoder, "integration": integration}
    for encoder, integration in itertools.product(ENCODERS, INTEGRATIONS)
    if encoder != "joined" or integration == "cross-attention"
]


def tiny(seed=0, n_classes=5, **changes):
    torch.manual_seed(seed)
    return make_model(configure(**{**TINY, **changes}), n_classes).eval()


def averaged(*members):
    """The settings of a tiny average of members, each (settings, columns of the eight)."""
    widths = [sum(end - first for first, end in columns) or 8 for _, columns in members]
    configs = [
        configure(**{**TINY, "rgb_dim": width, "flow_dim": 0, **changes})
        for (changes, _), width in zip(members, widths, strict=True)
    ]
    pairs = zip(configs, members, strict=True)
    return {"kind": "average", "members": tuple(Member(config, columns) for config, (_, columns) in pairs)}


AVERAGED = averaged(
    ({}, ()),
    ({"kind": "rnn"}, ((0, 5),)),
    ({"kind": "mat", "groups": 2, "long_stride": 4}, ((1, 3), (5, 8))),
    ({"kind": "lfb"}, ((2, 8),)),
)
"""Of kinds with a long memory of strides of their own and of others, each with its own part of the features."""


def video(length, seed=0, width=8):
    """Random features (length, width)."""
    return torch.randn(length, width, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def of_each_window(model, features):
    """Logits (L, 1 + n_ahead, C) of a video (L, D) by definition: the newest outputs of each window alone."""
    windows = gather(features, range(len(features)), model.config)
    return newest(model(windows), windows.work_mask, model.config.work_length)


def unsettled(model):
    """The model with random biases and norms, so that no term of an equation is 0 by chance."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model
