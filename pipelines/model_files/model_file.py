"""The model file, `.lstr`: a checkpoint, the networks of its features, and what is known of both, in one file.

`model.json` has classes, recipe, thresholds, metrics and the videos that model and networks have seen; `card.md` says
the same to people. `lstr.extractors.weights.archive` holds what may be read of a file from a stranger.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lstr import __version__
from lstr.checkpoints import checkpoint
from lstr.checkpoints.checkpoint import CALIBRATION, Checkpoint
from lstr.checkpoints.entries import is_thresholds
from lstr.config import LSTRConfig, from_json
from lstr.errors import CheckpointError, ConfigError
from lstr.extractors.backbones.network import is_network_name
from lstr.extractors.errors import OutputError, RecipeError, WeightsError
from lstr.extractors.home import home
from lstr.extractors.names import is_slug
from lstr.extractors.networks.build import WeightSources, build_network
from lstr.extractors.recipe import Recipe
from lstr.extractors.weights.archive import AGAIN, CARD, DOCUMENT, TENSORS, Archive, Tensors, is_archive, write_archive
from lstr.extractors.weights.content import read_state_dict
from lstr.extractors.weights.model_card import network_file, read_card
from lstr.kinds import make_model
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.model_files.description import describe
from lstr.pipelines.weights.known import find_networks, published_file, published_path

MODEL = f"lstr{TENSORS}"
SUFFIX = ".lstr"
SEPARATOR = "/"  # between calibration, stream and tensor in the names of the model's tensors
LONGEST = 1 << 20  # chunks, or the width of a layer: three days, and a thousand times what is usual
OWN = ("lstr", "classes", "recipe", "config", "thresholds", "networks", "seen", "checkpoint", "members", "format")
"""Entries of model.json that `write_model` alone makes."""


@dataclass(frozen=True)
class ModelFile:
    """A model file of which model.json is read; weights are read, and checked by hash, when they are needed."""

    path: Path
    about: Mapping[str, Any]
    """What model.json says."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The columns of the scores."""
        return tuple(self.about["classes"])

    @property
    def recipe(self) -> Recipe:
        """How features are made for it, of the streams that its model takes."""
        return Recipe.from_dict(self.about["recipe"], self.path).narrowed(self.networks)

    @property
    def networks(self) -> dict[str, str]:
        """Where the network of each stream is: `inside`, `random` (made from its seed), or `published`."""
        entries = self.about["networks"]
        return {stream: entries[stream]["from"] for stream in sorted(entries, reverse=True)}

    def has_inside(self, stream: str) -> bool:
        """Whether it holds the weights of a stream's network."""
        return self.networks.get(stream) == "inside"

    def checkpoint(self, device: str | None = None, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
        """Its checkpoint, the model on `device` (the CPU without one). Raises CheckpointError."""
        content = self.content()
        with _refusals(self.path):
            config = from_json(content["config"])
        _check_size(self.path, config, content[checkpoint.TENSORS], len(self.classes))
        loaded = checkpoint.interpret(self.path, content, overrides)
        loaded.model.to(device or "cpu")
        return replace(loaded, about=self.about)

    def calibration(self) -> dict[str, dict[str, Tensor]]:
        """Batch-norm statistics of its random networks, by stream. Raises CheckpointError."""
        return self.content()[CALIBRATION]

    def content(self) -> dict[str, Any]:
        """What the checkpoint's own file holds. Raises CheckpointError."""
        about = self.about["checkpoint"]
        with _refusals(self.path):
            tensors = Archive(self.path).tensors(MODEL).tensors
            own = {name: tensor for name, tensor in tensors.items() if SEPARATOR not in name}
            calibration: dict[str, dict[str, Tensor]] = {}
            for name in sorted(tensors.keys() - own.keys()):
                _, stream, tensor = name.split(SEPARATOR, 2)
                calibration.setdefault(stream, {})[tensor] = tensors[name]
        thresholds = self.about["thresholds"]
        parts = {
            "config": self.about["config"],
            "classes": list(self.classes),
            "recipe": self.about["recipe"],
            "metrics": about["metrics"],
            "extra": about["extra"] | ({"thresholds": thresholds} if thresholds else {}),
            "versions": about["versions"],
        }
        texts = {name: json.dumps(value) for name, value in parts.items()}
        return {"format": checkpoint.FORMAT, **texts, CALIBRATION: calibration, checkpoint.TENSORS: own}

    def network_sources(self) -> WeightSources:
        """Where the networks' weights come from, by stream: this file, or the home folder for published ones.

        Raises WeightsError where published ones have not been fetched.
        """
        files = {stream: self.source(stream) for stream in self.networks}
        return WeightSources(files.get("rgb"), files.get("flow"))

    def source(self, stream: str) -> str | None:
        """As `network_sources`, of one stream; None for random weights, which their seed makes."""
        if self.has_inside(stream):
            return str(self.path)
        if self.networks.get(stream) == "published":
            return published_path(self.recipe.parts[stream], stream)
        return None


def is_model(path: str | Path) -> bool:
    """Whether a path is a model file, by its content."""
    return is_archive(path)


def is_meant_as_model(path: str | Path) -> bool:
    """Whether a path is a model file, or has the name of one: what is wrong with it is then said of a model file."""
    return is_archive(path) or Path(path).suffix == SUFFIX and not Path(path).is_dir()


def open_model(path: str | Path) -> ModelFile:
    """A model file. Reads model.json alone, once the sizes of all members are checked.

    Raises CheckpointError for a file that is missing, damaged, unsafe or of a newer format.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"There is no model file {path}.", "check its path; `lstr pack` makes one.")
    with _refusals(path):
        model = ModelFile(path, Archive(path).document)
        about, stored = model.about, model.about["checkpoint"]
        tables = (about["config"], about["networks"], about["seen"], *(stored[n] for n in ("metrics", "extra")))
        names = about["classes"]
        sound = all(isinstance(table, dict) for table in (*tables, stored["versions"], about["thresholds"] or {}))
        sound &= is_thresholds(about["thresholds"])
        sound &= all(isinstance(entry, dict) and _is_named(entry) for entry in about["networks"].values())
        sound &= isinstance(about["title"], str) and isinstance(about["metrics"], dict)
        sound &= isinstance(names, list) and all(isinstance(name, str) for name in names)
        recipe = Recipe.from_dict(about["recipe"], path)
        if not sound or not set(model.networks) <= set(recipe.streams):
            raise ValueError("entries of other kinds than they should be")
    return model


def _is_named(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of `networks` says what the network is and where it is."""
    return (
        entry.get("from") in ("inside", "random", "published")
        and is_network_name(entry["network"])
        and is_slug(entry["weights"])
    )


def write_model(path: str | Path, checkpoint: Path, weights: Path | None, about: Mapping[str, Any]) -> ModelFile:
    """Pack a checkpoint and the networks of its features into a model file, which appears whole or not at all.

    checkpoint: a run's file. weights: the weights folder (or file) of its networks; with None they are looked for where
    the run's features recorded them; random ones need no file, published ones are found in the home folder by whoever
    uses the model. about: what else model.json says, such as title, metrics (as `lstr evaluate --json`), demo, videos;
    `seen` adds videos {id: SHA-256 or None} to those that the checkpoint and its networks name. The same arguments give
    the same bytes. Raises CheckpointError, WeightsError, RecipeError or OutputError.
    """
    return _write(Path(path), Path(checkpoint), weights, about)


def _write(path: Path, file: Path, weights: Path | None, about: Mapping[str, Any]) -> ModelFile:
    if path.exists() and not is_model(path):
        raise OutputError(
            f"{path} exists and is no model file.", "choose another name with [[output]], as in fall.lstr."
        )
    content = checkpoint.read(file)
    loaded = checkpoint.interpret(file, content)
    if loaded.recipe is None or loaded.format != checkpoint.FORMAT:
        raise CheckpointError(
            f"{file} does not say how its features were made, so a model file of it could not look at a video.",
            "train it with `lstr train` on features that `lstr extract` made.",
        )
    recipe = Recipe.from_dict(loaded.recipe, file).narrowed(loaded.config.streams)
    sources = dict.fromkeys(recipe.streams, str(weights)) if weights else find_networks(loaded)
    parts: dict[str, Tensors | bytes] = {MODEL: Tensors(_named(content))}
    networks, seen = {}, dict[str, Any](dict.fromkeys(loaded.metrics.get("training_videos") or ()))
    for stream, part in recipe.parts.items():
        origin = _origin(loaded, stream, recipe, sources.get(stream))
        networks[stream] = {"from": origin, "network": part.network, "weights": part.weights}
        source = sources.get(stream)
        if origin == "inside" and source:
            card = read_card(network_file(source, stream))
            seen |= card.seen if card else {}
            note = card.to_json() if card else None
            parts[f"{stream}{TENSORS}"] = Tensors(read_state_dict(network_file(source, stream)), note)
    extra = _without_places(loaded.extra)
    document = {
        "title": path.stem,
        "metrics": {},
        **{name: value for name, value in about.items() if name not in OWN},
        "lstr": __version__,
        "classes": list(loaded.classes),
        "recipe": loaded.recipe,
        "config": json.loads(content["config"]),
        "thresholds": loaded.extra.get("thresholds") or {},
        "networks": networks,
        "seen": seen | dict(about.get("seen") or {}),
        "checkpoint": {
            "metrics": loaded.metrics,
            "extra": extra,
            "versions": loaded.versions,
        },
    }
    return _written(path, document, parts)


def _without_places(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What a run states of itself, without when and where it was made, nor whether somebody edits the sources at the
    moment: equal runs give equal files, and no path of this machine goes along."""
    left = {name: value for name, value in extra.items() if name not in ("networks", "thresholds")}
    for part, names in (("made_by", ("command", "date", "git")), ("data", ("features",))):
        if isinstance(left.get(part), dict):
            left[part] = {name: value for name, value in left[part].items() if name not in names}
    return left


def _written(path: Path, document: Mapping[str, Any], parts: Mapping[str, Tensors | bytes]) -> ModelFile:
    document = _plain(document)
    with replacing(path) as temporary:
        write_archive(temporary, document, describe(document, path.name), parts)
    return open_model(path)


def change_thresholds(path: str | Path, thresholds: Mapping[str, Mapping[str, float]]) -> Path:
    """Put other thresholds into a model file, which is replaced whole; nothing else of it changes but the card."""
    model, archive = open_model(path), Archive(path)
    with _refusals(model.path):
        parts = {name: archive.read(name) for name in archive.sizes if name not in (DOCUMENT, CARD)}
    document = {name: value for name, value in model.about.items() if name not in ("format", "members")}
    return _written(model.path, document | {"thresholds": thresholds}, parts).path


def change_precision(path: str | Path, output: Path, recipe: Recipe, measured: Mapping[str, Any]) -> ModelFile:
    """Write a copy of a model file whose networks compute by another recipe; `measured` says what that costs.

    Raises OutputError where `output` is another file than a model file, or cannot be written.
    """
    if output.exists() and not is_model(output):
        raise OutputError(
            f"{output} exists and is no model file.", "choose another name with [[output]], as in small.lstr."
        )
    model, archive = open_model(path), Archive(path)
    with _refusals(model.path):
        parts = {name: archive.read(name) for name in archive.sizes if name not in (DOCUMENT, CARD)}
    document = {name: value for name, value in model.about.items() if name not in ("format", "members")}
    return _written(output, document | {"recipe": recipe.to_dict(), recipe.precision: measured}, parts)


def _named(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint under one name each: the model's own, and calibration/STREAM/NAME."""
    named = dict(content[checkpoint.TENSORS])
    for stream, tensors in content.get(CALIBRATION, {}).items():
        named |= {SEPARATOR.join((CALIBRATION, stream, name)): tensor for name, tensor in tensors.items()}
    return named


def _origin(loaded: Checkpoint, stream: str, recipe: Recipe, source: str | None) -> str:
    """Where a stream's network will come from. Raises WeightsError where its weights are not at hand."""
    part = recipe.parts[stream]
    if part.weights == "random":
        return "random"
    if published_file(part, stream) and (source is None or Path(source).parent == home()):
        return "published"
    if source is None:
        raise WeightsError(
            f"{loaded.path} needs its {stream} network, of {part.weights} weights, and nothing says where they are.",
            "name the folder that `lstr finetune` wrote: [[weights=DIR]].",
        )
    found = build_network(stream, part, WeightSources(source, source))[1]
    if found.sha256 != part.sha256:
        raise RecipeError(
            f"The {stream} network in {source} is {found.weights} {found.sha256}, the features of {loaded.path} come "
            f"from {part.weights} {part.sha256}.",
            "name the weights that its features were made with: [[weights=DIR]].",
        )
    return "inside"


def _check_size(path: Path, config: LSTRConfig, tensors: Mapping[str, Tensor], n_classes: int) -> None:
    """Refuse a configuration of a larger model than its tensors, before memory for it is allocated."""
    sizes = [value for value in vars(config).values() if isinstance(value, int)]
    sound = max(sizes) <= LONGEST and config.l_enc + config.l_dec <= len(tensors)
    if sound:
        with torch.device("meta"), _Unfilled():
            wanted = {name: tensor.shape for name, tensor in make_model(config, n_classes).state_dict().items()}
        sound = wanted == {name: tensor.shape for name, tensor in tensors.items()}
    if not sound:
        raise CheckpointError(f"The configuration in {path} is of another model than its tensors.", AGAIN)


class _Unfilled(TorchFunctionMode):
    """Tensors are not filled while it lasts: those without memory need no numbers, and asking torch for such imports
    its compiler, which takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        filled = name.endswith("_") and not name.startswith("_")
        if args and (filled or name in ("exp", "mul", "sin", "cos")):
            return args[0]
        if func is torch.arange:
            return torch.empty(len(range(*args)), **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _plain(value: Any) -> Any:
    """A value as JSON has it; numbers that are not finite are null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """What is wrong with a model file, as CheckpointError."""
    try:
        yield
    except (WeightsError, RecipeError, ConfigError) as error:
        raise CheckpointError(str(error), error.hint) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{DOCUMENT} in {path} lacks what a model file states ({error}).", AGAIN) from error
