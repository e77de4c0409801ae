"""How checkpoints of published code are read: their tensors show the kind, get our names, and give the sizes."""

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
    """Reads checkpoints of the published code of a kind, which states in a subclass what differs."""

    config: WindowConfig
    """Settings of the published code, used where no tensor shows a setting."""
    marks: tuple[str, ...] = ()
    """Published or our names of tensors that show that a file is of this kind. Any of them is enough; names with spaces
    between belong together."""
    absent: tuple[str, ...] = ()
    """Names of tensors that a file of this kind never has."""
    names: Mapping[str, str] = {}
    """Published first part of the name of a tensor to ours, where they differ."""
    sizes: Mapping[str, tuple[str, int]] = {}
    """For a setting, the tensor (our name) and the axis that give it."""
    layers: Mapping[str, str] = {}
    """For a setting that counts layers, the prefix of their names."""
    needed: tuple[str, ...] = ()
    """Settings that the tensors must give."""
    unknown: tuple[str, ...] = ()
    """Settings that no tensor shows, and that change the scores."""

    def fits(self, tensors: Tables) -> bool:
        """Return whether tensors, of published names or of ours, are of this kind."""
        shown = any(set(mark.split()) <= tensors.keys() for mark in self.marks)
        return shown and not any(name in tensors for name in self.absent)

    def tables(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the tensors in what the published code saves, if it has a special form; None for other content."""
        return None

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        """Return the tensors under our names. Raises LookupError, RuntimeError or TypeError if one is missing."""
        return with_prefixes(tensors, self.names)

    def shapes(self, tensors: Tables) -> dict[str, int]:
        """Return d_model, input_dim, n_classes, `sizes` and `layers`, as far as there are tensors that show them."""
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
        for name, prefix in self.layers.items():
            numbers = {key.removeprefix(prefix).split(".")[0] for key in tensors if key.startswith(prefix)}
            found |= {name: len(numbers)} if numbers else {}
        return found

    def settings(self, found: Mapping[str, int], tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that follow from what `shapes` found; `changes` are those of the caller.

        Raises CheckpointError if features may be split in several ways.
        """
        known: dict[str, Any] = {name: value for name, value in found.items() if name not in ("n_classes", "input_dim")}
        input_dim = found["input_dim"]
        if "rgb_dim" in found:
            return known  # two branches show both widths
        if input_dim in INPUT_DIMS:
            known["rgb_dim"], known["flow_dim"] = INPUT_DIMS[input_dim]
        elif not {"rgb_dim", "flow_dim"} <= set(changes):
            raise CheckpointError(
                f"It takes features {input_dim} wide, which may be split in several ways.",
                "Add --set model.rgb_dim=… and --set model.flow_dim=…",
            )
        return known


def with_prefixes(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return tensors with the first part of their names replaced by `names`; the others keep theirs."""
    found = {}
    for name, tensor in tensors.items():
        first = next((prefix for prefix in names if name.startswith(prefix)), "")
        found[names.get(first, "") + name.removeprefix(first)] = tensor
    return found
