"""Convert the step of a model into one ONNX graph, with torch's exporter.

The step of a model with a compressed long memory has two forms: with the compression, and without it. Both are branches
of one graph, which share the weights: `plan.changes` chooses.
"""

import io
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lstr.errors import ConfigError
from lstr.exported import AFTER, BEFORE, FEATURES, MAX_STREAMS, PLAN, SCORES, StepDescription, StreamTensor
from lstr.models.kind import Model
from lstr.models.layers import Tensors
from lstr.windows.plans import CHANGES, Plan, check_known, of_two_shapes

OPSET = 18  # the oldest that has every operation of the models; older runtimes read it
# Constants of at least this size are weights, which both branches share; smaller ones are numbers of the code.
WEIGHT_BYTES = 256


class PureStep(nn.Module):
    """A step with tensors as inputs and outputs."""

    def __init__(self, model: Model, plan: Plan, tensors: Tensors) -> None:
        super().__init__()
        self.model, self.constants = model, model.constants(packed=False)
        self.plan, self.tensors = list(plan), list(tensors)

    def forward(self, features: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Return scores and the memory after the chunk, from features, a plan and the memory before."""
        plan = dict(zip(self.plan, rest[: len(self.plan)], strict=True))
        tensors = dict(zip(self.tensors, rest[len(self.plan) :], strict=True))
        logits, after = self.model.step(self.constants, tensors, plan, features)
        return logits.softmax(dim=-1), *(after[name] for name in self.tensors)


def describe(model: Model, n_streams: int = 1) -> StepDescription:
    """Return the description of a model's step for a number of streams at once.

    Raises ConfigError for a number of streams that no graph takes, and for a kind whose plans no file can hold.
    """
    if not 1 <= n_streams <= MAX_STREAMS:
        raise ConfigError(f"A step of {n_streams} streams cannot be exported.", f"use 1 to {MAX_STREAMS}.")
    config, kept = model.config, {}
    check_known(model.planner)
    for name, tensor in model.begin(1).items():
        kept[name] = StreamTensor(tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch."))  # type: ignore[arg-type]
    return StepDescription(
        **{name: getattr(config, name) for name in ("rgb_dim", "flow_dim", "work_length")},
        streams=n_streams,
        classes=model.n_classes,
        ahead=config.n_ahead,
        long_length=config.long_length if config.n_long else 0,
        kept=kept,
        plan=model.planner,  # type: ignore[arg-type]
    )


@torch.no_grad()
def make_graph(model: Model, step: StepDescription) -> bytes:
    """Return the step of a model in eval mode, on the CPU, as an ONNX file.

    Equal models give equal files, which do not show where they were made.
    Raises ConfigError if ONNX lacks an operation.
    """
    import onnx
    from onnx import TensorProto, helper

    plans: dict[bool, Plan] = {}
    for chunk in range(model.config.work_length + model.config.long_stride + 1):  # both forms occur in these chunks
        plan = of_two_shapes(model.planner(np.full(step.streams, chunk)))
        plans.setdefault(CHANGES in plan, plan)
    prefixes = {changes: "" if len(plans) == 1 else "changing/" if changes else "still/" for changes in plans}
    graphs = {prefixes[changes]: _traced(model, plan, model.begin(step.streams)) for changes, plan in plans.items()}
    weights, branches = _with_shared_weights(graphs)
    inputs, outputs = (
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (shape, dtype) in tensors.items()
        ]
        for tensors in (step.inputs(), step.outputs())
    )
    if len(branches) == 1:
        (nodes,) = (list(graph.node) for graph in branches.values())
    else:
        nodes = [
            helper.make_node("Cast", [f"{PLAN}{CHANGES}"], ["changes.number"], to=TensorProto.INT32),
            helper.make_node("ReduceMax", ["changes.number"], ["changes.most"], keepdims=0),
            helper.make_node("Cast", ["changes.most"], ["changes.any"], to=TensorProto.BOOL),
            helper.make_node(
                "If",
                ["changes.any"],
                [tensor.name for tensor in outputs],
                then_branch=branches["changing/"],
                else_branch=branches["still/"],
            ),
        ]
    graph = helper.make_graph(nodes, "step", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="lstr")
    onnx.checker.check_model(made)
    return made.SerializeToString(deterministic=True)


def _traced(model: Model, plan: Plan, tensors: Tensors) -> Any:
    """Return the ONNX graph of a form of the step."""
    import onnx

    file = io.BytesIO()
    features = torch.zeros(len(next(iter(tensors.values()))), model.config.input_dim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The trace warns about shapes that it takes for constant. They are constant.
        try:
            torch.onnx.export(
                PureStep(model, plan, tensors).eval(),
                (features, *map(torch.from_numpy, plan.values()), *tensors.values()),
                file,  # type: ignore[arg-type]  # torch's declaration lacks files, which it accepts
                input_names=[FEATURES, *(f"{PLAN}{n}" for n in plan), *(f"{BEFORE}{n}" for n in tensors)],
                output_names=[SCORES, *(f"{AFTER}{n}" for n in tensors)],
                opset_version=OPSET,
                dynamo=False,  # the newer exporter needs another package
            )
        except torch.onnx.errors.OnnxExporterError as error:
            first = str(error).partition("\n")[0]
            raise ConfigError(
                f"ONNX lacks an operation of the step of kind {model.config.kind} ({first}).",
                "run it with torch, or write that operation otherwise.",
            ) from error
    return onnx.load_model_from_string(file.getvalue()).graph


def _with_shared_weights(graphs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the weights of graphs, each once, and the graphs without inputs, by the prefixes of their names."""
    from onnx import helper, numpy_helper

    weights: list[Any] = []
    known: dict[tuple[Any, ...], str] = {}

    def share(tensor: Any) -> str:
        """Return the name of a weight; add it unless an equal one is there."""
        key = tensor.data_type, tuple(tensor.dims), numpy_helper.to_array(tensor).tobytes()
        if key not in known:
            known[key] = tensor.name = f"weight.{len(known)}"
            tensor.ClearField("doc_string")
            weights.append(tensor)
        return known[key]

    rest = {}
    for prefix, graph in graphs.items():
        shared = {tensor.name: share(tensor) for tensor in graph.initializer}
        shared |= {tensor.name: tensor.name for tensor in graph.input}
        nodes = []
        for node in graph.node:
            if node.op_type == "Constant" and len(node.attribute[0].t.raw_data) >= WEIGHT_BYTES:
                shared[node.output[0]] = share(node.attribute[0].t)
                continue
            inputs = [shared.get(name, f"{prefix}{name}") if name else "" for name in node.input]
            outputs = [shared.get(name, f"{prefix}{name}") if name else "" for name in node.output]
            node.name = ""
            node.ClearField("doc_string")  # which may show paths of the code
            del node.input[:], node.output[:]
            node.input.extend(inputs)
            node.output.extend(outputs)
            nodes.append(node)
        for tensor in graph.output:
            tensor.name = f"{prefix}{tensor.name}"
        rest[prefix] = helper.make_graph(nodes, prefix.rstrip("/") or "step", [], list(graph.output))
    return weights, rest
