"""Weights of CLIP that open_clip knows the place of."""

from lstr.extractors.backbones.network import CLIP
from lstr.extractors.errors import WeightsError
from lstr.extractors.names import slug
from lstr.extractors.weights.published_files import PublishedFile
from lstr.extractors.weights.timm_files import HUB, UNKNOWN

FILE = "open_clip_model.safetensors"
"""What such a file is called on the Hub, with both encoders in it."""


def clip_file(name: str) -> PublishedFile:
    """The file of a CLIP by open_clip's name and tag, as `ViT-B-16-quickgelu.openai`. Nothing is asked.

    Raises RecipeError as `clip_network`, WeightsError without a tag, or where open_clip states no place on the Hub.
    """
    from lstr.extractors.backbones.clip_networks import (
        clip_config,
        clip_network,
        import_open_clip,
        licence_of,
        split_name,
    )

    network, tag = split_name(name)
    clip_config(name)
    open_clip = import_open_clip()
    if not tag:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(network)) or "none"
        raise WeightsError(
            f"{CLIP}{network} does not say which weights.", f"add a tag, as {CLIP}{network}.TAG: {tags}."
        )
    entry = clip_network(name)
    repository = str(open_clip.get_pretrained_cfg(network, tag).get("hf_hub") or "").strip("/")
    if repository.count("/") != 1:
        raise WeightsError(
            f"open_clip states no place of the weights {tag} of {network} on the Hub.",
            "a file of your own is given as --weights rgb=FILE.",
        )
    return PublishedFile(
        f"{network}.{tag}.safetensors",
        "rgb",
        f"{CLIP}{network}.{tag}",
        slug(tag, "clip"),
        f"{HUB}/{repository}/resolve/main/{FILE}",
        None,
        licence_of(tag) or UNKNOWN,
        None,
        "not on the list; as open_clip states it",
        mean=tuple(value / 255 for value in entry.inputs["rgb"].mean),
        std=tuple(value / 255 for value in entry.inputs["rgb"].std),
        side=entry.smallest,
    )
