"""ONNX files from strangers: known operations and data, and nothing else, whatever bytes there are."""

import random

import numpy as np
import pytest

from lstr.errors import WeightsError
from lstr.extractors.networks.graph_file import OPERATIONS, check_graph

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper


def made(nodes=None, weights=None, opsets=(("", 18),)):
    """A graph that adds a weight, or one of other nodes."""
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    weights = [numpy_helper.from_array(np.ones(2, np.float32), "w")] if weights is None else weights
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])] if nodes is None else nodes
    graph = helper.make_graph(nodes, "g", [value], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets])


def refused(model, words):
    with pytest.raises(WeightsError, match=words) as caught:
        check_graph(model if isinstance(model, bytes) else model.SerializeToString(), "rgb.onnx in a.lstr")
    assert "rgb.onnx in a.lstr" in str(caught.value) and caught.value.hint and "\n" not in str(caught.value)


def test_a_graph_of_known_operations_passes():
    check_graph(made().SerializeToString(), "rgb.onnx")
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "inner", [], [made().graph.output[0]])
    check_graph(
        made([helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)]).SerializeToString(), ""
    )
    assert not OPERATIONS & {"Loop", "Scan", "SequenceMap", "RandomNormal", "StringConcat", "ImageDecoder", "Optional"}


def test_other_operations_are_refused():
    for name in ("Loop", "Scan", "RandomNormal", "ImageDecoder", "StringNormalizer", "PyOp"):
        refused(made([helper.make_node(name, ["x"], ["y"])]), f"the operation '{name}'")
    refused(
        made([helper.make_node("Add", ["x", "w"], ["y"], domain="com.microsoft")]), "operations of b'com.microsoft'"
    )
    refused(made(opsets=(("", 18), ("ai.onnx.ml", 3))), "operations of b'ai.onnx.ml'")
    inner = helper.make_graph([helper.make_node("Loop", ["x"], ["z"])], "inner", [], [])
    refused(made([helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)]), "'Loop'")


def test_graphs_in_graphs_end():
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "inner", [], [])
    for _ in range(12):
        node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=made().graph)
        inner = helper.make_graph([node], "more", [], [])
    refused(made(list(inner.node)), "too deep")


def test_data_in_another_file_is_refused():
    outside = numpy_helper.from_array(np.ones(2, np.float32), "w")
    outside.ClearField("raw_data")
    outside.data_location = onnx.TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="/etc/passwd")
    refused(made(weights=[outside]), "data in another file")
    held = helper.make_node("Constant", [], ["w"], value=outside)
    refused(made([held, helper.make_node("Add", ["x", "w"], ["y"])], []), "data in another file")


def test_a_tensor_has_the_bytes_that_it_says():
    def tensor(**changes):
        one = numpy_helper.from_array(np.ones(2, np.float32), "w")
        for name, value in changes.items():
            if name == "dims":
                del one.dims[:]
                one.dims.extend(value)
            else:
                setattr(one, name, value)
        return one

    for changes in (
        {"dims": [3]},
        {"dims": [2**62]},
        {"dims": [2**40, 2**40, 0]},
        {"dims": [-2]},
        {"raw_data": b"\0" * 7},
        {"raw_data": b""},
        {"data_type": onnx.TensorProto.DOUBLE},
    ):
        refused(made(weights=[tensor(**changes)]), "size of a tensor")
    refused(made(weights=[tensor(data_type=onnx.TensorProto.COMPLEX64)]), "unsupported type")
    text = helper.make_tensor("w", onnx.TensorProto.STRING, [1], [b"text"])
    refused(made(weights=[text]), "a field 6 of a tensor")


def test_functions_training_and_notes_are_refused():
    model = made()
    model.functions.add(name="f", domain="a")
    refused(model, "it has functions")
    model = made()
    model.training_info.add()
    refused(model, "a field 20 of a model")
    model = made()
    model.metadata_props.add(key="a", value="b")
    refused(model, "a field 14 of a model")
    model = made()
    model.graph.sparse_initializer.add()
    refused(model, "a field 15 of a graph")


def test_whatever_bytes_there_are_it_ends_in_one_sentence():
    whole, rng = made().SerializeToString(), random.Random(0)
    refused(b"", "holds no graph")
    for end in range(len(whole)):
        try:
            check_graph(whole[:end], "x")
        except WeightsError:
            pass
    for _ in range(3000):
        harmed = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            harmed[rng.randrange(len(harmed))] = rng.randrange(256)
        try:
            check_graph(bytes(harmed), "x")
        except WeightsError as error:
            assert "\n" not in str(error)
