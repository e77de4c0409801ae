"""Vectors of the classes' texts for training: from a file that has them, or from a CLIP, by TOAD's prompts."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.errors import ConfigError, few
from lstr.extractors.backbones.network import CLIP
from lstr.extractors.errors import MissingPathError, WeightsError
from lstr.extractors.recipe import Recipe
from lstr.labels.label_set import AMBIGUOUS
from lstr.pipelines.weights.published import find_weights

NOW = "a video of a person {}."
NEXT = "a video of a person {} in the future."
"""What is said of a class, by its name in small letters"""


def read_texts(path: str, classes: Sequence[str], recipe: Recipe | None) -> tuple[Tensor, Tensor]:
    """Vectors (C, D) of the classes' texts, of the newest chunk and of the next; zeros for an ambiguous class.

    path: a .npz with `classes`, `now` and `next`, a .safetensors with `now` and `next` and with `classes` as JSON in
    its metadata, or the file of a CLIP with both encoders, whose name the recipe of the features has; `next` may be
    missing. Raises MissingPathError, WeightsError, and ConfigError where a class has no text, or no CLIP is named.
    """
    path = find_weights(path, "rgb")
    if not Path(path).is_file():
        raise MissingPathError(f"{path} is not a file.", "check the path of the texts.")
    found = _vectors_in(path)
    return _by_class(*found, classes, path) if found else _encoded(path, classes, recipe)


def _vectors_in(path: str) -> tuple[list[str], Mapping[str, NDArray[Any]]] | None:
    """Names of classes and the arrays of a file of vectors; None for another file."""
    try:
        if path.endswith(".npz"):
            with np.load(path, allow_pickle=False) as file:
                return [str(name) for name in file["classes"]], {name: file[name] for name in file.files}
        if path.endswith(".safetensors"):
            from safetensors import safe_open

            with safe_open(path, "numpy") as file:
                names = set(file.keys())
                if "now" not in names:
                    return None
                classes = json.loads((file.metadata() or {})["classes"])
                return [str(name) for name in classes], {name: file.get_tensor(name) for name in names}
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise WeightsError(
            f"{path} holds no vectors of texts ({error}).", "write classes, now and next into it, as the manual says."
        ) from error
    return None


def _by_class(
    names: list[str], arrays: Mapping[str, NDArray[Any]], classes: Sequence[str], path: str
) -> tuple[Tensor, Tensor]:
    if missing := [name for name in classes if name not in names and name != AMBIGUOUS]:
        raise ConfigError(f"{path} has no text of {few(missing)}.", f"It has {few(names)}.")
    now = arrays.get("now")
    after = arrays.get("next", now)
    if now is None or after is None or now.ndim != 2 or len(now) != len(names) or now.shape != after.shape:
        raise WeightsError(f"{path} has not one vector a class.", "write now and next as arrays (classes, width).")
    rows = [names.index(name) if name in names else -1 for name in classes]
    return _vectors(now, rows), _vectors(after, rows)


def _vectors(rows: NDArray[Any], which: Sequence[int]) -> Tensor:
    """Rows (C, D) by their places; zeros where that is -1."""
    padded = np.concatenate([rows, np.zeros_like(rows[:1])]).astype(np.float32)
    return torch.from_numpy(padded[list(which)])


def _encoded(path: str, classes: Sequence[str], recipe: Recipe | None) -> tuple[Tensor, Tensor]:
    networks = [part.network for part in recipe.parts.values()] if recipe else []
    name = next((network for network in networks if network.startswith(CLIP)), None)
    if name is None:
        raise ConfigError(
            f"{path} is no file of text vectors, and the features are of no CLIP whose texts it could have.",
            "Give a .npz with classes, now and next, or features of a clip:NAME network.",
        )
    from lstr.extractors.networks.clip_texts import encode_texts

    said = [label for label in classes if label != AMBIGUOUS]
    now, after = (encode_texts(name, path, [prompt.format(label.lower()) for label in said]) for prompt in (NOW, NEXT))
    return _by_class(said, {"now": now, "next": after}, classes, path)
