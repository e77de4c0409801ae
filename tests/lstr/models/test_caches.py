"""What a step of a stream costs and what a stream keeps: counted, against the formulas of `lstr.models.lstr_step`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lstr import streaming
from lstr.kinds import configure, make_model
from lstr.pipelines.models import product_counter
from lstr.windows import indices as memory

# Feed-forward layers are as wide as the model, so that every product with a weight is a multiple of D x D.
# The work memory is no multiple of the stride, so that a chunk is not stored when another enters the long memory.
D, C, W, INPUT = 32, 5, 7, 12
SMALL = dict(rgb_dim=7, flow_dim=5, d_model=D, n_heads=4, d_feedforward=D, work_length=W, long_length=64, n0=3, n1=6)


def small(**changes):
    torch.manual_seed(0)
    return make_model(configure(**{**SMALL, **changes}), C).eval()


def feed(model, state, n_chunks, seed=0):
    """Scores of n_chunks chunks, the same ones for each stream of a state."""
    rows = torch.randn(n_chunks, INPUT, generator=torch.Generator().manual_seed(seed))
    rows = rows[:, None].expand(-1, len(state.chunks), -1)
    return torch.stack([streaming.step(model, state, row[:, :7], row[:, 7:]) for row in rows])


@pytest.fixture
def plain(monkeypatch):
    """No packed products, for the counter knows the plain ones."""
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())


def flops(model, state):
    """Multiplications and additions of the next step's matrix products."""
    with product_counter() as counter:
        feed(model, state, 1)
    return counter.get_total_flops()


def counted(model, n_steps, warm=100):
    """Of a stream that has seen `warm` chunks: whether each of the next steps stores its chunk, encodes, its FLOPs."""
    config = model.config
    state = streaming.create(model)
    state.chunks[:] = warm  # what was in them does not change the cost
    steps = []
    for T in range(warm, warm + n_steps):
        stores = config.n_long > 0 and T % (config.long_stride if config.grid == "fixed" else 1) == 0
        same = (memory.long_indices(T, config)[0] == memory.long_indices(T - 1, config)[0]).all()
        encodes = config.n_long > 0 and (not same or config.positions == "distance")
        steps.append((stores, encodes, flops(model, state)))
    return steps


def attention(n_queries, n_seen):
    """Scores and the weighted sum, over all heads."""
    return 2 * n_queries * n_seen * D


def decoder(config):
    """Multiplications of a decoder step: what is outside `attention` is in products of D x D a token."""
    A = 1 + config.anticipation
    N, M = W + config.anticipation, config.n1 + config.gru if config.n_long else config.gru
    cross = 2 if M else 0
    tokens = 3  # query, key and value of the newest chunk
    if config.kind == "testra":  # each layer sees the work tokens too, by the newest chunk's key and value
        tokens, M = tokens + 2 * config.l_dec, M + N
    products = INPUT * D + A * C * D  # feature head, classifier
    for i in range(config.l_dec):
        last = i == config.l_dec - 1
        asking = A if last else N
        tokens += (3 + cross) * asking  # output, feed-forward twice; cross query, cross output
        if last and i > 0:
            tokens += 3 * A  # the query, then keys and values on the side of the query alone
            products += attention(config.n_heads * A, N)
        else:
            tokens += 3 * N if i > 0 else 0
            products += attention(asking, N)
        products += attention(asking, M)
    return tokens * D * D + products


def storing(config):
    """Multiplications to keep a chunk for stage 1: feature head, values, and the scores of all its queries."""
    return INPUT * D + D * D + config.n_heads * config.n0 * D


def weighted_sums(config):
    """Multiplications that grow with the memory: sums of stored values by ring row, and of position values by slot."""
    return config.n0 * (memory.long_rows(config) + 1 + (config.n_long if config.kind == "lstr" else 0)) * D


