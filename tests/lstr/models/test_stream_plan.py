"""Where a stream puts a chunk and which rows it reads: simulated with chunk numbers in place of tokens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from lstr import batch
from lstr.kinds import configure
from lstr.models.lstr import caches
from lstr.models.lstr.config import ENCODERS, INTEGRATIONS
from lstr.models.lstr.model import LSTR
from lstr.models.lstr.stream_plan import Plan, long_rows, make_plan, spacing, waiting_rows
from lstr.windows import indices as memory

W, L = 6, 16
TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=W, long_length=L, n0=3, n1=4)
DESIGNS = [
    pair for pair in itertools.product(ENCODERS, INTEGRATIONS) if pair[0] != "joined" or pair[1] == INTEGRATIONS[0]
]
SHAPES = [
    {},
    {"grid": "sliding"},
    {"grid": "anchored"},
    {"positions": "distance"},
    {"grid": "sliding", "positions": "distance", "long_stride": 1},
    {"work_length": 1},
    {"work_length": 3, "long_stride": 8},
    {"long_length": 4, "anticipation": 2},
    {"long_length": 0},
]
AGES = [0, 1, 5, 6, 17, 22, 23, 24, 90]
"""Chunks that streams of one state have seen, from the first to long after every ring has gone round."""


def config_of(**changes):
    return configure(**{**TINY, **changes})


def tiny(**changes):
    torch.manual_seed(0)
    model = LSTR(config_of(**changes), 5).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def ages(n_steps):
    """Chunks seen (3,) before each step by three streams that begin, and begin anew, at different times."""
    for step in range(n_steps):
        yield np.array([step, step % 19, step - 11 if step >= 11 else step])


@pytest.mark.parametrize("whole", [False, True], ids=["needed", "whole"])
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_rings_hold_the_chunks_of_every_window(changes, whole):
    """Each stream reads back its own chunks, by slot, though rings wrap round and streams begin anew over old rows."""
    config = config_of(**changes)
    width, B = config.work_length, 3
    work = np.full((B, width + 1), -1)
    long = np.full((B, long_rows(config)), -1)
    for chunks in ages(120):
        plan = make_plan(config, chunks, whole)
        stamp = 1000 * np.arange(B) + chunks  # tells the streams apart
        work.reshape(-1)[plan.work_row] = stamp
        if len(plan.storing):
            long.reshape(-1)[plan.long_row] = stamp[plan.storing]
        read = work.reshape(-1)[plan.work_rows].reshape(B, width + config.anticipation)
        expected, present = memory.work_indices(chunks, config)
        assert (read[:, :width] == 1000 * np.arange(B)[:, None] + expected)[present].all()
        assert (read[:, width:] == -1).all() and (work[:, width] == -1).all(), "tokens of the future start from zeros"
        assert present.all() if plan.work_mask is None else (plan.work_mask.numpy() == present).all()
        indices, visible = memory.long_indices(chunks, config)
        changed = plan.changed.numpy()
        read = long.reshape(-1)[plan.long_rows].reshape(len(changed), config.n_long)
        assert (read == 1000 * changed[:, None] + indices[changed])[visible[changed]].all()
        within = long[changed].reshape(-1)[plan.ring_rows].reshape(read.shape)
        assert (within == read).all()
        # A hidden slot weighs 0, and that must not be written over the weight of a chunk that another slot shows.
        assert ((plan.long_rows.numpy() + 1) % max(long.shape[1], 1) == 0)[~visible[changed].ravel()].all()
        mask = np.ones_like(read, dtype=bool) if plan.long_mask is None else plan.long_mask.numpy()
        assert (mask == visible[changed]).all()


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_a_stream_is_encoded_when_its_memory_is_not_what_it_was_and_then_alone(changes):
    config = config_of(**changes)
    encoded = []
    for T in range(200):
        now, before = ([f(t, config) for f in (memory.long_indices, memory.long_distances)] for t in (T, max(T - 1, 0)))
        same = (now[0][0] == before[0][0]).all() and (now[0][1] == before[0][1]).all()
        same &= config.positions == "slot" or (now[1] == before[1]).all()
        needed = config.n_long > 0 and (T == 0 or not same)
        assert make_plan(config, np.array([T])).changed.tolist() == [0] * needed
        assert make_plan(config, np.array([0, T, T + 1])).changed.tolist().count(1) == needed
        encoded.append(needed)
    every = config.long_stride if (config.grid, config.positions) == ("fixed", "slot") else 1
    assert sum(encoded[40:]) == (160 // every if config.n_long else 0), "once a stride, or at every chunk"


@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_only_chunks_that_a_grid_can_use_are_stored(grid):
    config = config_of(grid=grid)
    every = 4 if grid == "fixed" else 1
    assert spacing(config) == every
    stored = [T for T in range(100) if len(make_plan(config, np.array([T])).storing)]
    assert stored == list(range(0, 100, every))
    assert make_plan(config, np.array([3, 4, 8, 9])).storing.tolist() == ([1, 2] if grid == "fixed" else [0, 1, 2, 3])
    assert long_rows(config) == (W + L) // every + 2


@pytest.mark.parametrize("whole", [False, True])
def test_a_gru_takes_each_chunk_once_as_it_leaves_the_memories(whole):
    config = config_of(gru=True)
    rows = waiting_rows(config)
    ring, taken = np.full((2, rows), -1), [[], []]
    for step in range(100):
        chunks = np.array([step, step % 37])
        plan = make_plan(config, chunks, whole)
        ring.reshape(-1)[plan.waiting_row] = chunks
        if plan.fresh is not None:
            for stream in np.flatnonzero(plan.fresh):
                taken[stream].clear()
        if plan.leaving is not None:
            for stream in np.flatnonzero(plan.leaving):
                taken[stream].append(ring.reshape(-1)[plan.leaving_row[stream]])
        for stream in range(2):
            assert taken[stream] == list(range(memory.older_ends(chunks[stream], config)))


def test_a_usual_step_does_no_work_of_masks():
    config = config_of(gru=True)
    plan = make_plan(config, np.array([100, 50]))
    assert plan.work_mask is None and plan.long_mask is None and plan.fresh is None
    plan = make_plan(config, np.array([0, 3]))
    assert plan.fresh.tolist() == [True, False] and plan.leaving is None
    assert plan.work_mask.sum(dim=1).tolist() == [1, 4] and plan.long_mask.sum(dim=1).tolist() == [1]
    assert make_plan(config_of(), np.array([100, 50])).leaving.all(), "counted for every model, used with a GRU alone"


@pytest.mark.parametrize("changes", [*SHAPES, {"gru": True}], ids=str)
def test_a_whole_plan_has_one_of_two_shapes(changes):
    """A captured graph runs again only on tensors of the shapes it was captured with."""
    config = config_of(**changes)
    shapes = set()
    for chunks in [*ages(120), np.array([3, 3, 3]), np.array([0, 0, 0])]:
        plan = make_plan(config, chunks, whole=True)
        assert all(isinstance(value, torch.Tensor) for value in vars(plan).values())
        assert len(plan.changed) in (0, 3) and len(plan.storing) == (3 if config.n_long else 0)
        shapes.add(tuple((name, tuple(value.shape), value.dtype) for name, value in vars(plan).items()))
    assert len(shapes) == (1 if config.n_long == 0 else 2)


def test_a_plan_moves_whole_to_another_device():
    plan = make_plan(config_of(), np.array([100]))
    moved = plan.to(torch.device("meta"))
    assert isinstance(moved, Plan) and moved.work_mask is None
    assert {value.device.type for value in vars(moved).values() if value is not None} == {"meta"}


@pytest.mark.long
@pytest.mark.parametrize(
    "encoder, integration, grid, positions",
    [(*design, "fixed", "slot") for design in DESIGNS]
    + [(*design, "sliding", "slot") for design in DESIGNS[::6]]
    + [(*design, "fixed", "distance") for design in DESIGNS[::6]],
)
def test_whole_plans_give_the_same_scores(encoder, integration, grid, positions):
    """What every stream then computes in vain must reach no score: spare rows, hidden slots, encoders run again."""
    shape = {"grid": grid, "positions": positions, "work_length": 3, "long_length": 8}  # full, and gone round, sooner
    added = {"gru": True, "anticipation": 0 if integration == "mlp" else 2}
    model = tiny(encoder=encoder, integration=integration, **shape, **added)
    constants = model.constants()
    plain, whole = caches.begin(model, 3), caches.begin(model, 3)
    videos = torch.randn(3, 28, 8, generator=torch.Generator().manual_seed(1))
    outcome = []
    with torch.no_grad():
        for step, chunks in enumerate(ages(28)):
            features = videos[:, step]
            a = caches.run(constants, plain, make_plan(model.config, chunks), features)
            b = caches.run(constants, whole, make_plan(model.config, chunks, whole=True), features)
            torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
            outcome.append(b.softmax(dim=-1))
    for stream, begin, end in ((0, 0, 28), (1, 0, 19), (1, 19, 28), (2, 11, 28)):
        expected = batch.predict_ahead(model, videos[stream, begin:end])
        torch.testing.assert_close(torch.stack(outcome)[begin:end, stream], expected, atol=1e-5, rtol=0)
