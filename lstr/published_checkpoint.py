"""Checkpoints of published code: of which kind they are, and what their tensors are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lstr.config import WindowConfig
from lstr.errors import CheckpointError, ConfigError, LstrError
from lstr.kinds import change, kind_named, usable
from lstr.labels.label_set import BACKGROUND, THUMOS_CLASSES
from lstr.models.published import Published

# The kind that a file is taken for where its tensors fit this one and another, or none.
FIRST = "lstr"


@dataclass(frozen=True)
class Reading:
    """What a published checkpoint is taken for."""

    fitting: list[str]
    """The kinds that its tensors fit, where nobody named one"""
    tensors: dict[str, Tensor]
    """Under our names"""
    config: WindowConfig
    assumed: dict[str, Any]
    """Settings that neither the file nor the caller tells, and that make a difference"""


def tables_of(content: Any) -> Any:
    """The one table of tensors in what published code saves, else `content`.

    OadTR's and GateHUB's code save it as `model`; others save it bare, or as their kind says.
    """
    if not isinstance(content, dict):
        return content
    if isinstance(content.get("model"), dict):
        return content["model"]
    if all(isinstance(tensor, Tensor) for tensor in content.values()):
        return content
    found = (published.tables(content) for published in _published().values())
    return next((tables for tables in found if tables is not None), content)


def read_published(path: Path, tensors: Mapping[str, Tensor], changes: Mapping[str, Any]) -> Reading:
    """What published tensors are taken for, with the settings that somebody names. Raises CheckpointError, ConfigError.

    The kind is the one that is named, else the one that the tensors fit; where they fit several, `FIRST`, which is then
    among what is assumed.
    """
    if all(name.startswith("module.") for name in tensors):  # of training on several GPUs
        tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    named, fitting = changes.get("kind"), [name for name, published in _published().items() if published.fits(tensors)]
    if not named and len(fitting) > 1 and FIRST not in fitting:
        raise CheckpointError(f"{path} fits kinds {' and '.join(fitting)}.", f"Add --set model.kind={fitting[0]}")
    kind = named or (fitting[0] if len(fitting) == 1 else FIRST)
    published = kind_named(kind).published or _published()[FIRST]
    try:
        renamed = published.renamed(tensors)
        config = _config(path, published, renamed, changes)
    except (LookupError, RuntimeError, TypeError) as error:
        missing = f"{path}: a published tensor is missing, or has another shape ({error})."
        raise taken_for(CheckpointError(missing, "Fetch or copy the file again."), kind, fitting, named) from error
    except LstrError as error:
        raise taken_for(error, kind, fitting, named) from error
    assumed = {name: getattr(config, name) for name in published.unknown if name not in changes}
    if not named and len(fitting) > 1:
        assumed = {"kind": kind, **assumed}
    return Reading([] if named else fitting, renamed, config, assumed)


def taken_for(error: LstrError, kind: str, fitting: Sequence[str] = (), named: Any = None) -> LstrError:
    """The same error, which says what kind a file was taken for, and how to name another that it may be."""
    others = [] if named else [name for name in fitting if name != kind]
    hint = f"{error.hint} It was taken for kind {kind}"
    hint += f"; if it is of kind {' or '.join(others)}, add --set model.kind={others[0]}" if others else "."
    return type(error)(str(error), hint)


def _published() -> dict[str, Published]:
    """By kind, of all that have published code."""
    return {name: kind.published for name, kind in usable().items() if kind.published is not None}


def _config(
    path: Path, published: Published, tensors: Mapping[str, Tensor], changes: Mapping[str, Any]
) -> WindowConfig:
    """The configuration that shapes and changes give."""
    found = published.shapes(tensors)
    missing = [name for name in ("d_model", "input_dim", *published.needed) if name not in found]
    if missing:
        raise CheckpointError(
            f"{path} lacks the tensors that give {', '.join(missing)}.", "Give a checkpoint of the LSTR architecture."
        )
    try:
        return change(published.config, {**published.settings(found, tensors, changes), **changes})
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}", error.hint) from error
    except ConfigError as error:
        hint = error.hint
        if "n_heads" in str(error):  # any divisor would load, and all but one score otherwise
            hint = "Add --set model.n_heads=… with the heads that it was trained with: no tensor tells them."
        raise ConfigError(f"{path}: {error}", hint) from error


def published_classes(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The names of the classes, by how many they are."""
    n_classes = len(tensors["classifier.weight"])
    if n_classes == len(THUMOS_CLASSES):
        return THUMOS_CLASSES
    # Column 0 is background in every published data set.
    return (BACKGROUND, *(f"class_{index}" for index in range(1, n_classes)))
