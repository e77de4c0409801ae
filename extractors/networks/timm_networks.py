"""Describe timm's networks, from timm's metadata and the shapes of one image on the meta device.

Nothing is downloaded: the weights are random unless a file is named.
"""

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lstr.errors import RecipeError, first_line, install_hint
from lstr.extractors.networks.backbones import Wrapper
from lstr.extractors.networks.network import FIVE_PIXELS, RESNET50, SMALLEST, TIMM, Input, Network

SIDE = 64  # pixels of the image that a network without a fixed size is tried on
BYTES = 12  # per weight during training: the weight, and AdamW's two averages
RESNET50_MULTIPLY_ADDS = 4.1e9  # for an image of 224 pixels
# Prefer maps; otherwise features that the network pools itself, for images of many sizes or of one size.
OPTIONS: tuple[dict[str, Any], ...] = ({"global_pool": ""}, {"dynamic_img_size": True}, {})


class PooledMaps(Wrapper):
    """A network that pools itself, such as a vision transformer; its features (B, D) become maps of one pixel."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, D, 1, 1)."""
        return self.backbone(x)[..., None, None]

    def settle(self, size: tuple[int, int]) -> None:
        """Resize its position embeddings for one image size now: otherwise each call would, and runtimes cannot."""
        backbone: Any = self.backbone
        if getattr(backbone, "dynamic_img_size", False) and backbone.pos_embed is not None:
            backbone.set_input_size(img_size=size)


@cache
def timm_network(name: str) -> Network:
    """Return the network with a timm name such as `mobilenetv4_conv_small`, with or without the tag of weights.

    Raises RecipeError if timm is not installed, lacks the network, or if it computes no features of an image.
    """
    try:
        import timm
    except ImportError as error:
        raise RecipeError(f"timm is not installed ({error}).", install_hint("timm")) from error
    if not timm.is_model(name) or ":" in name:  # timm would look up other prefixes over the network
        raise RecipeError(f"timm {timm.__version__} has no network {name!r}.", "see timm.list_models().")
    reason = ""
    for options in OPTIONS:
        try:
            # on the meta device tensors have shapes but no memory, so that describing a large network is fast
            with torch.device("meta"):
                built: Any = _build(name, options, 3)
            maps = "global_pool" in options
            network = built if maps else built.backbone
            about: Mapping[str, Any] = network.pretrained_cfg
            width = int(getattr(network, "head_hidden_size", None) or network.num_features)
            # sides must be a multiple of a transformer's patch size
            patch: Any = getattr(getattr(network, "patch_embed", None), "patch_size", 1)
            patch = max(patch) if isinstance(patch, tuple) else int(patch)
            side = math.lcm(SIDE, patch) if options else about["input_size"][-1]
            with torch.inference_mode(), FlopCounterMode(display=False) as counter:
                made = built(torch.zeros(1, 3, side, side, device="meta"))
        except Exception as error:  # networks raise different types for an unsuitable size
            reason = first_line(error)
            continue
        if made.shape[1:2] != (width,) or made.dim() != 4:
            continue
        multiple = (1 if maps else patch) if options else side
        multiply_adds = counter.get_total_flops() / 2 * (224 / side) ** 2
        weights = sum(parameter.numel() for parameter in network.parameters())
        groups = [module.groups for module in network.modules() if isinstance(module, nn.Conv2d)]
        heads = about.get("classifier") or ()
        heads = (heads,) if isinstance(heads, str) else heads
        mean, std = (tuple(round(255 * value, 3) for value in about[key]) for key in ("mean", "std"))
        return Network(
            f"{TIMM}{name}",
            width,
            partial(_build, name, options),
            {"rgb": Input(mean, std), "flow": FIVE_PIXELS},
            about.get("license") or "",
            smallest=max(SMALLEST, multiple),
            multiple=multiple,
            inflates=True,
            classifier="|".join(("cls_head", *(head.replace(".", r"\.") for head in heads))),
            depthwise=max(groups, default=1) > 1,
            training_bytes=BYTES * weights,
            training_cost=RESNET50.training_cost * multiply_adds / RESNET50_MULTIPLY_ADDS,
        )
    raise RecipeError(
        f"timm's network {name} cannot compute features of an image ({reason}).", "choose another network."
    )


def _build(name: str, options: Mapping[str, Any], channels: int) -> nn.Module:
    import timm

    network = timm.create_model(name, pretrained=False, num_classes=0, in_chans=channels, **options).eval()
    return network if "global_pool" in options else PooledMaps(network)
