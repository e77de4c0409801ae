"""Checks of ONNX files from untrusted sources: only known operations and data pass."""

import random

import numpy as np
import pytest

from lstr.errors import WeightsError
from lstr.extractors.networks.graph_file import OPERATIONS, check_graph

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper


def make_graph(nodes=None, weights=None, opsets=(("", 18),)):
    """Return a graph that adds a weight, or a graph of other nodes."""
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    weights = [numpy_helper.from_array(np.ones(2, np.float32), "w")] if weights is None else weights
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])] if nodes is None else nodes
    graph = helper.make_graph(nodes, "g", [value], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets])


def check_refused(model):
    with pytest.raises(WeightsError, match="rgb.onnx in a.lstr") as caught:
        check_graph(model if isinstance(model, bytes) else model.SerializeToString(), "rgb.onnx in a.lstr")
    assert "\n" not in str(caught.value)


def branches(*nodes):
    """Return a node with two branches of these nodes."""
    inner = helper.make_graph(nodes, "inner", [], [make_graph().graph.output[0]])
    return helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)


def test_allowed_operations_pass():
    check_graph(make_graph().SerializeToString(), "rgb.onnx")
    check_graph(make_graph([branches(helper.make_node("Relu", ["x"], ["z"]))]).SerializeToString(), "")
    assert not OPERATIONS & {"Loop", "Scan", "SequenceMap", "RandomNormal", "StringConcat", "ImageDecoder", "Optional"}


def test_other_operations_are_refused():
    for name in ("Loop", "Scan", "RandomNormal", "ImageDecoder", "StringNormalizer", "PyOp"):
        check_refused(make_graph([helper.make_node(name, ["x"], ["y"])]))
    check_refused(make_graph([helper.make_node("Add", ["x", "w"], ["y"], domain="com.microsoft")]))
    check_refused(make_graph(opsets=(("", 18), ("ai.onnx.ml", 3))))
    check_refused(make_graph([branches(helper.make_node("Loop", ["x"], ["z"]))]))
    node = helper.make_node("Relu", ["x"], ["z"])
    for _ in range(12):
        node = branches(node)
    check_refused(make_graph([node]))


def test_data_in_another_file_is_refused():
    outside = numpy_helper.from_array(np.ones(2, np.float32), "w")
    outside.ClearField("raw_data")
    outside.data_location = onnx.TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="/etc/passwd")
    check_refused(make_graph(weights=[outside]))
    constant = helper.make_node("Constant", [], ["w"], value=outside)
    check_refused(make_graph([constant, helper.make_node("Add", ["x", "w"], ["y"])], []))


@pytest.mark.parametrize(
    "changes",
    [
        *({"dims": dims} for dims in ([3], [2**62], [2**40, 2**40, 0], [-2])),
        *({"raw_data": data} for data in (b"\0" * 7, b"")),
        *({"data_type": kind} for kind in (onnx.TensorProto.DOUBLE, onnx.TensorProto.COMPLEX64)),
        {"string_data": [b"text"]},
    ],
)
def test_a_tensor_with_a_wrong_size_is_refused(changes):
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    for name in changes:
        tensor.ClearField(name)
    tensor.MergeFrom(onnx.TensorProto(**changes))
    check_refused(make_graph(weights=[tensor]))


def test_functions_training_and_metadata_are_refused():
    for name, value in {"functions": {"name": "f"}, "training_info": {}, "metadata_props": {"key": "a"}}.items():
        model = make_graph()
        getattr(model, name).add(**value)
        check_refused(model)
    model = make_graph()
    model.graph.sparse_initializer.add()
    check_refused(model)


def test_random_bytes_raise_a_weights_error():
    whole, rng = make_graph().SerializeToString(), random.Random(0)
    contents = [bytearray(whole[:end]) for end in range(len(whole))] + [bytearray(whole) for _ in range(3000)]
    for content in contents:
        for _ in range(rng.randint(1, 4) if len(content) == len(whole) else 0):
            content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            check_graph(bytes(content), "x")
        except WeightsError as error:
            assert "\n" not in str(error)
