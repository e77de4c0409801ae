"""A model of OpenVINO compiled for several numbers of items, run by as many threads as call it."""

import functools
import platform
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.devices import extensions

TELEMETRY = "openvino_telemetry"


def load_openvino() -> Any:
    """The package `openvino`, without its telemetry, which would report each import to its makers."""
    hidden = TELEMETRY not in sys.modules
    if hidden:
        sys.modules[TELEMETRY] = None  # type: ignore[assignment]
    try:
        import openvino
    finally:
        if hidden:
            del sys.modules[TELEMETRY]
    return openvino


@functools.cache
def load_core() -> Any:
    """OpenVINO's Core, one for the process and never freed.

    On processors with AMX its CPU plugin gives the thread a stack for signal handlers, and frees that stack with itself
    without taking it back: the next Ctrl-C would be a segmentation fault.
    """
    return load_openvino().Core()


def compile_model(model: Any, shape: Sequence[int], hint: str, threads: int) -> Any:
    """A model for items of a shape; a stream for each of so many threads that call, which the thread itself computes.

    hint: f32 or bf16, in which it multiplies.
    """
    model.reshape([*shape])
    options = {"INFERENCE_PRECISION_HINT": hint, "NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": threads}
    return load_core().compile_model(model, "CPU", options | {"ENABLE_CPU_PINNING": False})


class CompiledModel:
    """A model whose input is items (N, ...) of bytes and whose output has a row for each.

    Each calling thread has a request of its own, and computes in it alone.
    """

    def __init__(self, model: Any, shape: Sequence[int], hint: str, threads: int):
        self.shape = tuple(shape)
        """Shape of an item"""
        self._model, self._hint, self._threads = model, hint, threads
        self._lock = threading.Lock()
        self._compiled: dict[int, Any] = {}
        self._requests = threading.local()

    def __call__(self, items: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(N, ...) → (N, D), by the numbers that were prepared; a rest is filled up to the smallest."""
        if not self._compiled:
            self.prepare([len(items)])
        rows, start = [], 0
        while start < len(items):
            left = items[start:]
            size = max((n for n in self._compiled if n <= len(left)), default=0) or min(self._compiled)
            filled = left[:size] if len(left) >= size else np.resize(left, (size, *left.shape[1:]))
            rows.append(self._infer(np.ascontiguousarray(filled))[: len(left)])
            start += size
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def prepare(self, numbers: Iterable[int]) -> None:
        """Compile for these numbers of items."""
        with self._lock:
            for n in numbers:
                if n not in self._compiled:
                    made = compile_model(self._model, (n, *self.shape), self._hint, self._threads)
                    self._compiled = {
                        **self._compiled,
                        n: made,
                    }  # another dict, for other threads may be reading this one

    def _infer(self, items: NDArray[np.uint8]) -> NDArray[np.float32]:
        requests = vars(self._requests)
        name = str(len(items))
        if name not in requests:
            requests[name] = self._compiled[len(items)].create_infer_request()
        request = requests[name]
        request.infer([items], share_inputs=True)
        return request.get_output_tensor(0).data.copy()


def multiplies_int8() -> bool:
    """Whether the processor adds products of 8 bits without overflow (VNNI, or an ARM one).

    On another its int8 kernels could clip sums, which makes other features; there int8 networks compute in float32.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return True
    return "avx512_vnni" in extensions()
