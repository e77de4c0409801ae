"""The networks of TSN, built through mmaction2's configs and registry."""

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lstr.extractors.errors import ExtractorError, RecipeError

if TYPE_CHECKING:
    from mmengine.registry import Registry
    from torch import nn


def _recognizer(backbone: Mapping, in_channels: int, **preprocessor: Sequence[float]) -> dict:
    """A TSN recogniser in mmaction2's config language; the head only makes the config whole."""
    return {
        "type": "Recognizer2D",
        "backbone": dict(backbone),
        "cls_head": {"type": "TSNHead", "num_classes": 400, "in_channels": in_channels, "spatial_type": "avg"},
        "data_preprocessor": {"type": "ActionDataPreprocessor", "format_shape": "NCHW", **preprocessor},
    }


RGB_CONFIG = _recognizer(
    {"type": "ResNet", "depth": 50, "pretrained": None, "norm_eval": False},
    2048,
    mean=[123.675, 116.28, 103.53],
    std=[58.395, 57.12, 57.375],
)
FLOW_CONFIG = _recognizer({"type": "BNInception", "in_channels": 10}, 1024, mean=[128.0] * 10, std=[1.0] * 10)
CONFIGS = {
    "resnet50": RGB_CONFIG,
    "bninception": FLOW_CONFIG,
    "resnet18": _recognizer({"type": "ResNet", "depth": 18, "pretrained": None, "norm_eval": False}, 512),
    "shufflenetv2": _recognizer({"type": "ShuffleNetV2"}, 1024),
    "mobilenetv3": _recognizer({"type": "MobileNetV3Small"}, 576),
}
"""The published networks, and smaller ones for videos of one's own (benchmarks/frontier.py)."""


def build_backbone(network: str, in_channels: int | None = None) -> "nn.Module":
    """The backbone of a TSN recogniser, by a key of CONFIGS; maps are not pooled.

    `in_channels` is 3 for RGB, 10 for flow; None for the stream the network has in the published features. Raises
    ExtractorError when mmaction2 cannot be imported or its config cannot be built.
    """
    config = copy.deepcopy(CONFIGS[network])
    if in_channels:
        config["backbone"]["in_channels"] = in_channels
    models = with_own()
    with quiet():
        backbone = models.build(config).backbone
    backbone.eval()  # mmaction2's ResNet returns None here, so it cannot be chained
    return backbone


def with_own() -> "Registry":
    """mmaction2's registry of models, with the networks of this package. Raises as `registry`."""
    models = registry()
    import lstr.extractors.networks.backbones.bninception  # noqa: F401  (registers BNInception)
    import lstr.extractors.networks.backbones.mobile  # noqa: F401  (registers ShuffleNetV2 and MobileNetV3Small)

    return models


def registered(kind: str) -> type:
    """The class that is registered by a name. Raises RecipeError where none is; nothing is imported for it."""
    found = with_own().module_dict.get(kind)
    if found is None:
        raise RecipeError(f"mmaction2 has no backbone {kind} here.", 'pip install "mmaction2>=1.1,<1.2"')
    return found


def registry() -> "Registry":
    """mmaction2's registry of models. Raises ExtractorError when mmaction2 cannot be imported."""
    try:
        with quiet():
            import mmaction.models  # noqa: F401  (registers ResNet, TSNHead, Recognizer2D)
            from mmaction.registry import MODELS
            from mmengine.registry import init_default_scope
    except ImportError as error:
        raise ExtractorError(
            f"mmaction2 cannot be imported ({error}).", 'pip install "mmaction2>=1.1,<1.2" "mmcv-lite>=2.0.1,<2.1"'
        ) from error
    init_default_scope("mmaction")
    return MODELS


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without mmcv-lite's warnings about operators that TSN does not use, and mmengine's log of first weights."""
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
