"""What a checkpoint claims, held against the bytes that it has, before anything of the claimed size is made."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lstr.config import WindowConfig
from lstr.errors import CheckpointError

WEIGHTS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# Numbers that a model may have beyond those of its file: tables that are computed, and what making them takes.
FREE = 2**24
# Numbers that a stream may remember: more than a hundred times those of the published models.
REMEMBERED = 2**28
COPIES = ("clone", "__deepcopy__")
MADE = 10  # tensors that are made for one of a model: it has 3 at most
REFUSED = "Give a file that lstr train or the published code saved."


def check_deflated(path: object, content: IO[bytes] | None = None) -> None:
    """Raise CheckpointError where the members of a zip would take more bytes than it has.

    `content` is that of the file, where it is at hand; `path` is then for messages.
    """
    try:
        with zipfile.ZipFile(content or str(path)) as container:
            claimed = sum(info.file_size for info in container.infolist())
            size = content.seek(0, 2) if content else Path(str(path)).stat().st_size
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path} is damaged ({error}).", "Fetch or copy it again.") from error
    if claimed > size:
        raise CheckpointError(
            f"{path} is compressed: its {size} bytes stand for {claimed}.",
            "Save it again with torch.save, which does not compress.",
        )


def check_memory(path: Path, config: WindowConfig) -> None:
    """Raise CheckpointError where a stream of a model would remember more than a gigabyte, which no tensor shows."""
    chunks = config.n_long + config.work_length + config.context
    numbers = chunks * max(config.d_model, config.input_dim)
    if numbers > REMEMBERED:
        raise CheckpointError(
            f"{path}: a stream of its model would remember {chunks} chunks, which take {numbers >> 28} GB.",
            "Give a checkpoint of a shorter memory.",
        )


def check_plain(path: object, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor] | None = None) -> None:
    """Raise CheckpointError for a tensor that is no plain numbers, each with its own place, on the CPU.

    With the tensors of a model, for one of another kind of number than the model's too.
    """
    for name, tensor in tensors.items():
        if fault := _fault(tensor, None if expected is None else expected[name]):
            raise CheckpointError(f"{path}: {name} is {fault}.", REFUSED)


def _fault(tensor: Tensor, expected: Tensor | None) -> str:
    """Why a tensor cannot be a model's, in a phrase; nothing where it can."""
    if tensor.is_meta:
        return "a meta tensor, which has no numbers"
    if tensor.is_nested:
        return "a nested tensor, not a plain one"
    if tensor.layout != torch.strided:
        return f"a sparse tensor ({tensor.layout}), not a plain one"
    if tensor.is_quantized:
        return f"a quantised tensor ({tensor.dtype}), not a plain one"
    if tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
        return f"a view of {tuple(tensor.shape)} on fewer numbers"
    if expected is None:
        fits = tensor.dtype in (*WEIGHTS, *WHOLE)
    else:
        fits = tensor.dtype in WEIGHTS if expected.is_floating_point() else tensor.dtype == expected.dtype
    return "" if fits else f"of type {tensor.dtype}, which no such tensor is"


class _Bounded(TorchFunctionMode):
    """Counts the tensors that are made, and refuses one too many before it is allocated; of one thread."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]):
        super().__init__()
        places = [tensor.untyped_storage() for tensor in tensors.values()]
        held = {place.data_ptr(): place.nbytes() for place in places}  # several may share one
        self.path, self.made, self.numbers = path, 0, 0
        self.most_made, self.most_numbers = MADE * (len(tensors) + MADE), sum(held.values()) + FREE

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        values = (*args, *(kwargs or {}).values())
        first = next((value for value in values if isinstance(value, Tensor)), None)
        if first is not None and getattr(function, "__name__", "") not in COPIES:
            return function(*args, **(kwargs or {}))
        self.made += 1
        self.numbers += math.prod(_whole(values)) if first is None else first.numel()
        if self.made > self.most_made or self.numbers > self.most_numbers:
            raise CheckpointError(
                f"{self.path}: its configuration asks for a model far larger than its tensors are.",
                "Give a checkpoint of this configuration.",
            )
        return function(*args, **(kwargs or {}))


@contextmanager
def bounded(path: Path, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Whatever is made in the block stays near the size of a checkpoint's tensors, or ends in CheckpointError."""
    with _Bounded(path, tensors):
        yield


def _whole(values: Iterable[Any]) -> Iterator[int]:
    """The whole numbers in the arguments of a function, which are sizes where there is no tensor."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _whole(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield max(1, abs(value))
