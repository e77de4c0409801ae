"""The weights folder of `lstr finetune`: networks trained on one's own videos, and which videos each has seen.

Layout: `rgb.pth`, `flow.pth` … (of all training videos, a file per trained stream), `fold_1/rgb.pth` … (each without
one fold of them), `recipe.json` (a whole Recipe, as feature folders have it), and `finetune.json`, written last. A
network's file has the published key names of its kind, and its ModelCard.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstr.errors import MissingPathError, RecipeError, WeightsError
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.weights_file import (
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
from lstr.files.names import is_slug

if TYPE_CHECKING:
    from torch import Tensor

COPY_HINT = "copy the weights folder again, or train it again."


@dataclass(frozen=True)
class WeightsFolder:
    """A finished weights folder."""

    path: Path
    recipe: Recipe
    # the content of finetune.json
    about: Mapping[str, Any]

    @property
    def folds(self) -> dict[str, int]:
        """The fold of each training video; empty without folds."""
        return dict(self.about.get("folds") or {})

    def file(self, stream: str, fold: int | None = None) -> Path:
        """Return the path of a stream's network: of all training videos, or without a fold (counted from 1)."""
        return network_file(self.path, stream, fold)

    def files(self) -> list[Path]:
        """Return every network's file."""
        parts = self.recipe.parts.items()
        return [self.file(stream, fold or None) for stream, part in parts for fold in range(len(part.folds) + 1)]


def write_network(folder: Path, state: "Mapping[str, Tensor]", card: ModelCard) -> Path:
    """Write one network's file, whole or not at all, where the card's stream and fold place it; return its path.

    `state` is the state of a recogniser (`backbone.…`, `cls_head.fc_cls.…`). Raises OutputError.
    """
    path = folder / file_name(card.stream, card.fold)
    entry = find_network(card.network)
    tensors = {}
    for name, tensor in state.items():
        for ours, published in entry.written_as if entry else ():
            if name.startswith(ours):
                name = published + name.removeprefix(ours)
        tensor = tensor.detach().cpu()
        tensors[name] = (tensor.float() if tensor.is_floating_point() else tensor).contiguous()
    with replacing(path) as temporary:
        write_tensors(temporary, {"state_dict": tensors, ENTRY: card.to_json()})
    return path


def cards_of(source: str | Path, stream: str, n_folds: int = 0) -> tuple[ModelCard, ...]:
    """Return the cards of a stream's networks: of all videos, then of each fold.

    Raises WeightsError for a network that is missing, damaged or has no card.
    """
    cards = []
    for fold in (None, *range(1, n_folds + 1)):
        path = network_file(source, stream, fold)
        card = read_card(path) if path.is_file() else None
        if card is None or (card.stream, card.fold) != (stream, fold):
            state = "is not marked as" if path.is_file() else "is missing, that should be"
            which = f"the {stream} network without fold {fold}" if fold else f"a {stream} network of all videos"
            raise WeightsError(f"{path} {state} {which}.", COPY_HINT)
        cards.append(card)
    return tuple(cards)


def blind_fold(cards: Sequence[ModelCard], video_id: str, sha256: str | None) -> int | None:
    """Return which of a stream's networks has not seen a video: a fold, or None for the network of all videos.

    Where each has seen something of it, the one that has not seen its content.
    """
    seen = [(sha256 in card.seen.values(), video_id in card.seen) for card in cards]
    return seen.index(min(seen)) or None


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
        recipe: Recipe of the networks of all training videos, of the trained streams alone.
        folds: Fold of each training video by id, from 1.
        training: SHA-256 of each training video's file by id.
        details: What else finetune.json holds (metrics, config, seconds, versions).
        n_folds: Number of networks per stream that each have not seen one fold.

    Raises:
        WeightsError: A network does not fit; each is loaded once.
    """
    from lstr.extractors.networks.build import build_network  # imports torch

    cards = {stream: cards_of(path, stream, n_folds) for stream in recipe.streams}
    sources = WeightSources(dict.fromkeys(recipe.streams, str(path)))
    parts: dict[str, Any] = {}
    for stream, part in recipe.parts.items():
        # features of a training video are checked against these hashes (pipelines/features/video.py)
        hashes = (build_network(stream, part, sources, fold)[1].sha256 for fold in range(1, n_folds + 1))
        parts[stream] = replace(part, folds=tuple(hashes))
    recipe = recipe.having(parts)
    card = cards[recipe.streams[0]][0]
    about = {
        "format": FORMAT,
        "name": card.name,
        "classes": list(card.classes),
        "streams": list(recipe.streams),
        "folds": dict(folds),
        "training": dict(training),
        **details,
    }
    # the description is last: a folder without it is unfinished, and training resumes there
    write_text(path / "recipe.json", recipe.to_json() + "\n")
    write_json(path / DESCRIPTION, about)
    return WeightsFolder(path, recipe, about)


def open_weights(path: str | Path) -> WeightsFolder:
    """Return a finished weights folder that has all its networks' files.

    Raises MissingPathError for no folder, WeightsError for one that is unfinished, damaged, foreign, or lacks a file.
    """
    path = Path(path)
    if not path.is_dir():
        raise MissingPathError(f"{path} is not a folder.", "give the folder that `lstr finetune` wrote.")
    if not is_weights_folder(path):
        raise WeightsError(
            f"{path} is not a finished weights folder: it lacks {DESCRIPTION}.",
            "give one that `lstr finetune` wrote, or finish its training with --resume.",
        )
    again = "use the version of lstr that wrote it, or train it again."
    about = _read(path / DESCRIPTION)
    fits = about.get("format") == FORMAT and isinstance(about.get("name"), str)
    if not fits or not isinstance(about.get("classes"), list) or not isinstance(about.get("training", {}), dict):
        raise WeightsError(f"{path / DESCRIPTION} does not have the format {FORMAT}.", again)
    if not is_slug(about["name"]):
        raise WeightsError(f"{path / DESCRIPTION}: name is {about['name']!r}, which is not a valid file name.", again)
    try:
        folder = WeightsFolder(path, Recipe.from_dict(_read(path / "recipe.json"), path / "recipe.json"), about)
    except RecipeError as error:
        raise WeightsError(f"{path / 'recipe.json'} is not a recipe of features ({error}).", again) from error
    for missing in (file for file in folder.files() if not file.is_file()):
        raise WeightsError(f"{missing} does not exist.", f"copy {shlex.quote(str(path))} again, or train it again.")
    return folder


def _read(path: Path) -> dict[str, Any]:
    values = read_object(path)
    if values is None:
        raise WeightsError(f"{path} cannot be read, or is not a JSON object.", COPY_HINT)
    return values
