"""Steps of a stream on a GPU, captured once and replayed: a step is some hundred small kernels, each quick to run and
slow to launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from threading import Lock
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.models.kind import Tensors
from lstr.models.lstr import caches
from lstr.models.lstr.precomputed import Constants
from lstr.models.lstr.stream_plan import Plan, make_plan

CAPTURING = Lock()
"""Of a process: PyTorch captures one graph at a time."""
ALIGNED = 8  # bytes, at which every tensor of a piece of memory begins


class Together:
    """Tensors of fixed shapes in one piece of memory of a device, which `fill` brings there in a single copy.

    The next `fill` overwrites what a copy on its way is made of: wait for a result of the first before.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device):
        starts, size = {}, 0
        for name, tensor in tensors.items():
            starts[name] = size
            size += -(-tensor.nbytes // ALIGNED) * ALIGNED
        # without pinned memory a copy to a GPU waits for it
        self._here = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._there = torch.zeros(size, dtype=torch.uint8, device=device)

        def views(memory: Tensor) -> dict[str, Tensor]:
            pieces = {name: memory[start : start + tensors[name].nbytes] for name, start in starts.items()}
            return {name: piece.view(tensors[name].dtype).view(tensors[name].shape) for name, piece in pieces.items()}

        self._sources, self.tensors = views(self._here), views(self._there)

    def fill(self, values: Mapping[str, Tensor]) -> None:
        """Let `tensors` have these values, which are on the CPU."""
        for name, value in values.items():
            self._sources[name].copy_(value)
        self._there.copy_(self._here, non_blocking=True)


class CapturedStep:
    """`caches.advance` on fixed memory: one CUDA graph for steps that run the encoder, one for those that do not.

    It belongs to the tensors it was made with, which must not be replaced. `prepare` captures both graphs.
    """

    def __init__(self, constants: Constants, tensors: Tensors) -> None:
        self.constants = constants
        self.tensors = tensors
        self.inputs: dict[bool, Together] = {}
        self.logits: dict[bool, Tensor] = {}
        self.replays: dict[bool, Callable[[], None]] = {}

    def prepare(self) -> None:
        """Capture now, while no other thread uses the GPU, what the first steps would."""
        config, n_streams = self.constants.model.config, len(self.tensors["work"])
        features = torch.zeros(n_streams, config.input_dim)
        for chunks in range(config.work_length + config.long_stride + 1):  # by then both kinds of steps came
            plan = make_plan(config, np.full(n_streams, chunks), whole=True)
            if (len(plan.changed) > 0) not in self.replays:
                self._made(plan, features)

    def __call__(self, chunks: NDArray[np.int64], features: Tensor, taking: NDArray[np.bool_] | None = None) -> Tensor:
        """Logits (B, 1 + anticipation, C) of the next chunk of B streams, features (B, D), for use before the next.

        taking (B,) bool: the streams that have a next chunk, None for all. What a step leaves of another stream is
        what its own next step writes anew.
        """
        plan = make_plan(self.constants.model.config, chunks, whole=True)
        if taking is not None:  # a GRU's state alone is carried on from what it was
            there = torch.from_numpy(taking)
            for mask in (plan.leaving, plan.fresh):
                assert mask is not None, "a whole plan has every mask"
                mask &= there
        encodes = self._made(plan, features)
        self.replays[encodes]()
        return self.logits[encodes]

    def _made(self, plan: Plan, features: Tensor) -> bool:
        """Bring a step's numbers to where its graph reads them; whether it runs the encoder."""
        encodes = len(plan.changed) > 0
        weight = self.constants.model.pos_encoding.pe
        values = {**vars(plan), "features": features.to("cpu", weight.dtype)}
        if encodes not in self.inputs:
            self.inputs[encodes] = Together(values, weight.device)
        self.inputs[encodes].fill(values)
        if encodes not in self.replays:
            self.replays[encodes] = self.capture(lambda: self._run(encodes))
        return encodes

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """A function that does `work` by replaying its kernels. The streams are left as they were."""
        with CAPTURING, torch.no_grad(), torch.cuda.device(self.constants.model.pos_encoding.pe.device):
            before = {name: tensor.clone() for name, tensor in self.tensors.items()}
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                # Libraries set themselves up at the first calls, which a capture must not see.
                for _ in range(2):
                    work()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # what other threads allocate or copy meanwhile is no part of it, and must not end it
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                work()
            for name, tensor in self.tensors.items():
                tensor.copy_(before[name])
        return graph.replay

    def _run(self, encodes: bool) -> None:
        tensors = self.inputs[encodes].tensors
        plan = Plan(**cast(dict[str, Any], {field.name: tensors[field.name] for field in fields(Plan)}))
        self.logits[encodes] = caches.run(self.constants, self.tensors, plan, tensors["features"])
