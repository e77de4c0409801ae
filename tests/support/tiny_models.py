"""Models of every kind and design that take a millisecond per step, and random videos for them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.average import Member
from lstr.kinds import KINDS, configure, make_model
from lstr.models.lstr import ENCODERS, INTEGRATIONS
from lstr.windows.windows import Supervision
from tests.support.published_sets import supervised_windows

TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=6, long_length=16, n0=3, n1=4)

DESIGNS = [
    {"encoder": encoder, "integration": integration}
    for encoder, integration in itertools.product(ENCODERS, INTEGRATIONS)
    if encoder != "joined" or integration == "cross-attention"
]


def averaged(*members):
    """Return the settings of an average of members, each (settings, ranges of the eight features)."""
    widths = [sum(end - first for first, end in columns) or 8 for _, columns in members]
    configs = [
        configure(**{**TINY, "rgb_dim": width, "flow_dim": 0, **changes})
        for (changes, _), width in zip(members, widths, strict=True)
    ]
    pairs = zip(configs, members, strict=True)
    return {"kind": "average", "members": tuple(Member(config, columns) for config, (_, columns) in pairs)}


AVERAGED = averaged(
    ({"encoder": "none"}, ()),
    ({"kind": "rnn"}, ((0, 5),)),
    ({"kind": "gatehub", "long_stride": 4}, ((1, 3), (5, 8))),
    ({"kind": "lfb"}, ((2, 8),)),
)
"""Of kinds with and without a long memory, with different strides and parts of the features"""

VARIANTS: list[dict[str, Any]] = [
    {"grid": "sliding", "positions": "distance"},
    {"grid": "anchored", "gru": True, "anticipation": 2},
    {"long_length": 0, "gru": True},
    {"encoder": "one-stage", "gru": True},
    {"encoder": "stage2-self-attention", "integration": "average"},
    {"encoder": "self-attention", "integration": "mlp"},
    {"encoder": "projection", "integration": "concatenation", "anticipation": 2},
    {"encoder": "none", "positions": "distance"},
    {"encoder": "joined", "anticipation": 2},
    {"kind": "rnn", "cell": "gru"},
    {"kind": "rnn", "deltas": True},
    {"kind": "miniroad", "anticipation": 2},
    {"kind": "trn", "anticipation": 2, "d_token": 6, "shared_classifier": True, "decoder_from": 0},
    {"kind": "testra", "grid": "anchored", "decay": 0.9, "anticipation": 2},
    {"kind": "gatehub", "n_heads": 2, "d_model": 160, "n0": 8, "long_stride": 1},  # a stream stores parts of its gates
    {"kind": "oadtr", "anticipation": 2, "decoder_heads": 2, "decoder_feedforward": 8},
    {"kind": "cmert", "grid": "anchored", "context": 2, "anticipation": 2, "refine_times": 3},
    {"kind": "mat", "grid": "sliding", "groups": 2, "l_stage1": 2, "refinements": 3, "anticipation": 2},
    {"kind": "fats", "generated": 2},
    {"kind": "lap-like", "anticipation": 2},
    AVERAGED,
]
SLOW = ("mat", "cmert")
CASES: list[dict[str, Any]] = [*({"kind": kind} for kind in KINDS), *VARIANTS]
"""Every kind with its defaults, and the settings that change it most"""


def name_of(case):
    return "average" if case is AVERAGED else "-".join(map(str, case.values()))


def each_of(cases):
    """Parametrise a test by its `case`; variants of a kind, and the two slowest kinds, are for `make test-all`."""
    is_quick = [{*case} == {"kind"} and case["kind"] not in SLOW for case in cases]
    marks = [() if quick else pytest.mark.long for quick in is_quick]
    params = [pytest.param(case, id=name_of(case), marks=mark) for case, mark in zip(cases, marks, strict=True)]
    return pytest.mark.parametrize("case", params)


each_case = each_of(CASES)


def tiny(seed=0, n_classes=5, **changes):
    torch.manual_seed(seed)
    return make_model(configure(**{**TINY, **changes}), n_classes).eval()


def video(length, seed=0, width=8):
    return torch.randn(length, width, generator=torch.Generator().manual_seed(seed))


def labelled_windows(model, ends, runs=((0, 12), (1, 6), (3, 1), (1, 3), (2, 20), (0, 18))):
    """Return windows of a random video and their supervision; `runs` has the action and the length of each run."""
    labels = np.repeat(*np.array(runs).T)
    rgb, flow = video(len(labels)).split([5, 3], dim=1)
    arrays = {"rgb": rgb.numpy(), "flow": flow.numpy(), "target": np.eye(5)[labels]}
    windows, targets, counts = supervised_windows(model, arrays, ends)
    return windows, Supervision(targets, counts)


def perturb(model):
    """Randomise biases and norms, so that no term of an equation is 0."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def scores_of(model, features):
    """Return probabilities (L, 1 + n_ahead, C) of a video's features (L, D), by definition."""
    if len(features) == 0:
        return features.new_zeros(0, 1 + model.config.n_ahead, model.n_classes)
    return model.video_logits(features, 7).softmax(dim=-1)


def run(model, features, state=None):
    """Return scores (T, ..., 1 + n_ahead, C) of features (T, D) of a stream, or (T, B, D) of B streams."""
    if state is None:
        state = streaming.create(model, 1 if features.ndim == 2 else features.shape[1])
    rgb = model.config.rgb_dim
    return torch.stack([streaming.step_ahead(model, state, row[..., :rgb], row[..., rgb:]) for row in features])


def check_streams(model, lengths, tolerance=1e-5):
    """Compare streams of one state, each with several videos of the given lengths, with the definition."""
    width = model.config.input_dim
    playlists = [[video(n, 10 * i + k, width) for k, n in enumerate(row)] for i, row in enumerate(lengths)]
    expected = torch.stack([torch.cat([scores_of(model, video) for video in videos]) for videos in playlists])
    features = torch.stack([torch.cat(videos) for videos in playlists], dim=1)  # (T, B, D)
    starts = [set(np.cumsum(row)[:-1]) for row in lengths]
    state, rows = streaming.create(model, len(lengths)), []
    for t in range(len(features)):
        streaming.reset(state, [stream for stream, times in enumerate(starts) if t in times])
        rows.append(run(model, features[t : t + 1], state)[0])
    torch.testing.assert_close(torch.stack(rows, dim=1), expected, atol=tolerance, rtol=0)
    return expected
