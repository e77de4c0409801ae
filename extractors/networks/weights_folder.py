"""The weights folder that `lstr finetune` leaves: networks trained on one's own videos, and what they have seen.

Layout: `rgb.pth`, `flow.pth` (of all training videos; one of the two where one stream was trained),
`fold_1/rgb.pth` … (each without one fold of them), `recipe.json` (a whole Recipe, as feature folders have it), and
`finetune.json`, written last. A network's file has the published key names of its kind, and its ModelCard.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr.errors import MissingPathError, RecipeError, WeightsError
from lstr.extractors.networks.published_files import read_manifest
from lstr.extractors.networks.table import known_network
from lstr.extractors.networks.weights_files import (
    DESCRIPTION,
    ENTRY,
    FORMAT,
    ModelCard,
    WeightSources,
    file_name,
    is_weights_folder,
    network_file,
    read_card,
)
from lstr.extractors.recipe import Recipe
from lstr.files.atomic import replacing, write_tensors, write_text
from lstr.files.content import read_object, write_json
from lstr.files.names import is_slug, slug

if TYPE_CHECKING:
    from torch import Tensor


def fit_name(path: str | Path) -> str:
    """The name of a folder as the name of its weights: fit for a file name, and none that means other weights."""
    name = slug(Path(path).absolute().name, "weights")
    reserved = {"random", "custom", *(word for e in read_manifest() for word in (e.dataset, e.recipe) if word)}
    return f"{name}-finetuned" if name.lower() in reserved else name


def write_network(folder: Path, state: "Mapping[str, Tensor]", card: ModelCard) -> Path:
    """Write one network's file, whole or not at all, where the card's stream and fold place it; its path.

    `state` is the state of a recogniser (`backbone.…`, `cls_head.fc_cls.…`). Raises OutputError.
    """

    path = folder / file_name(card.stream, card.fold)
    entry = known_network(card.network)
    names = entry.written_as if entry else ()
    tensors = {}
    for name, tensor in state.items():
        for ours, published in names:
            if name.startswith(ours):
                name = published + name.removeprefix(ours)
        tensor = tensor.detach().cpu()
        tensors[name] = (tensor.float() if tensor.is_floating_point() else tensor).contiguous()
    with replacing(path) as temporary:
        write_tensors(temporary, {"state_dict": tensors, ENTRY: card.to_json()})
    return path


@dataclass(frozen=True)
class WeightsFolder:
    """A finished weights folder."""

    path: Path
    recipe: Recipe
    about: Mapping[str, Any]
    """What finetune.json says."""

    @property
    def name(self) -> str:
        """Name of the weights, and of the feature directories."""
        return self.about["name"]

    @property
    def classes(self) -> tuple[str, ...]:
        """What the networks distinguish."""
        return tuple(self.about["classes"])

    @property
    def streams(self) -> tuple[str, ...]:
        """`rgb`, `flow` or both."""
        return self.recipe.streams

    @property
    def n_folds(self) -> int:
        """How many networks of a stream have each not seen one fold; 0 without folds."""
        return max(len(self.recipe.parts[stream].folds) for stream in self.streams)

    @property
    def folds(self) -> dict[str, int]:
        """The fold of each video that its networks have learnt from; empty without folds."""
        return dict(self.about.get("folds") or {})

    def file(self, stream: str, fold: int | None = None) -> Path:
        """Path of a stream's network: of all training videos, or without a fold (counted from 1)."""
        return network_file(self.path, stream, fold)

    def files(self) -> list[Path]:
        """Every network's file."""
        return list(_files(self.path, self.recipe))


def cards_of(source: str | Path, stream: str, n_folds: int = 0) -> tuple[ModelCard, ...]:
    """What the networks of a stream, of all videos and then of each fold, say of themselves.

    Raises WeightsError where one is missing, damaged, or says nothing.
    """
    cards = []
    for fold in (None, *range(1, n_folds + 1)):
        path = network_file(source, stream, fold)
        card = read_card(path) if path.is_file() else None
        if card is None or (card.stream, card.fold) != (stream, fold):
            what = "does not say that it is" if path.is_file() else "is missing, that should be"
            which = f"the {stream} network without fold {fold}" if fold else f"a {stream} network of all videos"
            raise WeightsError(f"{path} {what} {which}.", "copy the weights folder again, or train it again.")
        cards.append(card)
    return tuple(cards)


