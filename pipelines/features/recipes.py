"""Resolve `--recipe`: a preset, a recipe file, or the recipe of existing features."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from lstr import checkpoint
from lstr.errors import RecipeError, WeightsError
from lstr.extractors.devices import choose_device
from lstr.extractors.networks.published import find_weights
from lstr.extractors.networks.weights_file import DESCRIPTION, is_weights_folder
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.presets import PRESETS, Preset, read_preset
from lstr.extractors.recipe import Recipe
from lstr.extractors.streams import STREAMS, streams_of_model
from lstr.files.content import read_object
from lstr.files.remote import Place
from lstr.pipelines.features.output_folder import open_output, read_calibration
from lstr.pipelines.model_files.model_file import is_meant_as_model, open_model
from lstr.pipelines.model_files.networks import RECORD, find_networks, recorded_weights

CHECKPOINTS = (".pt", ".pth", ".tar")
COMPANIONS = ("calibration.pt", RECORD, DESCRIPTION)  # next to a recipe.json they are part of the recipe


@dataclass(frozen=True)
class StoredRecipe:
    """A recipe with weights, from a feature folder or a checkpoint."""

    recipe: Recipe
    origin: str  # its source, for messages
    # Batch-norm statistics of its random networks, by stream
    calibration: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    # The weights files of its networks by stream, if known
    weights: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def streams(self) -> tuple[str, ...]:
        return self.recipe.streams

    @property
    def algorithm(self) -> str | None:
        """The algorithm of optical flow; None without flow."""
        return self.recipe.algorithm


def default_recipe(output: Place, device: str | None = None) -> tuple[str, str]:
    """Return the default recipe, a name or a folder of features, and the reason.

    Existing features in `output` keep theirs. For a new folder it is `faithful` on a GPU and `fast` on a CPU, where ten
    crops of flow take most of the time.
    """
    if begun := open_output(output):
        made = {(stream, part.network, part.crops) for stream, part in begun.recipe.parts.items()}
        for name in ("fast", "faithful", "activitynet-fast", "activitynet"):
            if made <= {(stream, part.network, part.crops) for stream, part in PRESETS[name].parts.items()}:
                return name, f"as in {output}"
        if isinstance(output, Path):
            return str(output), f"the one of the features in {output}"
    if (device or choose_device(None)) == "cpu":
        return "fast", "on a CPU; with `--recipe faithful` ten crops of flow instead of one, as published"
    return "faithful", "on a GPU, as published"


def find_recipe(name: str | Preset) -> Preset | StoredRecipe:
    """Return the recipe of a preset or its name, a recipe file, feature folder, checkpoint or model file.

    The result includes the weights of a weights folder or a model file. Raises RecipeError, MissingPathError,
    WeightsError or CheckpointError.
    """
    if isinstance(name, Preset):
        return name
    path = Path(name)
    if name in PRESETS:
        return PRESETS[name]
    if path.is_dir() or (path.name == "recipe.json" and any((path.parent / name).exists() for name in COMPANIONS)):
        folder = path if path.is_dir() else path.parent
        if is_weights_folder(folder):
            trained = open_weights(folder)
            return StoredRecipe(trained.recipe, name, weights=dict.fromkeys(trained.recipe.streams, str(folder)))
        if not (features := open_output(folder)):
            hint = "use a folder of features that `lstr extract` made, or of weights that `lstr finetune` finished."
            raise RecipeError(f"{folder} has no recipe.json.", hint)
        return StoredRecipe(features.recipe, name, read_calibration(folder), recorded_weights(folder))
    if is_meant_as_model(path):
        model = open_model(path)
        sources = model.network_sources()
        # a model file does not contain the networks of folds, and new videos do not need them
        return StoredRecipe(model.recipe.without_folds(), name, sources.calibration, sources.files)
    if path.suffix in CHECKPOINTS and path.is_file():
        loaded = checkpoint.load(path)
        if loaded.recipe is None:
            raise RecipeError(f"{path} does not record the recipe of its features.", f"choose: {', '.join(PRESETS)}.")
        known: dict[str, str | None] = {}
        with suppress(WeightsError):  # missing weights are an error only if they are used later
            known = find_networks(loaded)
        return StoredRecipe(Recipe.from_dict(loaded.recipe, path), name, loaded.calibration, known)
    if path.is_file():
        values = read_object(path) or {}
        # The recipe of features contains the hashes of weights.
        is_whole = any(isinstance(part := values.get(stream), dict) and "sha256" in part for stream in STREAMS)
        return StoredRecipe(Recipe.from_dict(values, path), name) if is_whole else read_preset(path)
    raise RecipeError(
        f"{name!r} is neither a recipe nor a file.",
        f"choose one of {', '.join(PRESETS)}, or give a recipe file, a feature or weights folder, a checkpoint or a "
        "model file.",
    )


def choose_recipe(
    name: str | Preset,
    streams: str | None = None,
    networks: Mapping[str, str | None] | None = None,
    algorithm: str | None = None,
    precision: str | None = None,
) -> Preset | StoredRecipe:
    """Return a recipe with changes; None and `both` mean no change.

    Args:
        name: As for `find_recipe`.
        streams: `rgb` (all but flow), `flow` or `both`.
        networks: Other networks by stream; a name that ends in .py is the path of an mmaction2 config.
        algorithm: Another algorithm of optical flow.
        precision: Another precision.

    Raises:
        RecipeError: A recipe with weights contradicts the changes, or lacks a stream.
    """
    recipe = find_recipe(name)
    wanted = {stream: network for stream, network in (networks or {}).items() if network}
    chosen = STREAMS if streams in (None, "both") else streams_of_model((streams,))
    if isinstance(recipe, StoredRecipe):
        values = (("precision", precision, recipe.recipe.precision), ("flow_algorithm", algorithm, recipe.algorithm))
        options = [f"--set recipe.{name}={value}" for name, value, own in values if value not in (None, own)]
        options += [f"--set recipe.{stream}.network" for stream in wanted]
        if options:
            raise RecipeError(
                f"{name} is a complete recipe, which {', '.join(options)} would change.",
                f"leave out {', '.join(options)}.",
            )
    present = [stream for stream in recipe.streams if stream in chosen]
    if not present:
        raise RecipeError(f"The recipe {name} has no {streams} stream.", "leave out --stream.")
    stream_of = {f"--set recipe.{stream}.network": stream for stream in wanted}
    stream_of |= {"--set recipe.flow_algorithm": "flow"} if algorithm else {}
    for option, stream in stream_of.items():
        if stream not in present:
            raise RecipeError(f"{option} needs the {stream} stream, which is not extracted.", f"leave out {option}.")
    if isinstance(recipe, StoredRecipe):
        return replace(recipe, recipe=recipe.recipe.narrowed(present))
    changes: dict[str, Any] = {}
    for stream, network in wanted.items():
        if network.endswith(".py"):
            # only a user's argument becomes a path, because a path is executed as an mmaction2 config
            network = str(Path(network).absolute())
        changes[stream] = replace(recipe.parts[stream], network=network, weights=None, mean=None, std=None)
    if algorithm:
        changes["flow_algorithm"] = algorithm
    if precision:
        changes["precision"] = precision
    return replace(recipe.narrowed(present), **changes)


def weights_for(recipe: Preset | StoredRecipe, chosen: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the paths of weights by stream: the `chosen` ones, else the recipe's.

    Raises WeightsError for weights of a stream that the recipe lacks, and for missing weights.
    """
    if other := next((stream for stream, path in chosen.items() if path and stream not in recipe.streams), None):
        raise WeightsError(
            f"Weights are given for {other}, but the recipe has no {other} stream.", f"leave out --weights {other}."
        )
    found: dict[str, str | None] = {}
    for stream in recipe.streams:
        named = recipe.parts[stream].weights if isinstance(recipe, Preset) else recipe.weights.get(stream)
        found[stream] = chosen.get(stream) or (named and find_weights(named, stream))
    return found
