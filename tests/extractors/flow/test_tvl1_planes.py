"""Frames to bytes of flow on a torch device: the processor's bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lstr.extractors.flow import tvl1, tvl1_torch
from lstr.extractors.flow.tvl1_solvers import Solver
from lstr.extractors.flow.tvl1_torch import flow_planes
from lstr.extractors.flow.workers import FlowWorkers
from tests.support.flow_frames import grey_of, real_frames
from tests.support.host_kernel import build_host_kernel

needs_kernel = pytest.mark.skipif(not tvl1.available(), reason="the compiled kernel was not built")


@needs_kernel
@pytest.mark.long
def test_bytes_of_a_chunk_equal_those_of_the_processor(tmp_path, shared, monkeypatch):
    """The GPU's path but for the GPU: two chunks to planes, by the CUDA kernel's source on the host."""
    host = build_host_kernel(tmp_path)
    video = shared / "data/ut_interaction/videos/seq01.mp4"
    chunks = real_frames(video, 30, 12, (48, 32)).reshape(2, 6, 32, 48, 3)
    monkeypatch.setattr(tvl1_torch, "open_solver", lambda device: Solver("cluster", host.solver(4)))
    ours = flow_planes(torch.from_numpy(np.stack([grey_of(chunk) for chunk in chunks])))
    assert ours.dtype == torch.uint8 and ours.shape == (2, 10, 32, 48)
    with FlowWorkers(1, backend="native") as workers:
        for chunk, planes in zip(chunks, ours.numpy(), strict=True):
            assert np.array_equal(planes, workers.submit(chunk).result())
