"""Steps of a stream on a GPU, captured once by CUDA graphs and replayed.

A step is some hundred small kernels, each quick to run and slow to launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.models.kind import Model
from lstr.models.layers import Tensors, keep
from lstr.windows.plans import CHANGES, Plan, of_two_shapes

# One for a process: PyTorch captures one graph at a time.
CAPTURING = Lock()
# Bytes. Each tensor in a piece of memory starts at a multiple, as views of int64 need.
ALIGNED = 8


class Together:
    """Tensors of fixed shapes in one piece of memory of a device, which `fill` brings there in a single copy.

    The next `fill` overwrites the source of a copy that may still run: wait for a result of the first before.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device):
        sizes = [-(-tensor.nbytes // ALIGNED) * ALIGNED for tensor in tensors.values()]
        # without pinned memory a copy to a GPU waits for it
        self._here = torch.zeros(sum(sizes), dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._there = torch.zeros(sum(sizes), dtype=torch.uint8, device=device)
        self._sources, self.tensors = Tensors(), Tensors()
        for views, memory in ((self._sources, self._here), (self.tensors, self._there)):
            for (name, tensor), piece in zip(tensors.items(), memory.split(sizes), strict=True):
                views[name] = piece[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)

    def fill(self, values: Mapping[str, Tensor]) -> None:
        """Let `tensors` have these values, which are on the CPU."""
        for name, value in values.items():
            self._sources[name].copy_(value)
        self._there.copy_(self._here, non_blocking=True)


class CapturedStep:
    """`Model.step` on fixed memory, by CUDA graphs: one for steps that sum up a long memory, one for other steps.

    It belongs to the tensors it was made with, which must not be replaced. Every graph is captured at once, while no
    other thread uses the GPU, instead of in the first steps.
    """

    def __init__(self, model: Model, constants: Any, tensors: Tensors) -> None:
        self.model, self.planner = model, model.planner
        self.constants = constants
        self.tensors = tensors
        self.inputs: dict[bool, Together] = {}
        self.logits: dict[bool, Tensor] = {}
        self.replays: dict[bool, Callable[[], None]] = {}
        config, n_streams = model.config, len(next(iter(tensors.values())))
        features = torch.zeros(n_streams, config.input_dim)
        # Both kinds of steps occur in these chunks.
        for chunks in range(config.work_length + config.long_stride + 1):
            plan = of_two_shapes(self.planner(np.full(n_streams, chunks)))
            if (CHANGES in plan) not in self.replays:
                self._fill_inputs(plan, features, np.ones(n_streams, dtype=np.bool_))

    def __call__(self, chunks: NDArray[np.int64], features: Tensor, taking: NDArray[np.bool_]) -> Tensor:
        """Return logits (B, 1 + n_ahead, C) of the next chunk of B streams, features (B, D), for use before the next.

        taking (B,) bool: the streams that have a next chunk. What a step leaves of another stream is
        what it was, or what its own next step overwrites.
        """
        changes = self._fill_inputs(of_two_shapes(self.planner(chunks)), features, taking)
        self.replays[changes]()
        return self.logits[changes]

    def _fill_inputs(self, plan: Plan, features: Tensor, taking: NDArray[np.bool_]) -> bool:
        """Bring a step's numbers to where its graph reads them; whether that is the one for long memories."""
        changes, weight = CHANGES in plan, self.model.classifier.weight
        values = {f"plan.{name}": torch.from_numpy(np.array(array)) for name, array in plan.items()}
        values |= {"features": features.to("cpu", weight.dtype), "taking": torch.from_numpy(taking)}
        if changes not in self.inputs:
            self.inputs[changes] = Together(values, weight.device)
        self.inputs[changes].fill(values)
        if changes not in self.replays:
            given = self.inputs[changes].tensors
            own = {name.removeprefix("plan."): t for name, t in given.items() if name.startswith("plan.")}

            def run() -> None:
                logits, after = self.model.step(self.constants, self.tensors, own, given["features"], donate=True)
                keep(self.tensors, after, given["taking"])
                self.logits[changes] = logits

            self.replays[changes] = self.capture(run)
        return changes

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does `work` by replaying its kernels. The streams do not change."""
        with CAPTURING, torch.no_grad(), torch.cuda.device(self.model.classifier.weight.device):
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
