"""Build a TwoStream from weights; `lstr.extractors.run` runs it.

A network is built at its first use; this is not necessary if a converted network with the same hash is stored.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr.errors import WeightsError
from lstr.extractors.devices import fast_precision
from lstr.extractors.flow.workers import ALGORITHMS
from lstr.extractors.networks.weights_file import WeightSources, fingerprint_of_file, network_file
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.run import LazyNetworks, TwoStream

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lstr.extractors.presets import Preset


def build_twostream(preset: "Preset", sources: WeightSources, device: str, precision: str | None = None) -> TwoStream:
    """Build the networks of a preset with their weights, and their recipe.

    Args:
        preset: The settings of the recipe.
        sources: The weights by stream.
        device: A torch device name.
        precision: float32 or bf16; None for the preset's choice on this device.

    Raises:
        WeightsError, MissingPathError, RecipeError: A file is missing or cannot be used.
    """
    from lstr.extractors.presets import FAST

    if precision is None:
        precision = fast_precision(device) if preset.precision == FAST else preset.precision
    from lstr.extractors.networks.build import build_network, network_recipe
    from lstr.extractors.networks.weights_folder import open_weights

    networks: dict[str, nn.Module] = {}
    parts: dict[str, NetworkRecipe] = {}
    for stream in preset.streams:
        source = sources.files.get(stream)
        trained = open_weights(source).recipe.parts.get(stream) if source and Path(source).is_dir() else None
        part = replace(network_recipe(stream, preset.parts[stream]), folds=trained.folds if trained else ())
        networks[stream], parts[stream] = build_network(stream, part, sources)
    sizes = {name: getattr(preset, name) for name in ("rgb_frame", "long_side", "short_side", "crop")}
    algorithm = preset.algorithm and ALGORITHMS[preset.algorithm]
    every: dict[str, Any] = {"rgb": None, "flow": None, **parts}
    recipe = Recipe(**every, flow_algorithm=algorithm, precision=precision, **sizes)
    return TwoStream(networks, recipe, device, sources)


def rebuild_twostream(recipe: Recipe, sources: WeightSources, device: str) -> TwoStream:
    """Build the networks of a recipe, and check them against its hashes.

    Raises WeightsError if these files (or this machine's random numbers) give other networks.
    """
    twostream = build_as(recipe, sources, device)
    for stream in recipe.streams:
        want, have = recipe.parts[stream], twostream.recipe.parts[stream]
        if want.sha256 != have.sha256:
            raise WeightsError(
                f"The {stream} network here has the weights {have.weights!r} ({have.sha256}); "
                f"the features were made with {want.weights!r} ({want.sha256}).",
                f"name the file of those with --weights {stream}=FILE.",
            )
    return twostream


def build_as(recipe: Recipe, sources: WeightSources, device: str) -> TwoStream:
    """Build the networks of a recipe with other weights, from `sources`, and their new recipe.

    Raises WeightsError if the recipe has a weights file for a stream and `sources` has none.
    """

    @cache
    def build(stream: str) -> "tuple[nn.Module, NetworkRecipe]":
        from lstr.extractors.networks.build import build_network  # imports torch

        return build_network(stream, recipe.parts[stream], sources)

    parts: dict[str, NetworkRecipe] = {}
    for stream, want in recipe.parts.items():
        source = sources.files.get(stream)
        if want.weights != "random" and source is None:
            raise WeightsError(
                f"The {stream} features need the weights {want.weights!r} of {want.network}, and no file was named.",
                f"add `--weights {stream}=PATH`.",
            )
        is_same = source is not None and fingerprint_of_file(network_file(source, stream)) == want.sha256
        # built at its first use; a stored converted network is enough otherwise
        parts[stream] = want if is_same else build(stream)[1]
    networks = LazyNetworks(parts, lambda stream: build(stream)[0])
    return TwoStream(networks, recipe.having(parts), device, sources)


def calibration_of(twostream: TwoStream) -> "dict[str, dict[str, Tensor]]":
    """Return the batch-norm statistics of each random network, to store them with the recipe."""
    from lstr.extractors.networks.build import statistics

    return {
        stream: statistics(network)
        for stream, network in twostream.networks.items()
        if twostream.recipe.parts[stream].weights == "random"
    }
