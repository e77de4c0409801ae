"""Describe all kinds of models (paper, cost, published results), and build random models for measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from lstr.config import WindowConfig
from lstr.kinds import KINDS, make_model, usable
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.models.kind import Model
from lstr.streaming import StreamState
from lstr.windows.plans import needed


def build(config: WindowConfig, n_classes: int, device: str) -> Model:
    """Build a model with random weights, in evaluation mode."""
    return make_model(config, n_classes).eval().to(device)


def full_age(config: WindowConfig) -> int:
    """Return the number of chunks that fill both memories; a multiple of the stride, so that an update is next."""
    return 2 * (config.long_length + config.work_length * config.long_stride)


def filled(state: StreamState, offset: int = 0) -> StreamState:
    """Return the state with full memories, filled with random numbers instead of running thousands of steps.

    Stream b is at chunk full_age + offset + b, so that at each step one in `long_stride` streams updates its long
    memory. The scores are finite but meaningless.
    """
    for tensor in state.tensors.values():
        if tensor.is_floating_point():  # masks stay unchanged: everything is visible
            tensor.normal_()
    state.chunks[:] = full_age(state.model.config) + offset + np.arange(len(state.chunks))
    return state


def cost_of(config: WindowConfig, n_classes: int) -> dict[str, int]:
    """Return the cost of a model, counted on meta tensors without allocating weights.

    `parameters` is the number of trainable weights; `multiply_adds` is the average number of multiplications in matrix
    products and convolutions per chunk of a stream with full memories.
    """
    age = full_age(config)
    # Otherwise counts depend on the version: torch before 2.15 has no formula for attention on a CPU. The formula is
    # for the scores and the weighted sum, from shapes (batch, heads, tokens, width).
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    formulas = {attention: lambda q, k, v, *_, **__: 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])}
    with torch.device("meta"), torch.no_grad():
        model = make_model(config, n_classes).eval().requires_grad_(False)  # do not count operations for gradients
        constants, tensors = model.constants(), model.begin(1)
        with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
            for chunk in range(age, age + config.long_stride):
                plan = {n: torch.from_numpy(a).to("meta") for n, a in needed(model.planner(np.array([chunk]))).items()}
                _, tensors = model.step(constants, tensors, plan, torch.randn(1, config.input_dim))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "multiply_adds": round(counter.get_total_flops() / 2 / config.long_stride)}


def describe_models(kind: str | None = None) -> Iterator[dict[str, Any]]:
    """Describe each kind, or one: paper, code, licence, exactness, presets, cost of the published size, results.

    Raises ConfigError for an unknown kind.
    """
    for name, described in (usable() if kind is None else {kind: KINDS[kind]}).items():
        about = described.publication
        year = about.paper[-4:]  # the reference ends in it
        yield {
            "kind": name,
            **asdict(about),
            "year": int(year) if year.isdigit() else None,
            "exact": "same weights, same numbers" if about.golden else "built from the description",
            "presets": list(described.presets),
            **cost_of(described.published_size, len(THUMOS_CLASSES)),
        }
