"""Makes the step of a model one ONNX graph, with torch's exporter.

A step that sums up its long memory now and then has two forms. Both are branches of one graph, which share the weights:
`plan.changes` tells which of them runs.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lstr.errors import ConfigError
from lstr.exported import AFTER, BEFORE, FEATURES, MOST_STREAMS, PLAN, SCORES, Kept, StepDescription
from lstr.models.kind import Model
from lstr.models.stream import Tensors, as_tensors
from lstr.windows.plans import CHANGES, Plan, of_two_shapes, to_dict

CPU = torch.device("cpu")
OPSET = 18
# Bytes from which on a constant of the graph is a weight, which both branches share
LARGE = 256


class PureStep(nn.Module):
    """A step whose inputs and outputs are tensors alone."""

    def __init__(self, model: Model, plan: Plan, tensors: Tensors) -> None:
        super().__init__()
        self.model, self.constants = model, model.constants(packed=False)
        self.plan, self.tensors = list(plan), list(tensors)

    def forward(self, features: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Features, a plan and what is kept: scores, and what is kept afterwards."""
        plan = dict(zip(self.plan, rest[: len(self.plan)], strict=True))
        tensors = dict(zip(self.tensors, rest[len(self.plan) :], strict=True))
        logits, after = self.model.step(self.constants, tensors, plan, features)
        return logits.softmax(dim=-1), *(after[name] for name in self.tensors)


