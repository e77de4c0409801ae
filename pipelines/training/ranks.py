"""The processes that torchrun starts, which train together by torch.distributed; without it a single process."""

import gc
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar, cast

import numpy as np
import torch
from torch import distributed

from lstr.errors import LstrError

Result = TypeVar("Result")
# The other processes wait this long while the first one evaluates or saves. A process that dies ends the wait at once.
TIMEOUT = timedelta(days=1)


def world_size() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def is_first() -> bool:
    """Return whether this is the process that writes."""
    return rank() == 0


def sum_all(values: list[float]) -> list[float]:
    """Return sums over all processes; each one has to call it. Raises LstrError if another process is gone."""
    if world_size() == 1:
        return values
    # float64, in which the sum of counts is exact
    total = torch.tensor(values, dtype=torch.float64)
    with report_lost_ranks():
        distributed.all_reduce(total)
    return total.tolist()


def from_first(make: Callable[[], Result]) -> Result:
    """Return what the first process makes, on every process. It is pickled, and has to be small."""
    if world_size() == 1:
        return make()
    made = [make() if is_first() else None]
    with report_lost_ranks():
        distributed.broadcast_object_list(made, src=0, device=torch.device("cpu"))
    return cast(Result, made[0])


def wait_for_all() -> None:
    """Wait until every process calls it."""
    sum_all([0.0])


def average(tensors: Sequence[torch.Tensor]) -> None:
    """Replace tensors by their means over all processes, in place."""
    if world_size() == 1 or not tensors:
        return
    flat = torch.cat([tensor.detach().double().cpu().flatten() for tensor in tensors])
    means = torch.tensor(sum_all(flat.tolist()), dtype=torch.float64) / world_size()
    for tensor, mean in zip(tensors, means.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


@contextmanager
def join_ranks(device: str) -> Iterator[str]:
    """Join the processes that torchrun started; yield the device of this one.

    Raises LstrError if there are more processes than GPUs.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or "RANK" not in os.environ:
        yield device
        return
    backend = "gloo"
    if device.startswith("cuda"):
        local, n_gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
        if local >= n_gpus:
            raise LstrError(
                f"Process {local} needs a GPU, but this machine has {n_gpus}.",
                f"start {max(1, n_gpus)} processes: torchrun --nproc-per-node {max(1, n_gpus)}.",
            )
        backend, device = "cpu:gloo,cuda:nccl", f"cuda:{local}"
        torch.cuda.set_device(local)
    distributed.init_process_group(backend, timeout=TIMEOUT)
    yield device
    # Not after an error: the others may never answer. A thread of gloo that frees its last tensors while Python ends
    # aborts the process; it ends when nothing refers to the group, such as a DistributedDataParallel in a cycle.
    gc.collect()
    distributed.destroy_process_group()


@contextmanager
def report_lost_ranks() -> Iterator[None]:
    """Raise LstrError for what torch raises if another process is gone."""
    try:
        yield
    except RuntimeError as error:
        if world_size() == 1 or not any(word in str(error) for word in ("onnection", "Gloo", "gloo", "NCCL", "peer")):
            raise
        raise LstrError(
            f"Process {rank()} of {world_size()} lost the others.",
            "see the error of the process that failed first; then run again with --resume.",
        ) from error


def distributed_model(model: torch.nn.Module, unused: bool) -> torch.nn.Module:
    """Return the model with its gradients averaged over all processes.

    `unused` is whether some parameters may be unused in a batch, for example in a GRU without input.
    """
    if world_size() == 1:
        return model
    # most kinds of model have none, and to name those that have costs more than to look
    warnings.filterwarnings("ignore", "find_unused_parameters=True was specified", UserWarning)
    with report_lost_ranks(), warnings.catch_warnings():
        # older versions of torch do not know the new name that newer ones ask for
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        return torch.nn.parallel.DistributedDataParallel(
            model, broadcast_buffers=False, find_unused_parameters=unused, gradient_as_bucket_view=True
        )


def step_seed(seed: int, step: int) -> int:
    """Return the seed of all randomness in one step of this process: a resumed run needs no state of a generator."""
    return int(np.random.SeedSequence([seed, step, rank()]).generate_state(1, np.uint64)[0] >> 1)
