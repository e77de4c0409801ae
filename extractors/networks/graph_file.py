"""Export torch networks as ONNX files, and check untrusted ONNX files, without the package onnx.

A graph contains only data and known operations. The check rejects operations that are not in `OPERATIONS`, functions,
training information, tensors in other files or with a wrong size, and every field that the exporters here never write.
In a graph of an exported model, batch norm is fused into the convolutions.
"""

import io
import warnings
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from lstr.errors import WeightsError
from lstr.extractors.networks.runtime import FEATURES, IMAGES

if TYPE_CHECKING:
    from torch import Tensor, nn

# The operations that our exporters write. None of them reads files, the time or random numbers.
OPERATIONS = frozenset(
    "Abs Add And ArgMax AveragePool BatchNormalization Cast Ceil Clip Concat Constant ConstantOfShape Conv "
    "ConvTranspose CumSum Div Einsum Elu Equal Erf Exp Expand Flatten Floor GRU Gather "
    "GatherElements GatherND Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization "
    "HardSigmoid HardSwish Identity If InstanceNormalization IsInf IsNaN LSTM LayerNormalization LeakyRelu Less "
    "LessOrEqual Log LogSoftmax MatMul Max MaxPool Mean Min Mish Mod Mul Neg Not Or PRelu Pad Pow "
    "Range Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu "
    "Reshape Resize Round ScatterElements ScatterND Shape Sigmoid Sign Slice Softmax Softplus Split Sqrt Squeeze "
    "Sub Sum Tanh Tile TopK Transpose Trilu Unsqueeze Where".split()
)
# Bytes per number by ONNX type: float32, uint8, int8, int32, int64, bool, float16, float64.
SIZES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
DEEPEST = 3  # maximum depth of nested graphs
FOREIGN = "use only model files that `lstr export` wrote."

# Content of each field of a message, by field number: text or numbers ("data"), or another kind of message.
MESSAGES: Mapping[str, Mapping[int, str]] = {
    "model": {1: "data", 2: "data", 3: "data", 7: "graph", 8: "opset"},
    "opset": {1: "domain", 2: "data"},
    "graph": {1: "node", 2: "data", 5: "tensor", 11: "value", 12: "value", 13: "value"},
    "node": {1: "data", 2: "data", 3: "data", 4: "operation", 5: "attribute", 7: "domain"},
    "attribute": {**dict.fromkeys((1, 2, 3, 4, 7, 8, 20), "data"), 5: "tensor", 6: "graph"},
    "tensor": {1: "data", 2: "data", 8: "data", 9: "data"},
    "value": {1: "data", 2: "data"},
}
# Names of forbidden fields for error messages.
NAMED = {("tensor", 13): "data in another file", ("tensor", 14): "data in another file", ("model", 25): "functions"}


class _Refused(Exception):
    """The reason why a graph is rejected."""


def check_graph(content: bytes, name: str) -> None:
    """Raise WeightsError if a graph has content that our exporters never write; `name` is used in the message."""
    try:
        _check_message(memoryview(content), "model", 0)
    except _Refused as error:
        raise WeightsError(f"{name} is not a graph of an exported model: {error}.", FOREIGN) from error


def _check_message(content: memoryview, kind: str, depth: int) -> None:
    """Raise _Refused if a message, or one inside it, has content that our exporters never write."""
    if depth > DEEPEST:
        raise _Refused("its graphs are nested too deeply")
    n_graphs = 0
    held: dict[int, list[Any]] = {}
    for number, value in _fields(content):
        what = MESSAGES[kind].get(number)
        if what is None:
            raise _Refused(f"it has {NAMED.get((kind, number), f'an unknown field {number} in a {kind}')}")
        n_graphs += what == "graph"
        if what in MESSAGES:
            if not isinstance(value, memoryview):
                raise _Refused("it is damaged")
            _check_message(value, what, depth + (what == "graph"))
        elif what == "domain" and bytes(value) not in (b"", b"ai.onnx"):
            raise _Refused(f"it has operations of {bytes(value)[:40]!r}")
        elif what == "operation" and (operation := bytes(value)[:40].decode(errors="replace")) not in OPERATIONS:
            raise _Refused(f"it has the operation {operation!r}, which exported models do not use")
        else:
            held.setdefault(number, []).append(value)
    if kind == "tensor":  # its size must agree with shape and type
        shape: list[int] = []
        for value in held.get(1, []):  # packed or single values
            at = 0
            while isinstance(value, memoryview) and at < len(value):
                size, at = _number(value, at)
                shape.append(size)
            shape += [value] if isinstance(value, int) else []
        types, data = held.get(2, []), held.get(9, [])
        if len(types) != 1 or types[0] not in SIZES:
            raise _Refused("it has a tensor of an unsupported type")
        size = sum(len(part) if isinstance(part, memoryview) else -1 for part in data)
        # check single sides first, because their product may be arbitrarily long
        is_larger = any(side > len(data[0]) if data else side for side in shape)
        if len(data) > 1 or is_larger or size != prod(shape) * SIZES[types[0]]:
            raise _Refused("the size of a tensor differs from its declared size")
    if kind == "model" and n_graphs != 1:
        raise _Refused("it contains no graph")


def _fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the fields of a protocol buffers message: field number, and an integer or bytes."""
    at = 0
    while at < len(content):
        key, at = _number(content, at)
        number, form = key >> 3, key & 7
        if form == 0:
            value, at = _number(content, at)
            yield number, value
            continue
        if form == 2:
            length, at = _number(content, at)
        elif form in (1, 5):
            length = 8 if form == 1 else 4
        else:
            raise _Refused("it is damaged")
        if length > len(content) - at:
            raise _Refused("it is cut short")
        yield number, content[at : at + length]
        at += length


def _number(content: memoryview, at: int) -> tuple[int, int]:
    """Return an integer of up to 64 bits, and the position after it."""
    value = 0
    for place in range(10):
        if at >= len(content):
            raise _Refused("it is cut short")
        byte = content[at]
        value |= (byte & 127) << (7 * place)
        at += 1
        if byte < 128:
            return value, at
    raise _Refused("it is damaged")


def export_graph(network: "nn.Module", images: "Tensor", axis: str, opset: int) -> bytes:
    """Return a network as an ONNX file from IMAGES to FEATURES, with any size of the first axis of the example."""
    import torch

    file, fast = io.BytesIO(), torch.backends.mha.get_fastpath_enabled()
    # attention must be traced as matrix products, because ONNX has no operator for torch's fused attention
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # traces treat sizes as constants, which is correct here
        with torch.no_grad(), warnings.catch_warnings(action="ignore", category=torch.jit.TracerWarning):
            torch.onnx.export(
                network,
                (images,),
                file,  # type: ignore[arg-type]  # torch accepts files, but its annotation does not include them
                input_names=[IMAGES],
                output_names=[FEATURES],
                dynamic_axes={IMAGES: {0: axis}, FEATURES: {0: axis}},
                opset_version=opset,
                dynamo=False,  # the newer exporter needs another package, and fixes the number along that axis
            )
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return file.getvalue()
