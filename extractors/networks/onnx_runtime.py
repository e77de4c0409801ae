"""Networks on ONNX Runtime: exported once from torch and kept on disk, or the graph of an exported model.

It multiplies no bfloat16 on a processor, so a bf16 network is computed in float32 here. In a graph of an exported model
batch norm is in the convolutions, and of an int8 network inputs and weights are rounded as torch rounds them.
"""

import io
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import NetworkRuntimeError, first_line
from lstr.extractors.networks.runtime import (
    FEATURES,
    IMAGES,
    NetworkJob,
    RunningNetwork,
    Store,
)
from lstr.extractors.recipe import INT8, LEAST, STEPS

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "onnxruntime"
OPSET = 17
EXPORT_OPSET = 18  # of the graphs of `lstr export`


class OnnxNetwork(RunningNetwork):
    """A network of ONNX Runtime. Each calling thread computes alone."""

    runtime = NAME

    def __init__(self, content: bytes, averages: bool = False):
        """Load a graph, as for `RunningNetwork.averages`."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        # of an int8 network it would round the weights, which are round already, once more, and by fewer steps
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.averages = averages

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork."""
        return self.session.run([FEATURES], {IMAGES: np.ascontiguousarray(images)})[0]


def open_network(job: NetworkJob, store: Store | None) -> OnnxNetwork:
    """Return a network of torch, exported where it was not kept. Raises NetworkRuntimeError for other features."""
    import onnxruntime

    key = job.key(NAME, onnxruntime.__version__)
    if (kept := store.read(key) if store is not None else None) is not None:
        return OnnxNetwork(kept)
    from lstr.extractors.networks.torch_runtime import check_features, pooled_network

    exported = _export(pooled_network(job, job.exact_precision), job.example(), "n", OPSET)
    network = OnnxNetwork(exported)
    check_features(job, NAME, network)
    if store is not None:
        store.write(key, [exported])
    return network


def open_graph(graph: bytes, stream: str, threads: int = 1) -> OnnxNetwork:
    """Return the network of a stream of an exported model. Raises NetworkRuntimeError where its graph cannot run."""
    try:
        network = OnnxNetwork(graph, averages=True)
        ((given,), (made,)) = network.session.get_inputs(), network.session.get_outputs()
        if (given.name, given.type, made.name) != (IMAGES, "tensor(uint8)", FEATURES):
            raise ValueError("other inputs and outputs than those of a network")
    except Exception as error:  # a runtime fails in as many ways as there are graphs
        raise NetworkRuntimeError(
            f"ONNX Runtime cannot run the {stream} network of the exported model ({first_line(error)}).",
            "update onnxruntime, or export the model again with `lstr export`.",
        ) from error
    return network


def make_network_graph(job: NetworkJob) -> bytes:
    """Return the network of a job, averaged over a chunk's images, as an ONNX file without facts about this machine.

    Raises NetworkRuntimeError where it has no such form.
    """
    import onnx
    from torch import nn

    from lstr.extractors.networks.torch_runtime import pooled_network

    network, n_images = pooled_network(job, job.exact_precision), job.part.crops

    class Averaged(nn.Module):
        """The network on the images (N, images, H, W, C) of each chunk: (N, D)."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: "Tensor") -> "Tensor":
            features = self.network(images.reshape(-1, *images.shape[2:]))
            return features.reshape(-1, n_images, features.shape[-1]).mean(1)

    images = job.example().repeat(n_images, 1, 1, 1)[None]
    try:
        written = _export(Averaged().eval(), images, "chunks", EXPORT_OPSET)
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


def _export(network: "nn.Module", images: "Tensor", axis: str, opset: int) -> bytes:
    """Return a network as an ONNX file from IMAGES to FEATURES, for any number along the first axis of the example."""
    import torch

    file, fast = io.BytesIO(), torch.backends.mha.get_fastpath_enabled()
    # attention must be made of products, because ONNX lacks torch's one fast operator for it
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # a trace takes sizes for constant, which they are
            warnings.simplefilter("ignore", torch.jit.TracerWarning)
            torch.onnx.export(
                network,
                (images,),
                file,  # type: ignore[arg-type]  # torch's declaration leaves files out, which it takes
                input_names=[IMAGES],
                output_names=[FEATURES],
                dynamic_axes={IMAGES: {0: axis}, FEATURES: {0: axis}},
                opset_version=opset,
                dynamo=False,  # the newer exporter needs another package, and fixes the number along that axis
            )
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return file.getvalue()


def _store_whole_weights(graph: Any) -> None:
    """Store the weights of convolutions of rounded inputs as whole numbers, a quarter of the bytes."""
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
