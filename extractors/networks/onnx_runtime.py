"""Networks on ONNX Runtime: exported once from torch and kept on disk, or the graph of an exported model.

It multiplies no bfloat16 on a processor, so a bf16 network is computed in float32 here. In a graph of an exported model
batch norm is in the convolutions, and of an int8 network inputs and weights are rounded as torch rounds them.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import NetworkRuntimeError, first_line
from lstr.extractors.networks.conversion import (
    FEATURES,
    IMAGES,
    NetworkJob,
    Store,
    check_features,
    exact_precision,
    onnx_of,
)
from lstr.extractors.networks.running_network import RunningNetwork
from lstr.extractors.recipe import INT8, LEAST, STEPS

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "onnxruntime"
OPSET = 17
EXPORT_OPSET = 18  # of the graphs of `lstr export`


class OnnxNetwork(RunningNetwork):
    """A network of ONNX Runtime. Each calling thread computes alone."""

    runtime = NAME

    def __init__(self, job: NetworkJob, store: Store | None):
        import onnxruntime

        key = job.key(NAME, onnxruntime.__version__)
        kept = store.read(key) if store is not None else None
        if kept is not None:
            self._session = open_session(kept)
            return
        exported = onnx_of(job.pooled(exact_precision(job)), job.example(), "n", OPSET)
        self._session = open_session(exported)
        check_features(job, NAME, self)
        if store is not None:
            store.write(key, [exported])

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork."""
        return self._session.run([FEATURES], {IMAGES: np.ascontiguousarray(images)})[0]


def open_session(content: bytes) -> Any:
    """A graph in ONNX Runtime, by which each calling thread computes alone."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    # of an int8 network it would round the weights, which are round already, once more, and by fewer steps
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


class ExportedNetwork(RunningNetwork):
    """A network of an exported model in ONNX Runtime. Each calling thread computes alone."""

    runtime = NAME

    def __init__(self, graph: bytes, stream: str):
        """Raises NetworkRuntimeError where ONNX Runtime is not installed, or cannot run the graph."""
        try:
            import onnxruntime  # noqa: F401
        except ImportError as error:
            hint = 'pip install "lstr-video[onnxruntime]"'
            raise NetworkRuntimeError("The package onnxruntime is not installed, which runs it.", hint) from error
        try:
            self._session = open_session(graph)
            ((given,), (made,)) = self._session.get_inputs(), self._session.get_outputs()
            if (given.name, given.type, made.name) != (IMAGES, "tensor(uint8)", FEATURES):
                raise ValueError("other inputs and outputs than those of a network")
        except Exception as error:  # a runtime fails in as many ways as there are graphs
            raise NetworkRuntimeError(
                f"ONNX Runtime cannot run the {stream} network of the exported model ({first_line(error)}).",
                "update onnxruntime, or export the model again with `lstr export`.",
            ) from error

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork; N is that of a chunk's images, and of its features there is one row."""
        return self.of_crops(images[None])

    def of_crops(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork."""
        return self._session.run([FEATURES], {IMAGES: np.ascontiguousarray(images)})[0]


def make_network_graph(job: NetworkJob) -> bytes:
    """The network of a job with the mean over a chunk's images, as an ONNX file that says nothing of this machine.

    Raises NetworkRuntimeError where it cannot be one.
    """
    import onnx

    images = job.example().repeat(job.images // job.part.segments, 1, 1, 1)[None]
    try:
        written = onnx_of(_averaged(job.pooled(exact_precision(job)), job.images), images, "chunks", EXPORT_OPSET)
    except Exception as error:  # torch's exporter fails in as many ways as there are layers
        raise NetworkRuntimeError(
            f"The network {job.part.network} has no ONNX form ({first_line(error)}).", "run it with torch."
        ) from error
    made = onnx.load_model_from_string(written)
    if job.precision == INT8:
        _store_whole_weights(made.graph)
    for node in made.graph.node:
        node.ClearField("doc_string")  # it may say where the code is
        node.name = ""
    return made.SerializeToString(deterministic=True)


def _store_whole_weights(graph: Any) -> None:
    """Let the weights of convolutions of rounded inputs be whole numbers in the file, which are a quarter of it."""
    from onnx import helper, numpy_helper

    rounded = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    held = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type == "Conv" and node.input[0] in rounded and node.input[1] in held:
            name = node.input[1]
            weights = numpy_helper.to_array(held[name])  # (out, in, h, w)
            steps = np.maximum(np.abs(weights).max((1, 2, 3)), LEAST * STEPS) / np.float32(STEPS)
            whole = np.round(weights / steps[:, None, None, None]).astype(np.int8)
            graph.initializer.remove(held.pop(name))
            graph.initializer.append(numpy_helper.from_array(whole, f"{name}.whole"))
            graph.initializer.append(numpy_helper.from_array(steps, f"{name}.steps"))
            nodes.append(helper.make_node("DequantizeLinear", [f"{name}.whole", f"{name}.steps"], [name], axis=0))
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _averaged(network: "nn.Module", n_images: int) -> "nn.Module":
    """A network on so many images (N, images, H, W, C) of each chunk: (N, D)."""
    from torch import nn

    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: "Tensor") -> "Tensor":
            features = self.network(images.reshape(-1, *images.shape[2:]))
            return features.reshape(-1, n_images, features.shape[-1]).mean(1)

    return Averaged().eval()
