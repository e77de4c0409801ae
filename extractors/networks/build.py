"""One stream's network with its weights: published, a file of one's own, or seeded random ones."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from lstr.extractors.errors import RecipeError, WeightsError
from lstr.extractors.networks.backbones.backbones import build_backbone, registry
from lstr.extractors.networks.weights import (
    fingerprint,
    load_statistics,
    load_weights,
    randomise,
    read_alignment,
)
from lstr.extractors.presets import StreamPreset
from lstr.extractors.recipe import CHANNELS, FEATURES, NetworkRecipe, Recipe
from lstr.extractors.weights.model_card import network_file, read_card
from lstr.extractors.weights.published_files import dataset_of
from lstr.extractors.weights.sources import WeightSources

SEED = 2021  # of random weights
IMAGENET = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
HALVES = (127.5,) * 10, (127.5,) * 10  # .5 and .5 of the 0–1 scale
FIVE_PIXELS = (128.0,) * 10, (32.0,) * 10  # 0 where nothing moves, 1 where something moves by five
SMALL = ("resnet18", "shufflenetv2", "mobilenetv3")
# (mean, std) on the 0–255 scale, as the authors of LSTR have them in the code of their later work (Stochastic
# Backpropagation, src/lstr/models/backbones/backbones.py; facts, section 0)
INPUTS = {
    ("rgb", "resnet50"): IMAGENET,  # rgb_kinetics_resnet50, rgb_anet_resnet50; also mmaction2's configs
    ("rgb", "bninception"): ((104.0, 117.0, 128.0), (1.0,) * 3),  # rgb_kinetics_bninception; blue first
    ("flow", "resnet50"): HALVES,  # flow_anet_resnet50
    ("flow", "bninception"): ((128.0,) * 10, (1.0,) * 10),  # flow_kinetics_bninception: never divided
    **{("rgb", name): IMAGENET for name in SMALL},  # torchvision's
    **{("flow", name): FIVE_PIXELS for name in SMALL},
}
BLUE_FIRST = (("rgb", "bninception"),)  # trained by Caffe


def network_recipe(stream: str, preset: StreamPreset) -> NetworkRecipe:
    """A stream's network as its preset describes it, without weights. Raises MissingPathError or RecipeError."""
    if preset.network in FEATURES:
        mean, std = INPUTS[stream, preset.network]
        part = NetworkRecipe(preset.network, "", "", preset.crops, mean, std)
        part = replace(part, bgr=(stream, preset.network) in BLUE_FIRST)
    else:
        part = replace(_recogniser().read_recogniser(preset.network, stream), crops=preset.crops)
    return replace(part, mean=preset.mean or part.mean, std=preset.std or part.std)


def build_network(
    stream: str, part: NetworkRecipe, sources: WeightSources, fold: int | None = None
) -> tuple[nn.Module, NetworkRecipe]:
    """The network of a stream, and `part` with the weights that it now has; `fold` chooses one of a weights folder.

    Raises RecipeError when it does not take the stream's channels, WeightsError or MissingPathError for its file.
    """
    source = sources.files[stream]
    path = source and network_file(source, stream, fold)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)  # for layers that `randomise` leaves as they were built
        backbone = _backbone(stream, part)
    if path:
        load_weights(backbone, path, part.network)
        if fold and (alignment := read_alignment(path)):
            backbone = nn.Sequential(backbone, alignment)
        card = read_card(path)
        part = replace(part, weights=card.name if card else dataset_of(path), seed=None, calibrated_on=())
    else:
        randomise(backbone, SEED)
        if stream in sources.calibration:
            load_statistics(backbone, sources.calibration[stream])
        calibrated_on = sources.calibrated_on if stream in sources.calibration else ()
        part = replace(part, weights="random", seed=SEED, calibrated_on=calibrated_on)
    return backbone, replace(part, sha256=fingerprint(backbone))


def folds_of(source: str | None, stream: str) -> tuple[str, ...]:
    """Hashes of the networks of a weights folder that each have not seen one fold; none where it is no such folder.

    Raises WeightsError where its recipe cannot be read.
    """
    if not source or not Path(source).is_dir():
        return ()
    path = Path(source) / "recipe.json"
    try:
        recipe = Recipe.from_dict(json.loads(path.read_text(encoding="utf-8")), path)
    except (OSError, ValueError, RecursionError, RecipeError) as error:
        raise WeightsError(
            f"{source} has no recipe.json that can be read.", "name a folder that `lstr finetune` wrote."
        ) from error
    part = recipe.parts[stream]
    return part.folds if part else ()


def _backbone(stream: str, part: NetworkRecipe) -> nn.Module:
    channels = {name: n for n, name in CHANNELS.items()}[stream]
    if len(part.mean) != channels or len(part.std) != channels:
        raise RecipeError(
            f"{part.network} has {len(part.mean)} means and {len(part.std)} deviations of its input, and the {stream} "
            f"stream {channels} channels.",
            "write one of each per channel.",
        )
    if part.config is None:
        return build_backbone(part.network, channels)
    return _recogniser().build_recogniser(part.config)


def _recogniser() -> ModuleType:
    """The module of mmaction2's recognisers; mmaction2 is imported where it is first needed."""
    registry()  # quietly, or with an error of ours
    from lstr.extractors.networks.backbones import recogniser

    return recogniser
