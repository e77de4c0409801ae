"""CLIP by open_clip's names: the image encoder as a feature network, and both encoders for texts.

Nothing is downloaded: the weights are random until a file is given. An encoder takes images of one size alone.
"""

from copy import deepcopy
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lstr.extractors.backbones.network import CLIP, COLOURS, RESNET50_COST, Cost, Input, Network
from lstr.extractors.errors import RecipeError, first_line

OPENAI = "openai"
"""open_clip's tag of the weights that OpenAI published"""
QUICK = "-quickgelu"
"""How names end of encoders with OpenAI's approximation of GELU"""
BYTES = 12  # of a weight while it trains: itself, and AdamW's two averages
RESNET50_MULTIPLY_ADDS = 4.1e9  # of an image of 224 pixels
TEXT_PARTS = (
    r"text|transformer|token_embedding|ln_final|positional_embedding|text_projection|logit_scale|logit_bias|attn_mask"
    r"|cls_head"
)
"""What of a published file is no part of the image encoder, whose tensors are called visual.…"""


class ClipImages(nn.Module):
    """The image encoder of a CLIP, its tensors called as in files of the whole: features as maps of one pixel."""

    def __init__(self, visual: nn.Module):
        super().__init__()
        self.visual = visual

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, D, 1, 1), as they are before they are brought to length 1."""
        return self.visual(x)[..., None, None]


def import_open_clip() -> ModuleType:
    """The package. Raises RecipeError where it is not installed."""
    try:
        import open_clip
    except ImportError as error:
        raise RecipeError(f"open_clip is not installed ({error}).", 'pip install "lstr-video[clip]"') from error
    return open_clip


def split_name(name: str) -> tuple[str, str]:
    """open_clip's name of a CLIP and the tag of its weights, empty without one, as in `ViT-B-16.openai`."""
    network, _, tag = name.removeprefix(CLIP).partition(".")
    return network, tag


def clip_config(name: str) -> dict[str, Any]:
    """What open_clip says that a CLIP is made of.

    Raises RecipeError where open_clip is not installed or has no such CLIP, or where that needs what only the network
    has: the tokenizer or the text encoder of another package.
    """
    open_clip = import_open_clip()
    network, _ = split_name(name)
    config = open_clip.get_model_config(network) if "/" not in network and ":" not in network else None
    if not config:
        raise RecipeError(
            f"open_clip {open_clip.__version__} has no CLIP {network!r}.",
            "see open_clip.list_models(); known are ViT-B-32, ViT-B-16 and others.",
        )
    text = config["text_cfg"]
    if "multimodal_cfg" in config or "hf_model_name" in text or "hf_tokenizer_name" in text:
        raise RecipeError(
            f"The texts of {network} need more than open_clip has in it.", "choose another CLIP, as ViT-B-16."
        )
    return config


def make_clip(name: str) -> Any:
    """open_clip's module of both encoders with random weights, on torch's default device. Raises as `clip_config`."""
    open_clip, config = import_open_clip(), deepcopy(clip_config(name))
    if "timm_model_name" in config["vision_cfg"]:
        config["vision_cfg"]["timm_model_pretrained"] = False
    whole = open_clip.CustomTextCLIP if config.pop("custom_text", False) else open_clip.CLIP
    return whole(**config).eval()


@cache
def clip_network(name: str) -> Network:
    """The entry of an image encoder by open_clip's name, as `ViT-B-16`, with or without the tag of its weights.

    Raises RecipeError as `clip_config`, for a tag that it has not, and where an encoder makes no features of an image.
    """
    config, (network, tag) = clip_config(name), split_name(name)
    about = _about(network, tag)
    if about.get("quick_gelu", False) and not config.get("quick_gelu", False):
        raise RecipeError(
            f"The weights {tag} of {network} were trained with another activation.",
            f"use {CLIP}{network}{QUICK}.{tag}, and {CLIP}{network}{QUICK} where a recipe names the network.",
        )
    size = config["vision_cfg"].get("image_size", 224)
    side = max(size) if isinstance(size, list | tuple) else int(size)
    try:
        with torch.device("meta"), torch.inference_mode():
            encoder = ClipImages(make_clip(name).visual)
            with FlopCounterMode(display=False) as counter:
                made = encoder(torch.zeros(1, COLOURS, side, side))
    except Exception as error:  # encoders differ in what they take
        raise RecipeError(
            f"open_clip's {network} makes no features of an image here ({first_line(error)}).", "choose another CLIP."
        ) from error
    share = counter.get_total_flops() / 2 * (224 / side) ** 2 / RESNET50_MULTIPLY_ADDS
    weights = sum(parameter.numel() for parameter in encoder.parameters())
    mean, std = (tuple(round(255 * value, 3) for value in about[key]) for key in ("mean", "std"))
    return Network(
        f"{CLIP}{name.removeprefix(CLIP)}",
        made.shape[1],
        partial(_build, name),
        {"rgb": Input(mean, std)},
        Cost(
            RESNET50_COST.seconds * share, RESNET50_COST.bf16 * share, BYTES * weights, RESNET50_COST.training * share
        ),
        licence_of(tag),
        smallest=side,
        multiple=side,
        classifier=TEXT_PARTS,
    )


def licence_of(tag: str) -> str:
    """The licence of weights by open_clip's tag, which states none itself; empty where it is not known here."""
    return "MIT" if tag == OPENAI else ""


def _about(network: str, tag: str) -> dict[str, Any]:
    """How weights want their images: those of a tag, else as OpenAI's, which all but a few are as. Raises RecipeError
    for an unknown tag."""
    open_clip = import_open_clip()
    plain = {"mean": open_clip.OPENAI_DATASET_MEAN, "std": open_clip.OPENAI_DATASET_STD}
    if not tag:
        return plain
    found = open_clip.get_pretrained_cfg(network, tag)
    if not found:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(network)) or "none"
        raise RecipeError(f"open_clip knows no weights {tag!r} of {network}.", f"known are: {tags}.")
    return plain | {key: value for key, value in found.items() if value}


def _build(name: str, channels: int) -> nn.Module:
    if channels != COLOURS:
        raise RecipeError(
            f"{CLIP}{name.removeprefix(CLIP)} takes frames, and not {channels} channels.",
            "give it to the rgb stream, or leave that stream's network as it was.",
        )
    return ClipImages(make_clip(name).visual).eval()
