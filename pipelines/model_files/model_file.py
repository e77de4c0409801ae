"""The model file, `.lstr`: a checkpoint, the networks of its features, and what is known of both, in one file.

`model.json` has classes, recipe, thresholds, metrics and the videos that model and networks have seen; `card.md` says
the same to people. `lstr.extractors.networks.archive` holds what may be read of a file from a stranger. Torch is needed
for the tensors of its model alone.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lstr.errors import CheckpointError, ConfigError, RecipeError, WeightsError
from lstr.extractors.devices import choose_device
from lstr.extractors.networks.archive import AGAIN, CARD, DOCUMENT, FOREIGN, GRAPH, SUFFIX, TENSORS, Archive, is_archive
from lstr.extractors.networks.manifest import PublishedFile, read_manifest
from lstr.extractors.networks.network import is_network_name
from lstr.extractors.networks.published import place_of
from lstr.extractors.networks.weights_file import Origin, WeightSources
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.streams import model_stream
from lstr.files.content import built
from lstr.files.names import is_slug
from lstr.labels.segment import is_name
from lstr.loaded_checkpoint import CALIBRATION, FORMAT, Checkpoint, fault_of_rules, is_thresholds
from lstr.loaded_checkpoint import TENSORS as OF_MODEL

if TYPE_CHECKING:
    from torch import Tensor

STEP = "lstr"  # name of the graph of a model's step; those of networks have the names of their streams
MODEL = f"lstr{TENSORS}"
SEPARATOR = "/"  # between calibration, stream and tensor in the names of the model's tensors


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
        """How features are made for it, of the streams that its model takes.

        Raises CheckpointError of a model that takes features of other people.
        """
        if self.about["recipe"] is None:
            raise CheckpointError(
                f"{self.path} has learnt from features of other people, and no network here makes such of a video.",
                "give `lstr detect` or `lstr evaluate` a store of such features in place of a video.",
            )
        return Recipe.from_dict(self.about["recipe"], self.path).narrowed(self.networks)

    @property
    def networks(self) -> dict[str, str]:
        """Where the network of each stream is: `inside`, `random` (made from its seed), or `published`."""
        entries = self.about["networks"]
        return {stream: entries[stream]["from"] for stream in sorted(entries, reverse=True)}

    @property
    def extra(self) -> dict[str, Any]:
        """What its checkpoint states beside the model, with the thresholds where there are any."""
        thresholds = self.about["thresholds"]
        return {**self.about["checkpoint"]["extra"], **({"thresholds": thresholds} if thresholds else {})}

    @property
    def exported(self) -> Mapping[str, Any] | None:
        """What is stated of its graphs, where it was exported: such a file runs without torch, and nothing else."""
        return self.about.get("exported")

    def graph(self, name: str) -> bytes:
        """The graph of a stream's network, or of the step, `lstr`. Raises CheckpointError."""
        with refusals(self.path):
            return Archive(self.path).graph(f"{name}{GRAPH}")

    def card(self) -> str:
        """Its model card, made anew of what model.json says; the card in the file may be an older one. Raises
        CheckpointError."""
        from lstr.pipelines.model_files.card import card_of

        with refusals(self.path):
            return card_of(self.about, self.path.name)

    def has_inside(self, stream: str) -> bool:
        """Whether it holds the weights of a stream's network."""
        return self.networks.get(stream) == "inside"

    def checkpoint(self, device: str | None = None, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
        """Its checkpoint, the model on `device` (the CPU without one). Raises CheckpointError."""
        content = self.content()
        from lstr import checkpoint
        from lstr.kinds import from_json

        with refusals(self.path):
            from_json(content["config"])
        loaded = checkpoint.interpret(self.path, content, overrides)
        loaded.model.to(device or "cpu")
        return replace(loaded, about=self.about)

    def calibration(self) -> "dict[str, dict[str, Tensor]]":
        """Batch-norm statistics of its random networks, by stream. Raises CheckpointError."""
        return self.content()[CALIBRATION]

    def content(self) -> dict[str, Any]:
        """What the checkpoint's own file holds. Raises CheckpointError, also for an exported file."""
        self._check_whole()
        about = self.about["checkpoint"]
        with refusals(self.path):
            tensors = Archive(self.path).tensors(MODEL).tensors
            own = {name: tensor for name, tensor in tensors.items() if SEPARATOR not in name}
            calibration: dict[str, dict[str, Any]] = {}
            for name in sorted(tensors.keys() - own.keys()):
                _, stream, tensor = name.split(SEPARATOR, 2)
                calibration.setdefault(stream, {})[tensor] = tensors[name]
        parts = {
            "config": self.about["config"],
            "classes": list(self.classes),
            "recipe": self.about["recipe"],
            "metrics": about["metrics"],
            "extra": self.extra,
            "versions": about["versions"],
        }
        texts = {name: json.dumps(value) for name, value in parts.items()}
        return {"format": FORMAT, **texts, CALIBRATION: calibration, OF_MODEL: own}

    def _check_whole(self) -> None:
        """Raise CheckpointError where it holds graphs in place of tensors."""
        if self.exported is not None:
            raise CheckpointError(
                f"{self.path} was exported to run: it holds graphs, and no model that could be looked into or trained.",
                "give the model file that it was exported from.",
            )

    def network_sources(self) -> WeightSources:
        """Where the networks' weights come from, by stream: this file, or the home folder for published ones.

        Raises WeightsError where published ones have not been fetched.
        """
        files = {stream: self.source(stream) for stream in self.networks}
        return WeightSources(files)

    def source(self, stream: str) -> str | None:
        """Where the weights of one stream's network come from; None for random weights, which their seed makes.

        Raises CheckpointError for an exported file.
        """
        self._check_whole()
        if self.has_inside(stream):
            return str(self.path)
        if self.networks.get(stream) == "published":
            part = self.recipe.parts[stream]
            if not (entry := published_file(part, stream)):
                raise WeightsError(f"No published file has {part.weights} {part.network} weights.", "pack it again.")
            return str(place_of(entry))
        return None


def published_file(part: NetworkRecipe, stream: str) -> PublishedFile | None:
    """Return the published file of a network; None if its weights are not published ones."""
    # A network whose stem was made for other channels, or that sees other frames, was trained for RGB.
    trained_for = "rgb" if part.stem else model_stream(stream)
    wanted = (part.weights, trained_for, part.network)
    return next((e for e in read_manifest() if (e.dataset, e.stream, e.network) == wanted), None)


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
    with refusals(path):
        model = ModelFile(path, Archive(path).document)
        about, stored = model.about, model.about["checkpoint"]
        tables = (about["config"], about["networks"], about["seen"], *(stored[n] for n in ("metrics", "extra")))
        names = about["classes"]
        sound = all(isinstance(table, dict) for table in (*tables, stored["versions"], about["thresholds"] or {}))
        sound &= is_thresholds(about["thresholds"])
        sound &= all(isinstance(entry, dict) and _is_named(entry) for entry in about["networks"].values())
        sound &= isinstance(about["title"], str) and isinstance(about["metrics"], dict)
        sound &= isinstance(names, list) and all(map(is_name, names))
        foreign = about["recipe"] is None and not about["networks"] and bool(_store_of(about))
        recipe = None if foreign else Recipe.from_dict(about["recipe"], path)
        if not sound or not set(model.networks) <= set(recipe.streams if recipe else ()):
            raise ValueError("entries of other kinds than they should be")
        if fault := fault_of_rules(names, about["thresholds"]):
            raise WeightsError(f"{path} cannot be used: {fault}.", FOREIGN)
        if model.exported is not None:
            if recipe is None:
                raise ValueError("an exported model without a recipe")
            _check_exported(model, recipe)
    return model


def _store_of(about: Mapping[str, Any]) -> Any:
    data = about["checkpoint"]["extra"].get("data")
    return data.get("store") if isinstance(data, dict) else None


def _check_exported(model: ModelFile, recipe: Recipe) -> None:
    """Raise ValueError where an exported file states other graphs than it needs, or a step of another size."""
    from lstr.exported import StepDescription  # not needed for other models

    step = StepDescription.from_dict((model.exported or {})["step"])
    archive, wanted = Archive(model.path), {f"{name}{GRAPH}" for name in (STEP, *model.networks)}
    if {name for name in archive.sizes if name not in (DOCUMENT, CARD)} != wanted:
        raise ValueError("other graphs than an exported model has")
    dims = recipe.narrowed(model.networks).dims
    if step.classes != len(model.classes) or (step.rgb_dim, step.flow_dim) != dims:
        raise ValueError("a step of other classes or features")


def open_checkpoint(
    path: str | Path, overrides: Mapping[str, str] | None = None, device: str | None = None
) -> Checkpoint:
    """A checkpoint, or that of a model file, with its model on `device` (a GPU when there is one).

    Raises CheckpointError and DeviceError.
    """
    place = choose_device(device)
    loaded = load(path, overrides)
    loaded.model.to(place)
    return loaded


def load(path: str | Path, overrides: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint of ours or of the published code, or a model file; its model is on the CPU.

    `overrides` (setting to value) are what a published checkpoint does not say: n_heads, long_length,
    long_stride. Raises CheckpointError when the file is missing, damaged, unsafe, or contradicts its configuration, and
    ConfigError on a bad override.
    """
    if is_meant_as_model(path):
        return open_model(path).checkpoint(overrides=overrides)
    from lstr import checkpoint

    return checkpoint.load(path, overrides)


def load_exported(model: ModelFile) -> Checkpoint:
    """Return an exported model ready to run, as a checkpoint that has no model of torch.

    Raises CheckpointError if it is damaged or unsafe, LstrError if ONNX Runtime is not installed.
    """
    from lstr.exported import ExportedConfig, StepDescription, open_step

    about = model.about["checkpoint"]
    with refusals(model.path):
        step = StepDescription.from_dict((model.exported or {})["step"])
        config = ExportedConfig.of(step, str(model.about["config"].get("kind", "lstr")))
        return Checkpoint(
            model=cast(Any, None),
            config=config,
            classes=model.classes,
            recipe=model.about["recipe"],
            metrics=about["metrics"],
            extra=model.extra,
            calibration={},
            versions=about["versions"],
            format=FORMAT,
            path=model.path,
            assumed={},
            exported=open_step(step, model.graph(STEP)),
            about=model.about,
        )


def chosen_on(metrics: Mapping[str, Any], about: Mapping[str, Any]) -> list[str]:
    """The videos by id, as far as it is recorded, on which an epoch was chosen.

    metrics: of a checkpoint, as `lstr train` writes them; about: its model.json, as of `lstr learn`, empty without one.
    """
    subsets = about.get("videos")
    named = [i for i, subset in subsets.items() if subset == "validation"] if isinstance(subsets, dict) else []
    return [*(metrics.get("validation_videos") or ()), *named]


def assumptions_of(loaded: Checkpoint) -> list[str]:
    """What was assumed because a published checkpoint does not say it, in a sentence; empty when nothing was."""
    if not loaded.assumed:
        return []
    values = ", ".join(f"{name} {value}" for name, value in loaded.assumed.items())
    return [f"{loaded.path} does not say {values}: these are the published defaults; the settings model.… change them"]


def _is_named(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of `networks` says what the network is and where it is."""
    return (
        entry.get("from") in ("inside", "random", "published")
        and is_network_name(entry["network"])
        and is_slug(entry["weights"])
        and ("origin" not in entry or built(Origin, entry["origin"]) is not None)
    )


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """What is wrong with a model file, as CheckpointError."""
    try:
        yield
    except (WeightsError, RecipeError, ConfigError) as error:
        raise CheckpointError(str(error), error.hint) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{DOCUMENT} in {path} lacks what a model file states ({error}).", AGAIN) from error
