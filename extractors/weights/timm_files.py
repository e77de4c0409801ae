"""Weights that timm publishes: where they are, and under which licence, as the installed timm states it."""

from lstr.extractors.backbones.network import TIMM
from lstr.extractors.errors import RecipeError, WeightsError
from lstr.extractors.names import slug
from lstr.extractors.weights.published_files import PublishedFile

HUB = "https://huggingface.co"
UNKNOWN = "unknown"  # a licence that timm does not state


def timm_file(name: str) -> PublishedFile:
    """The file of a network by timm's name; without the tag of weights, that of timm's choice. Nothing is asked.

    Raises RecipeError where timm is not installed or has no such network, WeightsError where it states no place of
    weights.
    """
    try:
        import timm
        from timm.models import get_pretrained_cfg
    except ImportError as error:
        raise RecipeError(f"timm is not installed ({error}).", 'pip install "lstr-video[timm]"') from error
    if not timm.is_model(name) or ":" in name:
        raise RecipeError(f"timm {timm.__version__} has no network {name!r}.", "see timm.list_models(pretrained=True).")
    about = get_pretrained_cfg(name, allow_unregistered=False)
    if about is None or not about.hf_hub_id or not about.tag:
        hint = "see timm.list_models(pretrained=True); a file of your own is given as --weights rgb=FILE."
        raise WeightsError(f"timm states no place of weights of {name}.", hint)
    full = f"{about.architecture}.{about.tag}"
    return PublishedFile(
        f"{full}.safetensors",
        "rgb",
        f"{TIMM}{full}",
        slug(about.tag, "timm"),
        f"{HUB}/{about.hf_hub_id}/resolve/main/{about.hf_hub_filename or 'model.safetensors'}",
        None,
        about.license or UNKNOWN,
        None,
        "not on the list; as timm states it",
        mean=tuple(about.mean),
        std=tuple(about.std),
        side=about.input_size[-1],
    )
