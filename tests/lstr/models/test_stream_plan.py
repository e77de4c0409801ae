"""Where a stream puts a chunk and which rows it reads: simulated with chunk numbers in place of tokens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from lstr.kinds import configure
from lstr.models.lstr.config import ENCODERS, INTEGRATIONS
from lstr.models.lstr.model import LSTR
from lstr.models.stream import as_tensors
from lstr.plans.long import Compressed, waiting_rows
from lstr.plans.plan import CHANGES, needed, of_two_shapes
from lstr.windows import indices as memory
from tests.support.playlists import scores_of

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


def planned(config, chunks, whole):
    """A plan as it is, or what is needed of it, with the names that tests ask for in any case."""
    plan = Compressed.of(config)(chunks)
    if whole:
        return of_two_shapes(plan)
    short = needed(plan)
    assert {name for name in short if name.partition(".")[0] in ("stores", CHANGES)}.isdisjoint({"stores", CHANGES})
    return short


def streams_of(plan, group):
    """The streams that a part of a plan is about."""
    return plan.get(f"{group}.streams", np.zeros(0, dtype=np.int64))


@pytest.mark.parametrize("whole", [False, True], ids=["needed", "whole"])
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_rings_hold_the_chunks_of_every_window(changes, whole):
    """Each stream reads back its own chunks, by slot, though rings wrap round and streams begin anew over old rows."""
    config = config_of(**changes)
    width, B = config.work_length, 3
    work = np.full((B, width + 1), -1)
    long = np.full((B, memory.long_rows(config) + 1), -1)
    for chunks in ages(120):
        plan = planned(config, chunks, whole)
        stamp = 1000 * np.arange(B) + chunks  # tells the streams apart
        work.reshape(-1)[plan["work_row"]] = stamp
        storing = streams_of(plan, "stores")
        if len(storing):
            long.reshape(-1)[plan["stores.row"]] = stamp[storing]
        read = work.reshape(-1)[plan["work_rows"]].reshape(B, width + config.anticipation)
        expected, present = memory.work_indices(chunks, config)
        assert (read[:, :width] == 1000 * np.arange(B)[:, None] + expected)[present].all()
        assert (read[:, width:] == -1).all() and (work[:, width] == -1).all(), "tokens of the future start from zeros"
        assert present.all() if "absent" not in plan else (plan["absent"] == ~present).all()
        changed = streams_of(plan, CHANGES)
        if not len(changed):
            continue
        indices, visible = memory.long_indices(chunks, config)
        read = np.take_along_axis(long[changed], plan["changes.held"], axis=1)  # (U, n_long)
        assert (read == 1000 * changed[:, None] + indices[changed])[visible[changed]].all()
        # A hidden slot weighs 0, and that must not be written over the weight of a chunk that another slot shows.
        assert (plan["changes.held"] == long.shape[1] - 1)[~visible[changed]].all()
        hidden = plan.get("changes.hidden", np.zeros_like(read, dtype=bool))
        assert (hidden == ~visible[changed]).all()


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_a_stream_is_encoded_when_its_memory_is_not_what_it_was_and_then_alone(changes):
    config = config_of(**changes)
    encoded = []
    for T in range(200):
        now, before = ([f(t, config) for f in (memory.long_indices, memory.long_distances)] for t in (T, max(T - 1, 0)))
        same = (now[0][0] == before[0][0]).all() and (now[0][1] == before[0][1]).all()
        same &= config.positions == "slot" or (now[1] == before[1]).all()
        encodes = config.n_long > 0 and (T == 0 or not same)
        assert streams_of(needed(Compressed.of(config)(np.array([T]))), CHANGES).tolist() == [0] * encodes
        several = streams_of(needed(Compressed.of(config)(np.array([0, T, T + 1]))), CHANGES)
        assert several.tolist().count(1) == encodes
        encoded.append(encodes)
    every = config.long_stride if (config.grid, config.positions) == ("fixed", "slot") else 1
    assert sum(encoded[40:]) == (160 // every if config.n_long else 0), "once a stride, or at every chunk"


@pytest.mark.parametrize("whole", [False, True])
def test_a_gru_takes_each_chunk_once_as_it_leaves_the_memories(whole):
    config = config_of(gru=True)
    rows = waiting_rows(config)
    ring, taken = np.full((2, rows), -1), [[], []]
    for step in range(100):
        chunks = np.array([step, step % 37])
        plan = planned(config, chunks, whole)
        ring.reshape(-1)[plan["waiting_row"]] = chunks
        for stream in np.flatnonzero(plan.get("fresh", False)):
            taken[stream].clear()
        for stream in np.flatnonzero(plan.get("leaving", False)):
            taken[stream].append(ring.reshape(-1)[plan["leaving_row"][stream]])
        for stream in range(2):
            assert taken[stream] == list(range(memory.older_ends(chunks[stream], config)))


def test_a_usual_step_does_no_work_of_masks():
    config = config_of(gru=True)
    plan = needed(Compressed.of(config)(np.array([100, 50])))
    assert {"absent", "changes.hidden", "fresh"}.isdisjoint(plan) and plan["leaving"].all()
    plan = needed(Compressed.of(config)(np.array([0, 3])))
    assert plan["fresh"].tolist() == [True, False] and "leaving" not in plan
    assert plan["absent"].sum(axis=1).tolist() == [W - 1, W - 4]
    assert plan["changes.hidden"].sum(axis=1).tolist() == [config.n_long - 1]


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
    plain, whole = model.begin(3), model.begin(3)
    videos = torch.randn(3, 28, 8, generator=torch.Generator().manual_seed(1))
    outcome = []
    with torch.no_grad():
        for step, chunks in enumerate(ages(28)):
            a = model.advance(constants, plain, chunks, videos[:, step])
            plan = as_tensors(of_two_shapes(model.plan(chunks)), torch.device("cpu"))
            b, whole = model.step(constants, whole, plan, videos[:, step])
            torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
            outcome.append(b.softmax(dim=-1))
    for stream, begin, end in ((0, 0, 28), (1, 0, 19), (1, 19, 28), (2, 11, 28)):
        expected = scores_of(model, videos[stream, begin:end])
        torch.testing.assert_close(torch.stack(outcome)[begin:end, stream], expected, atol=1e-5, rtol=0)
