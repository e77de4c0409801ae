"""Networks on OpenVINO: traced once from torch and kept on disk, or the graph of an exported model."""

import functools
import platform
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import NetworkRuntimeError
from lstr.extractors.devices import extensions, fast_precision
from lstr.extractors.networks.conversion import (
    FEATURES,
    IMAGES,
    NetworkJob,
    Store,
    check_features,
    exact_precision,
)
from lstr.extractors.networks.running_network import RunningNetwork
from lstr.extractors.recipe import INT8, LEAST, STEPS

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


NAME = "openvino"


class OpenVINONetwork(RunningNetwork):
    """A network of OpenVINO. Each calling thread has a request of its own, and computes in it alone."""

    runtime = NAME

    def __init__(self, job: NetworkJob, store: Store | None):
        self.job = job
        self.ov = load_openvino()
        self.core = load_core()
        self._model = self._read(store) or self._convert(store)
        self._compiled = CompiledModel(self._model, (*job.size, job.channels), self._hint(), job.threads)

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork; by the numbers of images that were prepared; a rest is filled up to the smallest."""
        return self._compiled(images)

    def prepare(self, batches: Iterable[int]) -> None:
        """Compile for these numbers of images."""
        self._compiled.prepare(batches)

    def _hint(self) -> str:
        """Where the processor gains nothing by bfloat16, float32 is nearer to what it stands for, and faster."""
        return "bf16" if self.job.precision == "bf16" and fast_precision("cpu") == "bf16" else "f32"

    def _key(self) -> str:
        kernels = "whole" if self.job.precision == INT8 and multiplies_int8() else "rounded"
        return self.job.key(NAME, f"{self.ov.get_version()} {kernels}")

    def _read(self, store: Store | None) -> Any:
        """The model as it was kept; None where it was not, or cannot be read."""
        content = store.read(self._key()) if store is not None else None
        return None if content is None else self._from_bytes(content)

    def _from_bytes(self, content: bytes) -> Any:
        """The model of what `_parts` makes; None where it cannot be read."""
        try:
            length = int.from_bytes(content[:8], "little")
            weights = np.frombuffer(content, np.uint8, offset=8 + length)
            return self.core.read_model(bytes(content[8 : 8 + length]), self.ov.Tensor(weights))
        except (RuntimeError, ValueError):
            return None  # whoever reads converts it again

    def _convert(self, store: Store | None) -> Any:
        """The model traced from torch, checked against it, and kept. Raises what OpenVINO raises, and as the check."""
        import torch
        from openvino.frontend import FrontEndManager
        from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

        job = self.job
        with torch.no_grad():
            network, unchecked = job.pooled(exact_precision(job)), {"check_trace": False}  # features are checked below
            traced = TorchScriptPythonDecoder(network, example_input=job.example(), trace_kwargs=unchecked)
        frontend = FrontEndManager().load_by_framework("pytorch")
        self._model = frontend.convert(frontend.load(traced))
        if job.precision == INT8:
            self._quantise_weights()
        parts = self._parts()
        # as later runs will read it: the last bits of the traced one's features were others
        self._model = self._from_bytes(b"".join(parts))
        shape = (job.part.segments, *job.size, job.channels)
        exact = compile_model(self._model, shape, "f32", 1).create_infer_request()
        check_features(job, NAME, lambda images: exact.infer([images])[0])
        if store is not None:
            store.write(self._key(), parts)
        return self._model

    def _parts(self) -> tuple[bytes, bytes, bytes]:
        """What `_read` reads: the length of the graph, the graph, the weights."""
        with TemporaryDirectory() as folder:
            graph, weights = Path(folder) / "graph.xml", Path(folder) / "weights.bin"
            self.ov.serialize(self._model, graph, weights)
            return graph.stat().st_size.to_bytes(8, "little"), graph.read_bytes(), weights.read_bytes()

    def _quantise_weights(self) -> None:
        """Give convolutions of rounded inputs their weights as whole numbers, by which OpenVINO knows int8 kernels."""
        from openvino import opset13
        from openvino.passes import ConstantFolding, Manager

        passes = Manager()
        passes.register_pass(ConstantFolding())  # the traced ranges are small computations
        passes.run_passes(self._model)
        if not multiplies_int8():
            return
        for node in self._model.get_ordered_ops():
            if node.get_type_name() not in ("Convolution", "GroupConvolution"):
                continue
            weights = node.input_value(1).get_node()
            values = weights.data if weights.get_type_name() == "Constant" else None
            if values is None or node.input_value(0).get_node().get_type_name() != "FakeQuantize":
                continue
            # (out, in, h, w), or (groups, out, in, h, w)
            inner = tuple(range(values.ndim - 3, values.ndim))
            steps = np.maximum(np.abs(values).max(inner, keepdims=True), LEAST * STEPS) / np.float32(STEPS)
            whole = np.round(values / steps).clip(-STEPS, STEPS).astype(np.int8)
            scaled = opset13.multiply(opset13.convert(opset13.constant(whole), "f32"), opset13.constant(steps))
            node.input(1).replace_source_output(scaled.output(0))


INSTEAD = "leave the runtime out: ONNX Runtime computes it."
HINT = "f32"  # of what it multiplies: bfloat16 would be other features than those that the export was compared with


class ExportedOpenVINONetwork(RunningNetwork):
    """A network of an exported model in OpenVINO. Each calling thread computes alone."""

    runtime = NAME

    def __init__(self, graph: bytes, stream: str, threads: int):
        """Raises NetworkRuntimeError where OpenVINO cannot run the graph, or would make other features of it."""
        try:
            model = load_core().read_model(graph, b"")
            ((given,), (made,)) = model.inputs, model.outputs
            shape = tuple(given.get_partial_shape())[1:]
            names = given.any_name, given.get_element_type().get_type_name(), made.any_name
            if names != (IMAGES, "u8", FEATURES) or len(shape) != 4 or any(size.is_dynamic for size in shape):
                raise ValueError("other inputs and outputs than those of a network")
            self._compiled = CompiledModel(model, [size.get_length() for size in shape], HINT, threads)
        except Exception as error:  # a runtime fails in as many ways as there are graphs
            *_, why = str(error).strip().splitlines() or [type(error).__name__]  # above it are places in its source
            raise NetworkRuntimeError(
                f"OpenVINO cannot run the {stream} network of the exported model ({why}).", INSTEAD
            ) from error
        if _is_int8(model) and not multiplies_int8():
            raise NetworkRuntimeError(
                f"OpenVINO would clip sums of the {stream} network, which is int8, on this processor.", INSTEAD
            )

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork; N is that of a chunk's images, and of its features there is one row."""
        return self.of_crops(images[None])

    def prepare(self, batches: Iterable[int]) -> None:
        """Compile for these numbers of images, which are those of whole chunks."""
        self._compiled.prepare(max(1, n // self._compiled.shape[0]) for n in batches)

    def of_crops(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork."""
        return self._compiled(images)


def _is_int8(model: Any) -> bool:
    return any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())
