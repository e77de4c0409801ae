"""What a model costs: how many numbers it has, and how many multiplications a chunk takes in a stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from lstr.config import WindowConfig
from lstr.kinds import make_model


@dataclass(frozen=True)
class Cost:
    """What a model of one size costs."""

    parameters: int
    """Numbers that training changes."""
    multiply_adds: int
    """Multiplications in matrix products and convolutions, of one chunk of a stream with a full memory; a mean."""


def attention_flops(queries: torch.Size, keys: torch.Size, values: torch.Size, *_: object, **__: object) -> int:
    """FLOPs of the scores and the weighted sum, from shapes (batch, heads, tokens, width)."""
    batch, heads, asked, width = queries
    return 2 * batch * heads * asked * keys[2] * (width + values[3])


def product_counter() -> FlopCounterMode:
    """Counts the matrix products of what runs in it, alike with every torch."""
    # torch before 2.15 has no formula for attention on a processor
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(display=False, custom_mapping={fused: attention_flops})


def cost_of(config: WindowConfig, n_classes: int) -> Cost:
    """The cost of a model, counted on tensors without contents: no weights are made."""
    age = 2 * (config.long_length + config.work_length * config.long_stride)  # a multiple of the stride
    with torch.device("meta"), torch.no_grad():
        model = make_model(config, n_classes).eval().requires_grad_(False)  # gradients would be tracked
        constants, tensors = model.constants(), model.begin(1)
        with product_counter() as counter:
            for chunk in range(age, age + config.long_stride):
                model.advance(constants, tensors, np.array([chunk]), torch.randn(1, config.input_dim))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Cost(parameters, round(counter.get_total_flops() / 2 / config.long_stride))
