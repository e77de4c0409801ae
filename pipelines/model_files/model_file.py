"""The model file, `.lstr`: a checkpoint, the networks of its features, and their metadata in one file.

`model.json` has classes, recipe, thresholds, metrics and the training videos of model and networks; `card.md` presents
them to the user. `lstr.extractors.networks.archive` reads untrusted files safely. Torch is needed only for the tensors
of the model.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

import msgspec

from lstr.errors import CheckpointError, ConfigError, RecipeError, WeightsError
from lstr.extractors.devices import choose_device
from lstr.extractors.networks.archive import CARD, COPY_HINT, DOCUMENT, GRAPH, SUFFIX, TENSORS, Archive, is_archive
from lstr.extractors.networks.manifest import PublishedFile, read_manifest
from lstr.extractors.networks.network import is_network_name
from lstr.extractors.networks.weights_file import Origin, WeightSources
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.streams import model_stream
from lstr.files.content import built
from lstr.files.names import is_slug
from lstr.labels.segment import is_name
from lstr.loaded_checkpoint import CALIBRATION, FORMAT, Checkpoint, Rule, fault_of_rules
from lstr.loaded_checkpoint import TENSORS as OF_MODEL

STEP = "lstr"  # name of the graph of a model's step; those of networks have the names of their streams
MODEL = f"lstr{TENSORS}"
SEPARATOR = "/"  # between calibration, stream and tensor in the names of the model's tensors
# The entries of model.json that code relies on
_Network = TypedDict("_Network", {"from": Literal["inside", "random", "published"], "network": str, "weights": str})


class _Stored(TypedDict):
    metrics: dict
    extra: dict
    versions: dict


class _Document(TypedDict):
    title: str
    classes: list[str]
    recipe: dict | None
    config: dict
    networks: dict[str, _Network]
    seen: dict
    thresholds: dict[str, Rule] | None
    metrics: dict
    checkpoint: _Stored
    videos: NotRequired[dict[str, str]]


@dataclass(frozen=True)
class ModelFile:
    """An opened model file. Only model.json is read; weights are read, and checked by hash, at their first use."""

    path: Path
    about: Mapping[str, Any]  # the content of model.json

    @property
    def classes(self) -> tuple[str, ...]:
        """The columns of the scores."""
        return tuple(self.about["classes"])

    @property
    def recipe(self) -> Recipe:
        """The recipe of its features, of the streams that its model takes.

        Raises CheckpointError for a model of another program's features.
        """
        if self.about["recipe"] is None:
            raise CheckpointError(
                f"{self.path} was trained on features of another program, which lstr cannot compute from a video.",
                "use a folder of such features instead of a video.",
            )
        return Recipe.from_dict(self.about["recipe"], self.path).narrowed(self.networks)

    @property
    def networks(self) -> dict[str, str]:
        """Where the network of each stream is: `inside`, `random` (made from its seed), or `published`."""
        entries = self.about["networks"]
        return {stream: entries[stream]["from"] for stream in sorted(entries, reverse=True)}

    @property
    def extra(self) -> dict[str, Any]:
        """The entry `extra` of its checkpoint, with the thresholds if there are any."""
        thresholds = self.about["thresholds"]
        return {**self.about["checkpoint"]["extra"], **({"thresholds": thresholds} if thresholds else {})}

    @property
    def exported(self) -> Mapping[str, Any] | None:
        """The description of its graphs if it was exported, so that it runs without torch; else None."""
        return self.about.get("exported")

    def graph(self, name: str) -> bytes:
        """The graph of a stream's network, or of the step, `lstr`. Raises CheckpointError."""
        with refusals(self.path):
            from lstr.extractors.networks.graph_file import check_graph  # only exported models have graphs

            content = Archive(self.path).read(f"{name}{GRAPH}")
            check_graph(content, f"{name}{GRAPH} in {self.path}")
            return content

    def card(self) -> str:
        """Return its model card, made from model.json; the one in the file may be of an earlier version.

        Raises CheckpointError.
        """
        from lstr.pipelines.model_files.card import card_of

        with refusals(self.path):
            return card_of(self.about, self.path.name)

    @property
    def inside(self) -> list[str]:
        """The streams with the weights of their networks in this file."""
        return [stream for stream, where in self.networks.items() if where == "inside"]

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

    def content(self) -> dict[str, Any]:
        """Return the content of its checkpoint as a file. Raises CheckpointError, also for an exported file."""
        if self.exported is not None:
            raise CheckpointError(
                f"{self.path} was exported: its graphs cannot be inspected or trained.",
                "use the model file that it was exported from.",
            )
        own: dict[str, Any] = {}
        calibration: dict[str, dict[str, Any]] = {}
        with refusals(self.path):
            for name, tensor in sorted(Archive(self.path).tensors(MODEL)[0].items()):
                if SEPARATOR in name:
                    _, stream, of_stream = name.split(SEPARATOR, 2)
                    calibration.setdefault(stream, {})[of_stream] = tensor
                else:
                    own[name] = tensor
        stored = {**self.about, **self.about["checkpoint"], "extra": self.extra}
        names = ("config", "classes", "recipe", "metrics", "extra", "versions")
        texts = {name: json.dumps(stored[name]) for name in names}
        return {"format": FORMAT, **texts, CALIBRATION: calibration, OF_MODEL: own}

    def network_sources(self) -> WeightSources:
        """Return the sources of the networks' weights: this file, or the home folder for published ones.

        Raises CheckpointError, and WeightsError if published ones have not been fetched.
        """
        files = {stream: self.source(stream) for stream in self.networks}
        return WeightSources(files, self.content()[CALIBRATION], self.recipe.calibrated_on)

    def source(self, stream: str) -> str | None:
        """Return where the weights of one stream's network come from; None for random weights, drawn from a seed."""
        if stream in self.inside:
            return str(self.path)
        if self.networks.get(stream) == "published":
            from lstr.extractors.networks.published import place_of  # with the code that downloads weights

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
    """Return whether a path is a model file, by its content."""
    return is_archive(path)


