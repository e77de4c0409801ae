"""GateHUB's published files, and what else is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lstr.models.gatehub import GateHUB, GateHUBConfig
from lstr.models.kind import Kind, Preset
from lstr.models.publication import KINETICS, Publication, Result, detection
from lstr.models.published import Published, Tables
from lstr.models.transformer import packed_blocks
from lstr.settings import override

# First part of a published tensor's name, of today's or of the first release, to ours.
NAMES = {
    "linear_encoding.": "feature_head_work.input_linear.0.",
    "history_position_encoding.pe.": "history_positions.",
    "present_position_encoding.pe.": "present_positions.",
    "short_position_encoding.pe.": "present_positions.",
    "gate_layer.": "gate.",
    "history_encoder.ghu.": "gated.",
    "history_encoder.decoder.": "gated.",
    "history_encoder.layers.": "encoder.",
    "history_encoder.norm.": "encoder_norm.",
    "present_decoder.layers.": "decoder.",
    "present_decoder.norm.": "decoder_norm.",
    "mlp_head.": "classifier.",
}
# The published names of the latent queries.
LATENTS = ("latent_query", "memory_decoder_cls_token_history")

PUBLISHED = GateHUBConfig(dropout=0.5, work_length=8, long_length=1016, long_stride=1)
TRAINING = {
    "epochs": 10,
    "batch_size": 50,
    "lr": 1.2e-4,
    "warmup": 0.25,
    "schedule": "onecycle",
    "windows": "every",
    "stride": 1,
    "clip": 1.0,
}


class PublishedGateHUB(Published):
    """The published code of GateHUB, today's or of the first release."""

    config = PUBLISHED
    marks = ("gate_layer.weight", "latents")
    names = NAMES
    sizes = {
        "d_feedforward": ("gated.linear1.weight", 0),
        "n0": ("latents", 0),
        "work_length": ("present_positions.weight", 0),
    }
    layers = {"l_enc": "encoder.", "l_dec": "decoder."}
    needed = ("d_feedforward", "n0", "work_length", "n_long")
    unknown = ("n_heads",)

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        """Like `Published.renamed`."""
        found = super().renamed(tensors)
        for name in LATENTS:
            if name in found:
                found["latents"] = found.pop(name)[0]
        return packed_blocks(found)

    def shapes(self, tensors: Tables) -> dict[str, int]:
        """Like `Published.shapes`, with `n_long`."""
        found = super().shapes(tensors)
        if "history_positions.weight" in tensors:
            found["n_long"] = len(tensors["history_positions.weight"]) - found.get("work_length", 0)
        return found

    def settings(self, found: Mapping[str, int], tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Like `Published.settings`."""
        known = super().settings(found, tensors, changes)
        stride = override(
            PUBLISHED, {name: value for name, value in changes.items() if name == "long_stride"}
        ).long_stride
        return {"long_length": known.pop("n_long") * stride, **known}


KIND = Kind(
    GateHUB,
    GateHUBConfig,
    Publication(
        "GateHUB",
        "GateHUB: Gated History Unit with Background Suppression for Online Action Detection, Chen et al., CVPR 2022",
        "https://arxiv.org/abs/2206.04668",
        "g1910/GateHUB @ f9a2f27",
        "MIT",
        "within 1e-5 in probability, of whole videos; a stream of the published size adds in another order, and where "
        "scores are as large as random weights make them it is so at 98 % of chunks",
        ("gatehub_small",),
        (
            *detection(70.7, 89.6, KINETICS, "GateHUB's abstract and README", ("gatehub-thumos14",)),
            Result("THUMOS'14 mAP", 72.5, "RGB by TimeSformer, flow by TSN", "GateHUB's README"),
            Result("HDD mAP", 32.1, "TSN", "GateHUB's README"),
        ),
        (
            "all ten epochs are trained, where the published code ends after nine of its schedule of ten",
            "the future-augmented history, which needs a second set of features, is not here",
        ),
    ),
    {"gatehub-thumos14": Preset(PUBLISHED, TRAINING)},
    PublishedGateHUB(),
)
