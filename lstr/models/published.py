"""How checkpoints of a kind's published code are read: known by their tensors, renamed, and sized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lstr.config import WindowConfig
from lstr.errors import CheckpointError

# rgb and flow widths by their sum, for published checkpoints, which hold only the sum.
INPUT_DIMS = {3072: (2048, 1024), 4096: (2048, 2048), 2048: (2048, 0), 1024: (0, 1024)}
Tables = Mapping[str, Tensor]


class Published:
    """What is so of many kinds; a kind states what differs in a subclass, and a value of it."""

    config: WindowConfig
    """The settings of the published code: what no tensor tells is as here."""
    marks: tuple[str, ...] = ()
    """Tensors, by their published names or by ours, that show that a file is of this kind: any of these, or all of some
    with spaces between."""
    absent: tuple[str, ...] = ()
    """Tensors that a file of this kind never has."""
    names: Mapping[str, str] = {}
    """First part of a published tensor's name to ours, where they differ."""
    sizes: Mapping[str, tuple[str, int]] = {}
    """By a setting, the tensor of our names and its axis that give it."""
    layers: Mapping[str, str] = {}
    """By a setting, the beginning of the names of the layers that it counts."""
    needed: tuple[str, ...] = ()
    """Settings without whose tensors nothing can be made of a file."""
    unknown: tuple[str, ...] = ()
    """Settings that no tensor tells, and that make a difference."""

    def fits(self, tensors: Tables) -> bool:
        """Return whether tensors, of published names or of ours, are of this kind."""
        shown = any(set(mark.split()) <= tensors.keys() for mark in self.marks)
        return shown and not any(name in tensors for name in self.absent)

    def tables(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """The tensors in what the published code saves, where it has a form of its own; None in all other content."""
        return None

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        """Published tensors under our names. Raises LookupError, RuntimeError or TypeError where they are not whole."""
        return with_prefixes(tensors, self.names)

    def shapes(self, tensors: Tables) -> dict[str, int]:
        """What shapes tell: d_model, input_dim, n_classes, `sizes` and `layers`, as far as their tensors exist."""
        sizes = {
            "n_classes": ("classifier.weight", 0),
            "d_model": ("classifier.weight", 1),
            "input_dim": ("feature_head_work.input_linear.0.weight", 1),
            **self.sizes,
        }
        found = {
            name: tensors[key].shape[axis]
            for name, (key, axis) in sizes.items()
            if key in tensors and tensors[key].ndim > axis
        }
        counted = {name: count_layers(tensors, prefix) for name, prefix in self.layers.items()}
        return found | {name: count for name, count in counted.items() if count}

    def settings(self, found: Mapping[str, int], tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that follow from what `shapes` found; `changes` are those that somebody names.

        Raises CheckpointError where features may be split in many ways.
        """
        known: dict[str, Any] = {name: value for name, value in found.items() if name not in ("n_classes", "input_dim")}
        input_dim = found["input_dim"]
        if "rgb_dim" in found:
            return known  # as two branches tell
        if input_dim in INPUT_DIMS:
            known["rgb_dim"], known["flow_dim"] = INPUT_DIMS[input_dim]
        elif not {"rgb_dim", "flow_dim"} <= set(changes):
            raise CheckpointError(
                f"It takes features {input_dim} wide, which may be split in many ways.",
                "Add --set model.rgb_dim=… and --set model.flow_dim=…",
            )
        return known


def with_prefixes(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Tensors whose names begin otherwise: by `names`, first part to first part; the others keep theirs."""
    found = {}
    for name, tensor in tensors.items():
        first = next((prefix for prefix in names if name.startswith(prefix)), "")
        found[names.get(first, "") + name.removeprefix(first)] = tensor
    return found


def count_layers(tensors: Tables, prefix: str) -> int:
    """Return how many numbered parts there are whose names begin so."""
    return len({key.removeprefix(prefix).split(".")[0] for key in tensors if key.startswith(prefix)})
