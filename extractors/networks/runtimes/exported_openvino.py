"""A network of an exported model in OpenVINO, which reads its graph from memory; it runs without torch."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import NetworkRuntimeError
from lstr.extractors.networks.runtimes.compiled_model import CompiledModel, load_core, multiplies_int8
from lstr.extractors.networks.runtimes.conversion import FEATURES, IMAGES
from lstr.extractors.networks.runtimes.running_network import RunningNetwork

NAME = "openvino"
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
