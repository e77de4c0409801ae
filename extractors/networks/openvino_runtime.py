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
from lstr.extractors.networks.runtime import (
    FEATURES,
    IMAGES,
    NetworkJob,
    RunningNetwork,
    Store,
)
from lstr.extractors.recipe import INT8, LEAST, STEPS

NAME = "openvino"
TELEMETRY = "openvino_telemetry"
INSTEAD = "leave the runtime out: ONNX Runtime computes it."


def load_openvino() -> Any:
    """Return the package `openvino`, without its telemetry, which would report each import to its makers."""
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
    """Return OpenVINO's Core, one for the process and never freed.

    On processors with AMX its CPU plugin gives the thread a stack for signal handlers, and frees that stack with itself
    without taking it back: the next Ctrl-C would be a segmentation fault.
    """
    return load_openvino().Core()


def multiplies_int8() -> bool:
    """Return whether the processor adds products of 8 bits without overflow (VNNI, or an ARM one).

    On another its int8 kernels could clip sums, which makes other features; there int8 networks compute in float32.
    """
    return platform.machine() not in ("x86_64", "AMD64") or "avx512_vnni" in extensions()


def compile_model(model: Any, shape: Sequence[int], hint: str, threads: int) -> Any:
    """Compile a model for items of a shape, with a stream for each calling thread, which computes it itself.

    hint: f32 or bf16, in which it multiplies.
    """
    model.reshape([*shape])
    options = {"INFERENCE_PRECISION_HINT": hint, "NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": threads}
    return load_core().compile_model(model, "CPU", options | {"ENABLE_CPU_PINNING": False})