def describe(model: Model, n_streams: int = 1) -> StepDescription:
    """What the step of a model takes and gives, for so many streams at once. Raises ConfigError where no file can say.

    That is so of a kind that makes its plans by code of its own.
    """
    if not 1 <= n_streams <= MOST_STREAMS:
        raise ConfigError(f"A step of {n_streams} streams cannot be exported.", f"Give 1 to {MOST_STREAMS}.")
    config, kept = model.config, {}
    to_dict(model.planner)  # a form that no file knows is named
    for name, tensor in model.begin(1).items():
        kept[name] = Kept(tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch."))
    return StepDescription(
        n_streams,
        config.rgb_dim,
        config.flow_dim,
        model.n_classes,
        config.n_ahead,
        config.work_length,
        config.long_length if config.n_long else 0,
        kept,
        model.planner,
    )


@torch.no_grad()
def make_graph(model: Model, step: StepDescription) -> bytes:
    """The step of a model in eval mode, on the CPU, as an ONNX file. Raises ConfigError where it cannot be one."""
    branches = {}
    for plan in _forms(model, step):
        branches[CHANGES in plan] = _traced(model, plan, model.begin(step.streams))
    return _joined(branches, step)


def _forms(model: Model, step: StepDescription) -> Iterator[Plan]:
    """A plan of each form that the model's plans have."""
    seen = set()
    for chunk in range(model.config.work_length + model.config.long_stride + 1):  # by then both forms came
        plan = of_two_shapes(model.plan(np.full(step.streams, chunk)))
        if (CHANGES in plan) not in seen:
            seen.add(CHANGES in plan)
            yield plan


def _traced(model: Model, plan: Plan, tensors: Tensors) -> Any:
    """A form of the step as torch exports it."""
    import onnx

    file = io.BytesIO()
    given = (torch.zeros(len(next(iter(tensors.values()))), model.config.input_dim), *as_tensors(plan, CPU).values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a trace takes for constant: shapes, which are
        try:
            torch.onnx.export(
                PureStep(model, plan, tensors).eval(),
                (*given, *tensors.values()),
                file,  # type: ignore[arg-type]  # torch's declaration leaves files out, which it takes
                input_names=[FEATURES, *(f"{PLAN}{n}" for n in plan), *(f"{BEFORE}{n}" for n in tensors)],
                output_names=[SCORES, *(f"{AFTER}{n}" for n in tensors)],
                opset_version=OPSET,
                dynamo=False,  # the newer exporter needs another package
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise ConfigError(
                f"The step of kind {model.config.kind} has an operation that ONNX has not ({_first(error)}).",
                "Run it with torch, or write that operation otherwise.",
            ) from error
    return onnx.load_model_from_string(file.getvalue())


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _joined(branches: Mapping[bool, Any], step: StepDescription) -> bytes:
    """One graph of the forms of a step, with declared inputs and outputs, and nothing in it of where it was made."""
    import onnx
    from onnx import TensorProto, helper

    weights = _Weights()
    graphs = {changes: weights.moved_out(made.graph, changes) for changes, made in branches.items()}
    inputs, outputs = ([*map(_declared, tensors.items())] for tensors in (step.inputs(), step.outputs()))
    if len(graphs) == 1:
        (nodes,) = (list(graph.node) for graph in graphs.values())
    else:
        for changes, graph in graphs.items():
            _rename_outputs(graph, f"{_mark(changes)}{{}}")
        names = [one.name for one in outputs]
        nodes = [
            helper.make_node("Cast", [f"{PLAN}{CHANGES}"], ["changes.number"], to=TensorProto.INT32),
            helper.make_node("ReduceMax", ["changes.number"], ["changes.most"], keepdims=0),
            helper.make_node("Cast", ["changes.most"], ["changes.any"], to=TensorProto.BOOL),
            helper.make_node("If", ["changes.any"], names, then_branch=graphs[True], else_branch=graphs[False]),
        ]
    graph = helper.make_graph(nodes, "step", inputs, outputs, weights.tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="lstr")
    onnx.checker.check_model(made)
    return made.SerializeToString(deterministic=True)


def _declared(tensor: tuple[str, tuple[tuple[int, ...], str]]) -> Any:
    from onnx import helper

    name, (shape, dtype) = tensor
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def _mark(changes: bool) -> str:
    return "changing/" if changes else "still/"


class _Weights:
    """The constants of several graphs, each once."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self._names: dict[tuple[Any, ...], str] = {}

    def moved_out(self, graph: Any, changes: bool) -> Any:
        """A graph without weights and inputs of its own, all else in it named apart from other graphs."""
        from onnx import helper

        shared = {tensor.name: self._kept(tensor) for tensor in graph.initializer}
        nodes = []
        for node in graph.node:
            node.ClearField("doc_string")  # it may say where the code is
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                if len(node.attribute[0].t.raw_data) >= LARGE:
                    shared[node.output[0]] = self._kept(node.attribute[0].t)
                    continue
            nodes.append(node)
        outputs = {one.name for one in graph.output}
        outside = {one.name for one in graph.input}

        def named(name: str) -> str:
            if not name or name in outside or name in outputs:
                return name
            return shared.get(name, f"{_mark(changes)}{name}")

        for node in nodes:
            names = [*map(named, node.input)], [*map(named, node.output)]
            node.name = ""
            del node.input[:], node.output[:]
            node.input.extend(names[0])
            node.output.extend(names[1])
        return helper.make_graph(nodes, _mark(changes).rstrip("/"), [], list(graph.output))

    def _kept(self, tensor: Any) -> str:
        """The name of a constant, which is kept unless the same is already."""
        from onnx import numpy_helper

        key = tensor.data_type, tuple(tensor.dims), numpy_helper.to_array(tensor).tobytes()
        if key not in self._names:
            self._names[key] = f"weight.{len(self._names)}"
            tensor.name = self._names[key]
            tensor.ClearField("doc_string")
            self.tensors.append(tensor)
        return self._names[key]


def _rename_outputs(graph: Any, form: str) -> None:
    """Give the outputs of a branch names of their own, which those of the whole graph are not."""
    names = {one.name: form.format(one.name) for one in graph.output}
    for node in graph.node:
        for at, name in enumerate(node.output):
            node.output[at] = names.get(name, name)
        for at, name in enumerate(node.input):
            node.input[at] = names.get(name, name)
    for one in graph.output:
        one.name = names[one.name]
