"""What is trained of a stream: its network with a TSN head for these classes, its first weights, its optimiser."""

import copy

import torch
from mmaction.models import Recognizer2D, TSNHead
from mmaction.registry import MODELS
from mmengine.model.weight_init import normal_init
from torch import nn

import lstr.extractors.networks.backbones.bninception  # noqa: F401  (registers BNInception)
import lstr.extractors.networks.backbones.mobile  # noqa: F401  (registers ShuffleNetV2 and MobileNetV3Small)
from lstr.extractors.networks.backbones.backbones import CONFIGS, quiet, registry
from lstr.extractors.networks.build import network_recipe
from lstr.extractors.networks.weights import load_crossed, load_weights, randomise
from lstr.extractors.presets import StreamPreset
from lstr.pipelines.finetuning.config import DEPTHWISE, FinetuneConfig
from lstr.pipelines.finetuning.initial_weights import Initial

MOMENTUM = 0.9  # published TSN
LAST_NORMS = {"resnet50": "conv3.bn", "resnet18": "conv2.bn"}
"""The batch norm that ends a residual block, by network."""


@MODELS.register_module()
class Float32TSNHead(TSNHead):
    """TSN's head outside autocast: its accuracy is computed by NumPy, which has no bfloat16."""

    def forward(self, x: torch.Tensor, num_segs: int, **kwargs: object) -> torch.Tensor:
        """(N · segments, D, h, w) → class scores (N, C) float32."""
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float(), num_segs, **kwargs)


def recogniser(stream: str, preset: StreamPreset, n_classes: int, config: FinetuneConfig) -> Recognizer2D:
    """mmaction2's recogniser: the network of a stream as its features are made, and a head for these classes.

    The head's weights follow from the seed; those of the network are for `begin_with`.
    """
    part = network_recipe(stream, preset)
    parts = copy.deepcopy(CONFIGS[part.network])
    parts["backbone"]["in_channels"] = len(part.mean)
    parts["cls_head"] |= {"type": Float32TSNHead, "num_classes": n_classes, "dropout_ratio": config.dropout}
    parts["data_preprocessor"] |= {"mean": list(part.mean), "std": list(part.std), "to_rgb": part.bgr}
    if config.mixup:
        blending = {"type": "MixupBlending", "num_classes": n_classes, "alpha": config.mixup}
        parts["data_preprocessor"]["blending"] = blending
    registry()
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = MODELS.build(parts)
        normal_init(model.cls_head.fc_cls, std=model.cls_head.init_std)
    return model


def begin_with(model: Recognizer2D, initial: Initial, network: str, seed: int) -> None:
    """Give a recogniser's network its first weights, in place. Raises WeightsError."""
    if initial.path is None:
        randomise(model.backbone, seed)
        if network in DEPTHWISE:
            _begin_small(model.backbone, seed)
        for name, layer in model.backbone.named_modules():
            if name.endswith(LAST_NORMS.get(network, ())):  # every residual block begins as the identity
                nn.init.zeros_(layer.weight)
    elif initial.crossed:
        load_crossed(model.backbone, initial.path, network)
    else:
        load_weights(model.backbone, initial.path, network)


def _begin_small(backbone: nn.Module, seed: int) -> None:
    """Torch's own first weights in place of He's, which are 2.4 times as large: before a batch norm that means so much
    smaller steps, and on the first fold of UT-Interaction an mAP of .53 in place of .60."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in backbone.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()


def batch_norms(model: Recognizer2D) -> list[nn.modules.batchnorm._BatchNorm]:
    """Those of a recogniser's network, the first first."""
    return [module for module in model.backbone.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def make_optimiser(model: nn.Module, config: FinetuneConfig) -> torch.optim.Optimizer:
    """AdamW or stochastic gradient descent on what of a recogniser is to be trained."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.optimiser == "adamw":
        # one pass over the weights instead of a dozen: for ten million of them half of the optimiser's time
        return torch.optim.AdamW(trained, config.lr, weight_decay=config.weight_decay, fused=True)
    return torch.optim.SGD(trained, config.lr, momentum=MOMENTUM, weight_decay=config.weight_decay)