def encoder(config):
    """Multiplications of the rest of both stages, and of the keys and values that the decoder takes."""
    n0, n1 = config.n0, config.n1
    tokens = 3 * n0 + 2 * n0 + 3 * n1
    products = attention(n1, n0)
    for _ in range(config.l_enc - 1):
        tokens += 8 * n1 + 2 * n0
        products += attention(n1, n1) + attention(n1, n0)
    return (tokens + 2 * n1 * config.l_dec) * D * D + products


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"grid": "sliding"},
        {"positions": "distance"},
        {"grid": "sliding", "positions": "distance", "long_stride": 1},
        {"l_dec": 1, "l_enc": 1},
        {"l_dec": 4, "l_enc": 3},
        {"anticipation": 3},
        {"long_length": 0},
        {"long_length": 0, "l_dec": 3, "anticipation": 2},
        {"kind": "testra", "grid": "anchored", "decay": 0.9},
        {"kind": "testra", "anticipation": 2, "l_dec": 3},
    ],
    ids=str,
)
def test_a_step_costs_what_the_formula_says(plain, changes):
    """A product that a cache should have saved shows here, where equal scores do not show it."""
    model = small(**changes)
    config = model.config
    kinds = set()
    for stores, encodes, counted_flops in counted(model, 6):
        expected = decoder(config)
        if stores:
            expected += storing(config)
        if encodes:
            expected += weighted_sums(config) + encoder(config)
        assert counted_flops == 2 * expected, (stores, encodes)
        kinds.add((stores, encodes))
    met = {
        ("fixed", "slot"): {(False, False), (True, False), (False, True)},
        ("fixed", "distance"): {(False, True), (True, True)},
        ("sliding", "slot"): {(True, True)},
        ("sliding", "distance"): {(True, True)},
        ("anchored", "slot"): {(True, True)},
    }
    assert kinds == (met[config.grid, config.positions] if config.n_long else {(False, False)})


@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_a_longer_memory_makes_only_the_weighted_sums_longer(plain, grid):
    short, long = (small(grid=grid, long_length=length) for length in (64, 512))
    pairs = list(zip(counted(short, 4, warm=600), counted(long, 4, warm=600), strict=True))
    assert all(a[:2] == b[:2] for a, b in pairs)
    growth = 2 * (weighted_sums(long.config) - weighted_sums(short.config))
    assert [b[2] - a[2] for a, b in pairs] == [growth * encodes for (_, encodes, _), _ in pairs]
    assert sum(encodes for (_, encodes, _), _ in pairs) == (4 if grid == "sliding" else 1)


def test_a_step_costs_the_same_at_every_age(plain):
    model = small(gru=True)
    assert counted(model, 8, warm=100) == counted(model, 8, warm=10_000)


@pytest.mark.parametrize("gru", [False, True])
@pytest.mark.parametrize("anticipation", [0, 3])
@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_a_stream_keeps_what_the_formula_says(grid, anticipation, gru):
    """In floats: rings for the long and the work memory, the encoder's keys and values, the chunks a GRU waits for."""
    model = small(grid=grid, anticipation=anticipation, gru=gru)
    config = model.config
    stored = (64 + W) // 4 + 2 if grid == "fixed" else 64 + W + 2
    floats = stored * (D + config.n_heads * config.n0)
    floats += 4 * (W + 1) * D  # tokens with their queries, keys and values
    floats += 2 * (config.n1 + gru) * D * config.l_dec
    floats += (64 + W + 2) * D * gru
    for n_streams in (1, 3):
        state = streaming.create(model, n_streams)
        assert sum(tensor.nbytes for tensor in state.tensors.values()) == 4 * floats * n_streams
        assert all(len(tensor) == n_streams for tensor in state.tensors.values())


@pytest.mark.parametrize("anticipation", [0, 3])
def test_a_stream_of_testra_keeps_what_the_formula_says(anticipation):
    config = (model := small(kind="testra", grid="anchored", anticipation=anticipation)).config
    floats = (64 + W + 2) * (D + config.n_heads * config.n0) + 2 * config.n1 * D * config.l_dec
    floats += (4 + 2 * config.l_dec) * (W + 1) * D
    assert sum(tensor.nbytes for tensor in streaming.create(model, 3).tensors.values()) == 4 * floats * 3
