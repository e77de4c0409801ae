"""Networks on OpenVINO and ONNX Runtime: converted once from torch and stored on disk, or graphs of exported models.

ONNX Runtime does not support bfloat16 on a CPU, so it computes a bf16 network in float32.
"""

import functools
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import NetworkRuntimeError, first_line
from lstr.extractors.devices import fast_precision
from lstr.extractors.networks.network import quiet
from lstr.extractors.networks.runtime import (
    AUTO,
    FEATURES,
    IMAGES,
    USE_TORCH,
    NetworkJob,
    RunningNetwork,
    choose_runtime,
    read_converted,
    write_converted,
)

OPSET = 17  # of converted networks
TELEMETRY = "openvino_telemetry"


class OnnxNetwork(RunningNetwork):
    """A network on ONNX Runtime. Each call computes in the calling thread."""

    runtime = "onnxruntime"

    def __init__(self, content: bytes, job: NetworkJob | None = None, threads: int = 1):
        """Load the output of `convert`, or without a job an exported model's graph. Raises ValueError for others."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # several calling threads compute batches in parallel, so a layer needs no additional threads
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.averages = job is None
        ((given,), (made,)) = self.session.get_inputs(), self.session.get_outputs()
        if (given.name, given.type, made.name) != (IMAGES, "tensor(uint8)", FEATURES):
            raise ValueError("its inputs and outputs do not match a feature network")

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork."""
        return self.session.run([FEATURES], {IMAGES: np.ascontiguousarray(images)})[0]

    @staticmethod
    def version() -> str:
        """Return the versions that a stored network depends on."""
        import onnxruntime

        return onnxruntime.__version__

    @staticmethod
    def convert(job: NetworkJob) -> bytes:
        """Return a torch network as an ONNX file."""
        from lstr.extractors.networks.graph_file import export_graph  # imported only when a network is converted
        from lstr.extractors.networks.torch_runtime import PooledNetwork

        return export_graph(PooledNetwork(job, "float32"), job.example(), "n", OPSET)


@functools.cache
def load_openvino() -> tuple[Any, Any]:
    """Return the package `openvino` without its telemetry, and its Core, one per process and never freed.

    The telemetry would report each import to Intel. On CPUs with AMX the Core's CPU plugin installs an alternate stack
    for signal handlers in the thread and frees it together with the Core without uninstalling it: the next Ctrl-C
    would be a segmentation fault.
    """
    hidden = TELEMETRY not in sys.modules
    if hidden:
        sys.modules[TELEMETRY] = None  # type: ignore[assignment]
    try:
        import openvino
    finally:
        if hidden:
            del sys.modules[TELEMETRY]
    return openvino, openvino.Core()


