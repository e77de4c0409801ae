"""Names of MoViNet's published tensors: TensorFlow's variables, and the state_dict of Atze00/MoViNet-pytorch."""

import re
from collections.abc import Mapping

from torch import Tensor

PARTS = {
    "stem": "stem",
    "expansion": "expand",
    "se_reduce": "gate.reduce",
    "se_expand": "gate.expand",
    "projection": "project",
    "skip_project": "skip.project",
    "project": "head",
}
"""The layer in a variable's name that says what it belongs to, and ours; `feature` is space or time."""
TENSORS = {
    "kernel": "conv.weight",
    "depthwise_kernel": "conv.weight",
    "bias": "conv.bias",
    "gamma": "norm.weight",
    "beta": "norm.bias",
    "moving_mean": "norm.running_mean",
    "moving_variance": "norm.running_var",
}
TORCH_PARTS = {
    "expand.conv_1": "expand",
    "deep.conv_1": "space",
    "deep.conv_2": "time",
    "se.fc1.conv_1": "gate.reduce",
    "se.fc2.conv_1": "gate.expand",
    "project.conv_1": "project",
    "res.0.conv_1": "skip.project",
    "res.1.conv_1": "skip.project",
}


def our_tensors(held: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file by our names, kernels as torch has them; one that is not known keeps its name.

    Classifiers are left out. A file of TensorFlow has the variables' names, as `b0/l0/bneck/expansion/bn/gamma:0` or
    `block0_layer0/…`, with kernels over two dimensions or three.
    """
    found = {}
    for name, tensor in held.items():
        if name.startswith(("classifier_head", "classifier.")):
            continue
        if ours := _of_variable(name):
            found[ours] = _kernel(tensor, "depthwise" in name) if ours.endswith(".weight") else tensor
        else:
            found[_of_torch(name)] = tensor
    return found


def _of_variable(name: str) -> str | None:
    """Our name of a TensorFlow variable; None for what is none of MoViNet's."""
    *layers, last = name.partition(":")[0].split("/")
    if not layers:
        return None
    block = re.search(r"(?:^|/)b(?:lock)?(\d+)(?:/l|_layer)(\d+)/", name)
    place = f"stages.{block[1]}.{block[2]}." if block else ""
    if last == "scale" and block:
        return f"{place}scale"
    if last not in TENSORS:
        return None
    if "feature" in layers:
        part = "time" if any("temporal" in layer for layer in layers) else "space"
    else:
        part = next((PARTS[layer] for layer in reversed(layers) if layer in PARTS), "")
    tensor = TENSORS[last].removeprefix("conv.") if part.startswith("gate.") else TENSORS[last]
    return f"{place}{part}.{tensor}" if part and (block or part in ("stem", "head")) else None


def _kernel(tensor: Tensor, depthwise: bool) -> Tensor:
    """A kernel (h, w, in, out), one (h, w, channels, 1) of each channel, or either over frames too, as torch has it."""
    if tensor.dim() == 5:  # (k, 1, 1, in, out) is over time, (1, h, w, in, out) over space
        tensor = tensor[0] if len(tensor) == 1 else tensor[:, :, 0]
        depthwise = False
    if tensor.dim() != 4:
        return tensor
    return tensor.permute((2, 3, 0, 1) if depthwise else (3, 2, 0, 1)).contiguous()


def _of_torch(name: str) -> str:
    """Our name of a tensor of Atze00/MoViNet-pytorch."""
    name = name.replace(".conv2d.", ".conv.")
    for theirs, ours in (("conv1.conv_1.", "stem."), ("conv7.conv_1.", "head.")):
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    block = re.match(r"blocks\.b(\d+)_l(\d+)\.", name)
    if not block:
        return name
    place, rest = f"stages.{block[1]}.{block[2]}.", name[block.end() :]
    if rest == "alpha":
        return f"{place}scale"
    part = next((part for part in TORCH_PARTS if rest.startswith(f"{part}.")), None)
    if part is None:
        return name
    ours, tensor = TORCH_PARTS[part], rest.removeprefix(f"{part}.")
    return f"{place}{ours}.{tensor.removeprefix('conv.') if ours.startswith('gate.') else tensor}"
