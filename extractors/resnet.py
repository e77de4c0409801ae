"""The two TSN networks, built through mmaction2's configs and registry."""

import contextlib
import io
import warnings

from torch import nn

from extractors.errors import ExtractorError

FEATURES = {"resnet50": 2048, "bninception": 1024}  # channels of the pooled features


def _recognizer(backbone: dict, in_channels: int, **preprocessor) -> dict:
    """A TSN recogniser in mmaction2's config language; the head is only there to make the config whole."""
    return {
        "type": "Recognizer2D",
        "backbone": backbone,
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
CONFIGS = {"resnet50": RGB_CONFIG, "bninception": FLOW_CONFIG}


def build_backbone(network: str) -> nn.Module:
    """The backbone of a TSN recogniser: `resnet50` for RGB, `bninception` for flow; maps are not pooled.

    Raises ExtractorError when mmaction2 cannot be imported or its config cannot be built.
    """
    try:
        # mmcv-lite warns about operators that TSN does not use, once a process, on whichever stream is at hand
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            import mmaction.models  # noqa: F401  (registers ResNet, TSNHead, Recognizer2D)
            from mmaction.registry import MODELS
            from mmengine.registry import init_default_scope

            import extractors.bninception  # noqa: F401  (registers BNInception)

            init_default_scope("mmaction")
            backbone = MODELS.build(CONFIGS[network]).backbone
    except ImportError as error:
        raise ExtractorError(
            f"mmaction2 cannot be imported ({error}).", 'pip install "mmaction2>=1.1,<1.2" "mmcv-lite>=2.0.1,<2.1"'
        ) from error
    backbone.eval()  # mmaction2's ResNet returns None here, so it cannot be chained
    return backbone