def is_meant_as_model(path: str | Path) -> bool:
    """Return whether a path is a model file or has the name of one, so that errors are about a model file."""
    return is_archive(path) or Path(path).suffix == SUFFIX and not Path(path).is_dir()


def open_model(path: str | Path) -> ModelFile:
    """Return a model file. Reads only model.json, after the sizes of all members are checked.

    Raises CheckpointError for a file that is missing, damaged, unsafe or of a newer format.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"{path} does not exist.", "check the path, or train a model with `lstr learn`.")
    # The file may be from a stranger: each entry is checked here, so that later code can rely on it.
    with refusals(path):
        archive = Archive(path)
        model, about = ModelFile(path, archive.document), archive.document
        msgspec.convert(about, _Document)
        for entry in about["networks"].values():
            if not is_network_name(entry["network"]) or not is_slug(entry["weights"]):
                raise ValueError(f"the network {entry}")
            built(Origin, entry.get("origin", {"file": "", "sha256": ""}))
        if not all(map(is_name, about["classes"])):
            raise ValueError("a class without a valid name")
        data = about["checkpoint"]["extra"].get("data")
        is_foreign = about["recipe"] is None and not about["networks"] and isinstance(data, dict) and data.get("store")
        recipe = None if is_foreign else Recipe.from_dict(about["recipe"], path)
        if not set(model.networks) <= set(recipe.streams if recipe else ()):
            raise ValueError("networks of other streams than its recipe")
        if fault := fault_of_rules(about["classes"], about["thresholds"]):
            raise ValueError(fault)
        if model.exported is not None:
            from lstr.exported import StepDescription  # not needed for other models

            if recipe is None:
                raise ValueError("an exported model without a recipe")
            step = StepDescription.from_dict(model.exported["step"])
            graphs = {f"{name}{GRAPH}" for name in (STEP, *model.networks)}
            if {name for name in archive.members if name != CARD} != graphs:
                raise ValueError("graphs that do not belong to an exported model")
            dims = recipe.narrowed(model.networks).dims
            if step.classes != len(model.classes) or (step.rgb_dim, step.flow_dim) != dims:
                raise ValueError("a step of other classes or features")
    return model


def open_checkpoint(
    path: str | Path, overrides: Mapping[str, Any] | None = None, device: str | None = "cpu"
) -> Checkpoint:
    """Load a checkpoint of ours or of the published code, or a model file's; see `lstr.checkpoint.load`.

    Its model is on `device`, by None on the GPU if there is one. Raises CheckpointError and DeviceError.
    """
    place = choose_device(device)
    if is_meant_as_model(path):
        return open_model(path).checkpoint(place, overrides)
    from lstr import checkpoint

    loaded = checkpoint.load(path, overrides)
    loaded.model.to(place)
    return loaded


def load_exported(model: ModelFile) -> Checkpoint:
    """Return an exported model ready to run, as a checkpoint that has no model of torch.

    Raises CheckpointError if it is damaged or unsafe, LstrError if ONNX Runtime is not installed.
    """
    from lstr.exported import ExportedConfig, StepDescription, open_step

    about = model.about["checkpoint"]
    with refusals(model.path):
        step = StepDescription.from_dict((model.exported or {})["step"])
        config = ExportedConfig(
            kind=str(model.about["config"].get("kind", "lstr")),
            long_stride=1,
            anticipation=step.ahead,
            **{name: getattr(step, name) for name in ("rgb_dim", "flow_dim", "work_length", "long_length")},
        )
        return Checkpoint(
            model=cast(Any, None),
            config=config,
            classes=model.classes,
            recipe=model.about["recipe"],
            metrics=about["metrics"],
            extra=model.extra,
            versions=about["versions"],
            path=model.path,
            exported=open_step(step, model.graph(STEP)),
            about=model.about,
        )


def validation_videos(metrics: Mapping[str, Any], about: Mapping[str, Any]) -> list[str]:
    """Return the recorded ids of the videos that chose the epoch.

    Args:
        metrics: The metrics of a checkpoint, as written by `lstr train`.
        about: The model.json of `lstr learn`; empty for other files.
    """
    named = [i for i, subset in about.get("videos", {}).items() if subset == "validation"]
    return [*(metrics.get("validation_videos") or ()), *named]


def assumptions_of(loaded: Checkpoint) -> list[str]:
    """Return a sentence about settings that are missing in a published checkpoint; empty if all are known."""
    values = ", ".join(f"{name} {value}" for name, value in loaded.assumed.items())
    text = f"{loaded.path} does not state {values}: the published defaults are used; change them with the settings"
    return [f"{text} model.…"] if values else []


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Raise CheckpointError for any error in the content of a model file."""
    try:
        yield
    except (WeightsError, RecipeError, ConfigError) as error:
        raise CheckpointError(str(error), error.hint) from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{DOCUMENT} in {path} is not valid: {error}.", COPY_HINT) from error