class OpenVINONetwork(RunningNetwork):
    """A network of OpenVINO. Each calling thread computes in its own request.

    Its items are images (H, W, C), or whole chunks (images, H, W, C) where it averages.
    """

    runtime = NAME

    def __init__(self, model: Any, shape: Sequence[int], hint: str, threads: int):
        """shape: of an item. hint, threads: as for `compile_model`."""
        self.shape = tuple(shape)
        self.averages = len(shape) == 4
        self._model, self._hint, self._threads = model, hint, threads
        self._lock = threading.Lock()
        self._compiled: dict[int, Any] = {}  # by the number of items
        self._requests = threading.local()

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return a row for each item, by the numbers that were prepared; a rest is filled up to the smallest."""
        if not self._compiled:
            self._compile([len(images)])
        rows, start = [], 0
        while start < len(images):
            left = images[start:]
            size = max((n for n in self._compiled if n <= len(left)), default=0) or min(self._compiled)
            filled = left[:size] if len(left) >= size else np.resize(left, (size, *left.shape[1:]))
            requests = vars(self._requests)
            if (name := str(size)) not in requests:
                requests[name] = self._compiled[size].create_infer_request()
            requests[name].infer([np.ascontiguousarray(filled)], share_inputs=True)
            rows.append(requests[name].get_output_tensor(0).data.copy()[: len(left)])
            start += size
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def prepare(self, batches: Iterable[int]) -> None:
        """Compile for these numbers of images; where it averages, those of whole chunks."""
        self._compile(max(1, n // self.shape[0]) for n in batches) if self.averages else self._compile(batches)

    def _compile(self, numbers: Iterable[int]) -> None:
        with self._lock:
            for n in numbers:
                if n not in self._compiled:
                    made = compile_model(self._model, (n, *self.shape), self._hint, self._threads)
                    self._compiled = self._compiled | {n: made}  # a new dict: other threads may be reading this one


def open_network(job: NetworkJob, store: Store | None) -> OpenVINONetwork:
    """Return a network of torch, traced where it was not kept.

    Raises what OpenVINO raises, and NetworkRuntimeError for other features.
    """
    kernels = "whole" if job.precision == INT8 and multiplies_int8() else "rounded"
    key = job.key(NAME, f"{load_openvino().get_version()} {kernels}")
    content = store.read(key) if store is not None else None
    model = None if content is None else _from_bytes(content)
    if model is None:
        from lstr.extractors.networks.torch_runtime import check_features

        parts = _convert(job)
        # as later runs will read it: the last bits of the traced one's features were others
        model = _from_bytes(b"".join(parts))
        exact = compile_model(model, (1, *job.shape), "f32", 1).create_infer_request()
        check_features(job, NAME, lambda images: exact.infer([images])[0])
        if store is not None:
            store.write(key, parts)
    # where the processor gains nothing by bfloat16, float32 is nearer to what it stands for, and faster
    hint = "bf16" if job.precision == "bf16" and fast_precision("cpu") == "bf16" else "f32"
    return OpenVINONetwork(model, job.shape, hint, job.threads)


def _from_bytes(content: bytes) -> Any:
    """Return the model of what `_convert` makes; None where it cannot be read."""
    try:
        length = int.from_bytes(content[:8], "little")
        weights = np.frombuffer(content, np.uint8, offset=8 + length)
        return load_core().read_model(bytes(content[8 : 8 + length]), load_openvino().Tensor(weights))
    except (RuntimeError, ValueError):
        return None


def _convert(job: NetworkJob) -> tuple[bytes, bytes, bytes]:
    """Trace a network from torch; return the length of its graph, the graph, and its weights."""
    import torch
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    from lstr.extractors.networks.torch_runtime import pooled_network

    with torch.no_grad():
        network = pooled_network(job, job.exact_precision)
        unchecked = {"check_trace": False}  # features are checked later
        traced = TorchScriptPythonDecoder(network, example_input=job.example(), trace_kwargs=unchecked)
    frontend = FrontEndManager().load_by_framework("pytorch")
    model = frontend.convert(frontend.load(traced))
    if job.precision == INT8:
        _quantise_weights(model)
    with TemporaryDirectory() as folder:
        graph, weights = Path(folder) / "graph.xml", Path(folder) / "weights.bin"
        load_openvino().serialize(model, graph, weights)
        return graph.stat().st_size.to_bytes(8, "little"), graph.read_bytes(), weights.read_bytes()


def _quantise_weights(model: Any) -> None:
    """Give convolutions of rounded inputs their weights as whole numbers, by which OpenVINO knows int8 kernels."""
    from openvino import opset13
    from openvino.passes import ConstantFolding, Manager

    passes = Manager()
    passes.register_pass(ConstantFolding())  # the traced ranges are small computations
    passes.run_passes(model)
    if not multiplies_int8():
        return
    for node in model.get_ordered_ops():
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


def open_graph(graph: bytes, stream: str, threads: int = 1) -> OpenVINONetwork:
    """Return the network of a stream of an exported model.

    Raises NetworkRuntimeError where OpenVINO cannot run the graph, or would make other features of it.
    """
    try:
        model = load_core().read_model(graph, b"")
        ((given,), (made,)) = model.inputs, model.outputs
        shape = tuple(given.get_partial_shape())[1:]
        names = given.any_name, given.get_element_type().get_type_name(), made.any_name
        if names != (IMAGES, "u8", FEATURES) or len(shape) != 4 or any(size.is_dynamic for size in shape):
            raise ValueError("other inputs and outputs than those of a network")
        # bfloat16 would be other features than those that the export was compared with
        network = OpenVINONetwork(model, [size.get_length() for size in shape], "f32", threads)
    except Exception as error:  # a runtime fails in as many ways as there are graphs
        *_, why = str(error).strip().splitlines() or [type(error).__name__]  # above it are places in its source
        raise NetworkRuntimeError(
            f"OpenVINO cannot run the {stream} network of the exported model ({why}).", INSTEAD
        ) from error
    if any(node.get_type_name() == "FakeQuantize" for node in model.get_ops()) and not multiplies_int8():
        raise NetworkRuntimeError(
            f"OpenVINO would clip sums of the {stream} network, which is int8, on this processor.", INSTEAD
        )
    return network