class OpenVINONetwork(RunningNetwork):
    """A network on OpenVINO. Each calling thread has a separate inference request.

    Its items are images (H, W, C), or chunks (images, H, W, C) if it averages.
    """

    runtime = "openvino"

    def __init__(self, content: bytes, job: NetworkJob | None = None, threads: int = 1):
        """Load the output of `convert`, or without a job the graph of an exported model, for `threads` calling threads.

        Raises ValueError for other graphs, and NetworkRuntimeError if OpenVINO would compute other features.
        """
        openvino, core = load_openvino()
        # in bfloat16 the features would differ from the ones that the export compared
        self._hint = "f32"
        self.averages = job is None
        if job is not None:
            length, threads = int.from_bytes(content[:8], "little"), job.threads
            weights = np.frombuffer(content, np.uint8, offset=8 + length)
            self._model = core.read_model(bytes(content[8 : 8 + length]), openvino.Tensor(weights))
            self.shape: tuple[int, ...] = job.shape
            # on CPUs without fast bfloat16, float32 is more exact and faster
            if job.precision == "bf16" and fast_precision("cpu") == "bf16":
                self._hint = "bf16"
        else:
            self._model = core.read_model(content, b"")
            ((given,), (made,)) = self._model.inputs, self._model.outputs
            shape = tuple(given.get_partial_shape())[1:]
            names = given.any_name, given.get_element_type().get_type_name(), made.any_name
            if names != (IMAGES, "u8", FEATURES) or len(shape) != 4 or any(size.is_dynamic for size in shape):
                raise ValueError("its inputs and outputs do not match a feature network")
            self.shape = tuple(size.get_length() for size in shape)
        # one OpenVINO stream per calling thread, which computes in that thread
        self._options = {"NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False}
        self._lock = threading.Lock()
        self._compiled: dict[int, Any] = {}  # by the number of items
        self._requests = threading.local()

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return one row per item, in batches of the prepared sizes; the last batch is padded to the smallest size."""
        if not self._compiled:
            self.prepare([len(images) * (self.shape[0] if self.averages else 1)])
        rows, left = [], images
        while len(left):
            size = max((n for n in self._compiled if n <= len(left)), default=0) or min(self._compiled)
            # the last batch repeats images up to a compiled size, because compiling for each size is slow
            filled = left[:size] if len(left) >= size else np.resize(left, (size, *left.shape[1:]))
            requests = vars(self._requests)
            if (name := str(size)) not in requests:
                requests[name] = self._compiled[size].create_infer_request()
            requests[name].infer([np.ascontiguousarray(filled)], share_inputs=True)
            # the request writes into the same output at its next call, so rows are copied
            rows.append(requests[name].get_output_tensor(0).data.copy()[: len(left)])
            left = left[size:]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def prepare(self, batches: Iterable[int]) -> None:
        """Compile for these numbers of images; if it averages, only for the images of whole chunks."""
        options = self._options | {"INFERENCE_PRECISION_HINT": self._hint}
        with self._lock:
            for n in (max(1, n // self.shape[0]) if self.averages else n for n in batches):
                if n not in self._compiled:
                    self._model.reshape([n, *self.shape])
                    made = load_openvino()[1].compile_model(self._model, "CPU", options)
                    self._compiled = self._compiled | {n: made}  # a new dict: other threads may be reading this one

    @staticmethod
    def version() -> str:
        """Return the versions that a stored network depends on."""
        return load_openvino()[0].get_version()

    @staticmethod
    def convert(job: NetworkJob) -> bytes:
        """Trace a torch network; return the length of its graph, the graph, and its weights."""
        import torch
        from openvino.frontend import FrontEndManager
        from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

        from lstr.extractors.networks.torch_runtime import PooledNetwork

        with torch.no_grad():
            network = PooledNetwork(job, "float32")
            unchecked = {"check_trace": False}  # `check_features` compares the features later
            traced = TorchScriptPythonDecoder(network, example_input=job.example(), trace_kwargs=unchecked)
        frontend = FrontEndManager().load_by_framework("pytorch")
        model = frontend.convert(frontend.load(traced))
        with TemporaryDirectory() as folder:
            graph, path = Path(folder) / "graph.xml", Path(folder) / "weights.bin"
            load_openvino()[0].serialize(model, graph, path)
            return graph.stat().st_size.to_bytes(8, "little") + graph.read_bytes() + path.read_bytes()


CONVERTING: dict[str, type[OnnxNetwork | OpenVINONetwork]] = {
    network.runtime: network for network in (OnnxNetwork, OpenVINONetwork)
}


def open_graph(graph: bytes, stream: str, runtime: str = AUTO, threads: int = 1) -> RunningNetwork:
    """Return the network of an exported model's stream from its checked graph, for `threads` calling threads.

    `auto` is ONNX Runtime, which also runs the detection model. Raises NetworkRuntimeError if the runtime does not run
    graphs, is not installed, or cannot run this graph.
    """
    if runtime not in (AUTO, *CONVERTING):
        raise NetworkRuntimeError(
            f"The networks of an exported model run on {' and '.join(CONVERTING)}, not on {runtime}.",
            "omit the runtime, or use the model file that it was exported from.",
        )
    runtime = choose_runtime("onnxruntime" if runtime == AUTO else runtime, "cpu")
    try:
        return CONVERTING[runtime](graph, threads=threads)
    except NetworkRuntimeError:
        raise
    except Exception as error:  # runtimes raise many types
        # OpenVINO's reason is in the last line, after locations in its source code
        reason = first_line(error) if runtime == "onnxruntime" else (str(error).strip().splitlines() or ["unknown"])[-1]
        raise NetworkRuntimeError(
            f"{runtime} cannot run the {stream} network of the exported model ({reason}).",
            f"update {runtime}, or export the model again with `lstr export`.",
        ) from error


def open_network(job: NetworkJob, runtime: str, store: Path | None) -> RunningNetwork:
    """Return a network on a runtime from `choose_runtime`; `store` is the folder of converted networks.

    Raises NetworkRuntimeError if the runtime cannot be loaded, cannot convert the network, or computes other features.
    """
    if runtime == "torch":
        from lstr.extractors.networks.torch_runtime import TorchNetwork

        return TorchNetwork(job)
    load = CONVERTING[runtime]
    try:
        with quiet():
            key = job.key(runtime, load.version())
            if store is not None and (content := read_converted(store, key)) is not None:
                return load(content, job)
            from lstr.extractors.networks.torch_runtime import check_features

            # load it as later runs do: the features of a network that was just traced may differ in the last bits
            content = load.convert(job)
            # not in bf16, whose rounding is larger than the tolerance
            check_features(job, runtime, load(content, replace(job, precision="float32", threads=1)))
            if store is not None:
                write_converted(store, key, content)
            return load(content, job)
    except NetworkRuntimeError:
        raise
    except Exception as error:  # runtimes raise many types
        message = f"{runtime} cannot run the network {job.part.network} ({first_line(error)})."
        raise NetworkRuntimeError(message, USE_TORCH) from error
