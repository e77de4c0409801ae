"""The processes that train together, as torchrun starts them; a single one where nothing started more."""

import gc
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import numpy as np
import torch
from torch import distributed

from lstr.errors import LstrError

Made = TypeVar("Made")
Sample = TypeVar("Sample")
# How long the others wait while the first one evaluates or saves; a process that dies ends the wait at once.
PATIENCE = timedelta(days=1)


@dataclass(frozen=True)
class Ranks:
    """This process among `size`; rank 0 is the one that writes."""

    rank: int = 0
    size: int = 1
    held: "weakref.ref[distributed.ProcessGroup] | None" = None
    """See `group`; weak, so that leaving `join_ranks` ends the group's threads whoever still has this."""

    @property
    def group(self) -> distributed.ProcessGroup | None:
        """Gloo on the CPU, for what is not gradients; None for a single process."""
        return self.held() if self.held else None

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def share(self, samples: list[Sample]) -> list[Sample]:
        """This process's part of a batch; empty when there are fewer samples than processes."""
        return samples[self.rank :: self.size]

    def only_first(self, events: Iterable[Made]) -> Iterator[Made]:
        """The same events on rank 0; the others work through them in silence."""
        for event in events:
            if self.first:
                yield event

    def sum(self, values: list[float]) -> list[float]:
        """Sums over all processes; every one has to call it. Raises LstrError when one is gone."""
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        with lost_others(self):
            distributed.all_reduce(total, group=self.group)
        return total.tolist()

    def of_first(self, value: float) -> float:
        """The value of rank 0, once it has come this far."""
        return self.sum([value if self.first else 0.0])[0]

    def wait(self) -> None:
        """Until every process has come this far."""
        self.of_first(0.0)

    def from_first(self, make: Callable[[], Made]) -> Made:
        """What rank 0 makes, on every process; the others wait for it. It has to be small, and is pickled."""
        if self.size == 1:
            return make()
        made = [make() if self.first else None]
        with lost_others(self):
            distributed.broadcast_object_list(made, src=0, group=self.group)
        return cast(Made, made[0])

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors by their means over all processes, in place."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().double().cpu().flatten() for tensor in tensors])
        with lost_others(self):
            distributed.all_reduce(flat, group=self.group)
        for tensor, mean in zip(tensors, (flat / self.size).split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(mean.view_as(tensor))


ALONE = Ranks()


@contextmanager
def join_ranks(device: str) -> Iterator[tuple[Ranks, str]]:
    """Join the processes that torchrun started: this one's place among them, and its own device.

    Without torchrun it is a single process. Raises LstrError when there are more processes than GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size == 1 or "RANK" not in os.environ:
        yield Ranks(), device
        return
    local = int(os.environ.get("LOCAL_RANK", 0))
    backend = "gloo"
    if device.startswith("cuda"):
        if local >= torch.cuda.device_count():
            raise LstrError(
                f"Process {local} has no GPU of its own: this machine has {torch.cuda.device_count()}.",
                f"torchrun --nproc-per-node {max(1, torch.cuda.device_count())} …",
            )
        backend, device = "nccl", f"cuda:{local}"
        torch.cuda.set_device(local)
    distributed.init_process_group(backend)
    group = cast(distributed.ProcessGroup, distributed.new_group(backend="gloo", timeout=PATIENCE))
    yield Ranks(int(os.environ["RANK"]), size, weakref.ref(group)), device
    # Not after a failure: the others may never answer. A thread of gloo that lets go of its last tensors while Python
    # ends aborts the process; it ends when nothing refers to its group, such as a DistributedDataParallel in a cycle.
    del group
    gc.collect()
    distributed.destroy_process_group()


@contextmanager
def lost_others(ranks: Ranks) -> Iterator[None]:
    """Turn the libraries' page about a process of the run that is gone into a sentence."""
    try:
        yield
    except RuntimeError as error:
        if ranks.size == 1 or not any(word in str(error) for word in ("onnection", "Gloo", "gloo", "NCCL", "peer")):
            raise
        raise LstrError(
            f"Process {ranks.rank} of {ranks.size} lost the others.",
            "the process that failed first says why; go on with --resume.",
        ) from error


def distributed_model(model: torch.nn.Module, ranks: Ranks, unused: bool) -> torch.nn.Module:
    """The model with its gradients summed over all processes (DistributedDataParallel averages them).

    unused: whether some parameters may have no part in a batch, as those of a GRU that has nothing to sum up.
    """
    if ranks.size == 1:
        return model
    # most kinds of model have none, and to say so of each costs more than to look
    warnings.filterwarnings("ignore", "find_unused_parameters=True was specified", UserWarning)
    with lost_others(ranks), warnings.catch_warnings():
        # its new name, which newer versions ask for, is not known to the older ones that lstr takes
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        return torch.nn.parallel.DistributedDataParallel(
            model, broadcast_buffers=False, find_unused_parameters=unused, gradient_as_bucket_view=True
        )


def step_seed(seed: int, step: int, rank: int) -> int:
    """Seed of everything random in one step of one process: so a resumed run needs no state of any generator."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)