def write_weights(
    path: Path,
    recipe: Recipe,
    folds: Mapping[str, int],
    training: Mapping[str, str],
    details: Mapping[str, Any],
    n_folds: int = 0,
) -> WeightsFolder:
    """Write recipe and description of a folder whose networks are all written (`write_network`).

    Args:
        path: The folder.
        recipe: Of the networks of all training videos, and of the trained streams alone.
        folds: Fold of each training video by id, from 1.
        training: SHA-256 of each training video's file by id.
        details: What else finetune.json holds (metrics, config, seconds, versions).
        n_folds: Number of networks per stream that each have not seen one fold.

    Raises:
        WeightsError: A network does not fit; each is loaded once.
    """
    trained = recipe.streams
    cards = {stream: cards_of(path, stream, n_folds) for stream in trained}
    from lstr.extractors.networks.build import build_network  # imports torch

    parts: dict[str, Any] = {}
    for stream in trained:
        part, sources = recipe.parts[stream], WeightSources.of({stream: str(path)})
        hashes = (build_network(stream, part, sources, fold)[1].sha256 for fold in range(1, n_folds + 1))
        parts[stream] = replace(part, folds=tuple(hashes))
    recipe = recipe.having(parts)
    card = cards[trained[0]][0]
    about = {
        "format": FORMAT,
        "name": card.name,
        "classes": list(card.classes),
        "streams": list(trained),
        "folds": dict(folds),
        "training": dict(training),
        **details,
    }
    write_text(path / "recipe.json", recipe.to_json() + "\n")
    write_json(path / DESCRIPTION, about)
    return WeightsFolder(path, recipe, about)


def open_weights(path: str | Path) -> WeightsFolder:
    """A finished weights folder, with all its networks' files.

    Raises MissingPathError for no folder, WeightsError for one that is unfinished, damaged, foreign, or lacks a file.
    """
    path = Path(path)
    if not path.is_dir():
        raise MissingPathError(f"{path} is not a folder.", "give the folder that `lstr finetune` wrote.")
    if not is_weights_folder(path):
        raise WeightsError(
            f"{path} is no finished folder of weights: it has no {DESCRIPTION}.",
            "give one that `lstr finetune` wrote, or finish its training with --resume.",
        )
    again = "use the lstr that made it, or train it again."
    about = _read(path / DESCRIPTION)
    fits = about.get("format") == FORMAT and isinstance(about.get("name"), str)
    if not fits or not isinstance(about.get("classes"), list) or not isinstance(about.get("training", {}), dict):
        raise WeightsError(f"{path / DESCRIPTION} is not of {FORMAT}.", again)
    if not is_slug(about["name"]):
        raise WeightsError(f"{path / DESCRIPTION}: name is {about['name']!r}, which is no file name.", again)
    try:
        recipe = Recipe.from_dict(_read(path / "recipe.json"), path / "recipe.json")
    except RecipeError as error:
        raise WeightsError(f"{path / 'recipe.json'} is no recipe of features ({error}).", again) from error
    for missing in (file for file in _files(path, recipe) if not file.is_file()):
        raise WeightsError(f"{missing} is not there.", f"copy {shlex.quote(str(path))} again, or train it again.")
    return WeightsFolder(path, recipe, about)


def _files(path: Path, recipe: Recipe) -> Iterable[Path]:
    for stream, part in recipe.parts.items():
        for fold in (None, *range(1, len(part.folds) + 1)):
            yield network_file(path, stream, fold)


def _read(path: Path) -> dict[str, Any]:
    values = read_object(path)
    if values is None:
        hint = "copy the weights folder again, or train it again."
        raise WeightsError(f"{path} cannot be read, or is no JSON object.", hint)
    return values
