"""Steps of a stream on a GPU, captured once and replayed: a step is some hundred small kernels, each quick to run and
slow to launch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr import caches
from lstr.kind import Tensors
from lstr.plan import Plan, make_plan
from lstr.precomputed import Constants


class CapturedStep:
    """`lstr.caches.advance` on fixed memory: one CUDA graph for steps that run the encoder, one for those that do not.

    It belongs to the tensors it was made with, which must not be replaced.
    """

    def __init__(self, constants: Constants, tensors: Tensors) -> None:
        self.constants = constants
        self.tensors = tensors
        weight = constants.model.pos_encoding.pe
        n_streams = len(tensors["work"])
        self.features = weight.new_zeros(n_streams, constants.model.config.input_dim)
        self.plans: dict[bool, Plan] = {}
        self.logits: dict[bool, Tensor] = {}
        self.replays: dict[bool, Callable[[], None]] = {}

    def __call__(self, chunks: NDArray[np.int64], features: Tensor) -> Tensor:
        """Logits (B, 1 + anticipation, C) of the next chunk of B streams, features (B, D), for use before the next."""
        plan = make_plan(self.constants.model.config, chunks, whole=True)
        encodes = len(plan.changed) > 0
        self.features.copy_(features)
        if encodes not in self.replays:
            self.plans[encodes] = plan.to(features.device)
            self.replays[encodes] = self.capture(lambda: self._run(encodes))
        else:
            for name, value in vars(plan).items():
                getattr(self.plans[encodes], name).copy_(value)
        self.replays[encodes]()
        return self.logits[encodes]

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """A function that does `work` by replaying its kernels. The streams are left as they were."""
        before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Libraries set themselves up at the first calls, which a capture must not see.
            for _ in range(2):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        for name, tensor in self.tensors.items():
            tensor.copy_(before[name])
        return graph.replay

    def _run(self, encodes: bool) -> None:
        self.logits[encodes] = caches.run(self.constants, self.tensors, self.plans[encodes], self.features)
