"""int8: a network whose convolutions multiply whole numbers of 8 bits.

The definition is torch's: inputs and weights of each convolution are rounded to 256 steps and multiplied in float32.
A runtime with kernels of int8 computes the same products in whole numbers. Weights have a step per output channel, by
their largest; inputs one per convolution, by the range that was measured on videos.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from lstr.errors import RecipeError
from lstr.extractors.recipe import LEAST, STEPS, NetworkRecipe

OUTSIDE = 10_000  # of so many values one may lie outside a range, to either side
UNEVEN = 8  # times as many outer values are kept of each batch, for batches are not alike


class QuantisedConv(nn.Module):
    """A convolution with its weights rounded, which rounds its inputs."""

    def __init__(self, conv: nn.Conv2d, low: float, high: float):
        super().__init__()
        self.conv = conv
        steps = conv.weight.abs().amax((1, 2, 3), keepdim=True).clamp_min(LEAST) / STEPS
        conv.weight = nn.Parameter((conv.weight / steps).round() * steps, requires_grad=False)
        # what follows a ReLU needs no sign, and has twice the steps
        self.signed = low < 0
        self.step = max(-low / (STEPS + 1), high / STEPS if self.signed else high / (2 * STEPS + 1), LEAST)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C_in, H, W) → (B, C_out, H', W')."""
        lowest, highest = (-STEPS - 1, STEPS) if self.signed else (0, 2 * STEPS + 1)
        return self.conv(torch.fake_quantize_per_tensor_affine(x, self.step, 0, lowest, highest))


def quantise(fused: nn.Module, ranges: Mapping[str, Iterable[float]]) -> nn.Module:
    """The fused network in int8, in place: `ranges` has (low, high) of the input of each convolution, by its name.

    Raises RecipeError where the ranges are of another network.
    """
    found = convolutions(fused)
    if found.keys() != ranges.keys():
        odd = sorted(found.keys() ^ ranges.keys())[0]
        raise RecipeError(
            f"The int8 ranges of the recipe are of another network (the first difference is {odd!r}).",
            "make them again with `lstr quantise`.",
        )
    for name, conv in found.items():
        parent, _, last = name.rpartition(".")
        low, high = ranges[name]
        setattr(fused.get_submodule(parent), last, QuantisedConv(conv, low, high))
    return fused


def convolutions(network: nn.Module) -> dict[str, nn.Conv2d]:
    """The convolutions of a network by name."""
    return {name: module for name, module in network.named_modules() if isinstance(module, nn.Conv2d)}


class Ranges:
    """Measures the inputs of a fused network's convolutions while it runs; `result` has their ranges.

    A range leaves out the outermost of ten thousand values to either side, so that a few odd ones do not make the steps
    of all others coarse. The first convolution's is that of all images, for pixels have no odd values.
    """

    def __init__(self, fused: nn.Module, part: NetworkRecipe):
        self._part = part
        self._outer: dict[str, list[Tensor]] = {}  # of each batch its outermost values, (2, K): the negated low ones
        self._counts: dict[str, int] = {}
        for name, conv in convolutions(fused).items():
            conv.register_forward_pre_hook(lambda module, inputs, name=name: self._note(name, inputs[0]))

    def _note(self, name: str, x: Tensor) -> None:
        values = x.flatten()
        kept = min(len(values), 1 + UNEVEN * len(values) // OUTSIDE)
        self._outer.setdefault(name, []).append(torch.stack([(-values).topk(kept)[0], values.topk(kept)[0]]))
        self._counts[name] = self._counts.get(name, 0) + len(values)

    def result(self) -> dict[str, list[float]]:
        """(low, high) by the name of the convolution."""
        ranges = {}
        for name, outer in self._outer.items():
            # how many lie outside; a batch that has more than its share of these is cut at UNEVEN times that
            values, outside = torch.cat(outer, 1), self._counts[name] // OUTSIDE
            ranges[name] = [-_at(values[0], outside), _at(values[1], outside)]
        pixels = [(edge - m) / s for m, s in zip(self._part.mean, self._part.std, strict=True) for edge in (0, 255)]
        ranges[next(iter(ranges))] = [min(pixels), max(pixels)]  # what was called first
        return {name: [float(f"{value:.6g}") for value in pair] for name, pair in ranges.items()}


def _at(values: Tensor, outside: int) -> float:
    """The value that so many are above."""
    return float(values.topk(min(outside + 1, len(values)))[0][-1])
