"""Linear layers whose weights are of fewer bits, for steps that take as long as reading the weights does.

One stream multiplies a handful of rows by millions of weights, so a step waits for memory and not for the processor:
weights of half the size make it almost twice as fast, those of a quarter almost three times.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lstr.errors import ConfigError
from lstr.layers.packing import PackedLinear

PRECISIONS = ("float32", "bf16", "int8")
LEVELS = 127
"""The largest number of 8 bits with a sign."""


class Int8Linear(nn.Module):
    """A linear layer for inference whose weights are int8, one scale for each of its outputs.

    What enters is split into two numbers of 8 bits, the second for what rounding leaves of the first: the weights are
    read once for both, so this costs nothing and only the rounding of the weights is lost.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        weight = weight.detach()
        self.scale = (weight.abs().amax(1) / LEVELS).clamp(min=torch.finfo(weight.dtype).tiny)  # (D_out,)
        rounded = (weight / self.scale[:, None]).round().to(torch.int8)
        self.bias = bias.detach()
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zero = torch.zeros(len(weight), dtype=torch.int32)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D_in) to (B, D_out)."""
        step = x.abs().amax(1, keepdim=True).mul_(1 / LEVELS).add_(torch.finfo(x.dtype).tiny)  # (B, 1)
        exact = x / step
        first = exact.round()
        second = exact.sub_(first).mul_(2 * LEVELS).round_()
        both = torch.cat([first, second]).to(torch.int8)  # (2B, D_in)
        out = torch.ops.onednn.qlinear_pointwise(
            both, 1.0, 0, self.packed, self.scale, self.zero, None, 1.0, 0, torch.float32, "none", [], ""
        )  # (2B, D_out)
        return torch.addcmul(self.bias, out[: len(x)].add_(out[len(x) :], alpha=0.5 / LEVELS), step)


def linear_of(weight: Tensor, bias: Tensor, precision: str) -> nn.Module:
    """A linear layer of these weights (D_out, D_in) in bf16 or int8.

    Raises ConfigError for another precision, and for int8 on a GPU or where the processor's library has none.
    """
    if precision == "bf16":
        return PackedLinear(weight, bias, torch.bfloat16)
    if precision != "int8":
        raise ConfigError(f"The precision is {precision!r}.", f"Choose one of: {', '.join(PRECISIONS)}.")
    if weight.device.type != "cpu":
        raise ConfigError("The precision is int8 and the model is on a GPU.", "Use float32 there.")
    try:
        layer = Int8Linear(weight, bias)
        layer(weight.new_zeros(1, weight.shape[1]))  # torch 2.6 has the operators and refuses signed inputs
        return layer
    except (AttributeError, RuntimeError) as error:  # the operators are oneDNN's, made for torch's own compiler
        raise ConfigError("The precision is int8, which this processor or torch does not have.", "Use bf16.") from error
