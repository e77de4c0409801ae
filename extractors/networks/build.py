"""One stream's network with its weights: published, a file of one's own, or seeded random ones."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from lstr.errors import RecipeError, WeightsError
from lstr.extractors.networks.network import COLOURS, MEAN, Network
from lstr.extractors.networks.published_files import dataset_of
from lstr.extractors.networks.table import NETWORKS, entry_of
from lstr.extractors.networks.weights import (
    fingerprint,
    load_statistics,
    load_weights,
    randomise,
    read_alignment,
)
from lstr.extractors.networks.weights_files import WeightSources, network_file, read_card
from lstr.extractors.presets import StreamPreset
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.streams import CHANNELS_OF
from lstr.files.content import read_object

SEED = 2021  # of random weights


class Change(nn.Module):
    """A network for frames on two of them, which need not be trained: (B, 6, H, W) → how their maps differ."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        """The colours of the first frame, then those of the second: (B, 6, H, W) → (B, D, h, w)."""
        first, second = self.backbone(torch.cat(x.chunk(2, 1))).chunk(2)  # (2 B, D, h, w)
        return (first - second).abs()


def network_recipe(stream: str, preset: StreamPreset) -> NetworkRecipe:
    """A stream's network as its preset describes it, without weights. Raises MissingPathError or RecipeError."""
    entry = entry_of(preset.network, stream)
    if stream != "rgb" and entry.segments > 1:
        sentence = f"{entry.name} sees several frames of a chunk, and a chunk has {stream} for one."
        raise RecipeError(sentence, "use it for rgb.")
    width = None if entry.name in NETWORKS and entry.config is None else entry.width
    given = entry.input_of(stream)
    mean, std = preset.mean or given.mean, preset.std or given.std
    described = NetworkRecipe(entry.name, "", "", preset.crops, mean, std, config=entry.config, width=width)
    described = replace(described, size=preset.size, margin=preset.margin if preset.size else 1.0)
    return replace(described, segments=entry.segments, bgr=given.bgr)


def build_network(
    stream: str, part: NetworkRecipe, sources: WeightSources, fold: int | None = None
) -> tuple[nn.Module, NetworkRecipe]:
    """The network of a stream, and `part` with the weights that it now has; `fold` chooses one of a weights folder.

    Raises RecipeError when it does not take the stream's channels, WeightsError or MissingPathError for its file.
    """
    source = sources.files[stream]
    path = source and network_file(source, stream, fold)
    entry = part.entry
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)  # for layers that `randomise` leaves as they were built
        whole = backbone = backbone_of(stream, part, entry)
    if path:
        inflated = load_weights(backbone, path, entry, inflate=entry.inflates)
        if fold and (alignment := read_alignment(path)):
            backbone = nn.Sequential(backbone, alignment)
        card = read_card(path)
        part = replace(part, weights=card.name if card else dataset_of(path), seed=None, calibrated_on=())
        part = replace(part, stem=MEAN if inflated else None)
    else:
        randomise(backbone, SEED)
        if stream in sources.calibration:
            load_statistics(backbone, sources.calibration[stream])
        calibrated_on = sources.calibrated_on if stream in sources.calibration else ()
        part = replace(part, weights="random", seed=SEED, calibrated_on=calibrated_on, stem=None)
    # the hash is of the tensors as files call them
    return backbone, replace(part, sha256=fingerprint(whole.backbone if isinstance(whole, Change) else backbone))


def folds_of(source: str | None, stream: str) -> tuple[str, ...]:
    """Hashes of the networks of a weights folder that each have not seen one fold; none where it is no such folder.

    Raises WeightsError where its recipe cannot be read.
    """
    if not source or not Path(source).is_dir():
        return ()
    path = Path(source) / "recipe.json"
    try:
        recipe = Recipe.from_dict(read_object(path), path)
    except RecipeError as error:
        raise WeightsError(
            f"{source} has no recipe.json that can be read.", "name a folder that `lstr finetune` wrote."
        ) from error
    part = recipe.parts.get(stream)
    return part.folds if part else ()


def backbone_of(stream: str, part: NetworkRecipe, entry: Network) -> nn.Module:
    """The module of a stream's network with its own first weights. Raises RecipeError as `build_network`."""
    channels = CHANNELS_OF[stream]
    if len(part.mean) != channels or len(part.std) != channels:
        raise RecipeError(
            f"{part.network} has {len(part.mean)} means and {len(part.std)} deviations of its input, and the {stream} "
            f"stream {channels} channels.",
            "write one of each per channel.",
        )
    backbone = Change(entry.build(COLOURS)) if stream == "change" else entry.build(channels)
    backbone.eval()  # the ResNet of a config of mmaction2 returns None here
    return backbone
