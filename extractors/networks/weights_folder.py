"""The weights folder of `lstr finetune`: networks trained on custom videos, and the training videos of each.

Layout: `rgb.pth`, `flow.pth` … (trained on all training videos, one file per stream), `fold_1/rgb.pth` … (each trained
without one fold), `recipe.json` (a Recipe, as in feature folders), and `finetune.json`, written last. A network's file
has the tensor names of the published files of its kind, and a ModelCard.
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
    about: Mapping[str, Any]  # the content of finetune.json

    @property
    def folds(self) -> dict[str, int]:
        """The fold of each training video by id; empty without folds."""
        return dict(self.about.get("folds") or {})

    def file(self, stream: str, fold: int | None = None) -> Path:
        """Return the path of a stream's network: trained on all training videos, or without one fold (from 1)."""
        return network_file(self.path, stream, fold)

    def files(self) -> list[Path]:
        """Return the files of all networks."""
        parts = self.recipe.parts.items()
        return [self.file(stream, fold or None) for stream, part in parts for fold in range(len(part.folds) + 1)]


def write_network(folder: Path, state: "Mapping[str, Tensor]", card: ModelCard) -> Path:
    """Write a network's file atomically, at the path for the card's stream and fold, and return the path.

    `state` is the state dict of a recogniser (`backbone.…`, `cls_head.fc_cls.…`). Raises OutputError.
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


def cards_of(source: str | Path, stream: str, n_folds: int) -> tuple[ModelCard, ...]:
    """Return the cards of a stream's networks: trained on all videos, then without each fold.

    Raises WeightsError for a network that is missing, damaged or has no card.
    """
    cards = []
    for fold in (None, *range(1, n_folds + 1)):
        path = network_file(source, stream, fold)
        card = read_card(path) if path.is_file() else None
        if card is None or (card.stream, card.fold) != (stream, fold):
            state = "is not marked as" if path.is_file() else "is missing; it should be"
            trained = f"trained without fold {fold}" if fold else "trained on all videos"
            raise WeightsError(f"{path} {state} the {stream} network {trained}.", COPY_HINT)
        cards.append(card)
    return tuple(cards)


def blind_fold(cards: Sequence[ModelCard], video_id: str, sha256: str | None) -> int | None:
    """Return which of a stream's networks was not trained on a video: a fold, or None for the network of all videos.

    If all networks know the video's id or content, the network that does not know its content is chosen.
    """
    seen = [(sha256 in card.seen.values(), video_id in card.seen) for card in cards]
    return seen.index(min(seen)) or None


def write_weights(
    path: Path,
    recipe: Recipe,
    folds: Mapping[str, int],
    training: Mapping[str, str],
    details: Mapping[str, Any],
) -> WeightsFolder:
    """Write the recipe and the description of a weights folder, after `write_network` has written its networks.

    Args:
        path: The folder.
        recipe: Recipe of the networks of all training videos, with only the trained streams.
        folds: The fold of each training video by id, from 1; each stream has one more network per fold.
        training: SHA-256 of each training video's file by id.
        details: Other entries of finetune.json (metrics, config, seconds, versions).

    Raises:
        WeightsError: A network does not fit the recipe; each is loaded once to check it.
    """
    from lstr.extractors.networks.build import build_network  # imports torch

    n_folds = max(folds.values(), default=0)
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
    """Open a finished weights folder that has the files of all its networks.

    Raises MissingPathError if the folder does not exist, and WeightsError if it is unfinished, damaged, of another
    kind, or lacks a file.
    """
    path = Path(path)
    if not path.is_dir():
        raise MissingPathError(f"{path} is not a folder.", "use the folder that `lstr finetune` wrote.")
    if not is_weights_folder(path):
        raise WeightsError(
            f"{path} is not a finished weights folder: it lacks {DESCRIPTION}.",
            "use one that `lstr finetune` wrote, or finish its training with --resume.",
        )
    again = "use the version of lstr that wrote it, copy it again, or train it again."
    about = read_object(path / DESCRIPTION) or {}
    fits = about.get("format") == FORMAT and isinstance(about.get("name"), str)
    if not fits or not isinstance(about.get("classes"), list) or not isinstance(about.get("training", {}), dict):
        raise WeightsError(f"{path / DESCRIPTION} does not have the format {FORMAT}.", again)
    if not is_slug(about["name"]):
        raise WeightsError(f"{path / DESCRIPTION}: name is {about['name']!r}, which is not a valid file name.", again)
    try:
        recipe = Recipe.from_dict(read_object(path / "recipe.json"), path / "recipe.json")
    except RecipeError as error:
        raise WeightsError(f"{path / 'recipe.json'} is not a recipe of features ({error}).", again) from error
    folder = WeightsFolder(path, recipe, about)
    for missing in (file for file in folder.files() if not file.is_file()):
        raise WeightsError(f"{missing} does not exist.", f"copy {shlex.quote(str(path))} again, or train it again.")
    return folder
