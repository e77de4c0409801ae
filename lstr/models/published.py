"""What is published of kinds: their papers and results, and how checkpoints of their code are read."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from lstr.config import WindowConfig
from lstr.errors import CheckpointError

# By kind; every kind reads its own when it is imported.
PUBLICATIONS = tomllib.loads(Path(__file__).with_name("publications.toml").read_text(encoding="utf-8"))
# rgb and flow widths by their sum, for published checkpoints, which hold only the sum.
INPUT_DIMS = {3072: (2048, 1024), 4096: (2048, 2048), 2048: (2048, 0), 1024: (0, 1024)}
Tables = Mapping[str, Tensor]
PARTS = ("query_projection", "key_projection", "value_projection")


@dataclass(frozen=True)
class Result:
    """A published number, in percent."""

    of: str  # data set and metric
    value: float
    features: str
    seen: str  # where it was read
    presets: tuple[str, ...] = ()
    """Presets with the settings of this result, as far as known; presets of the published code come first."""


@dataclass(frozen=True)
class Publication:
    """A kind of model in the literature."""

    name: str  # the name in its paper
    paper: str  # title, authors, venue and year
    address: str  # address of the paper; empty if not looked up
    code: str  # the published code that was read, with its revision; empty if none was found
    licence: str  # licence of the published code. Nothing of that code is part of this package.
    note: str  # how exact this implementation is
    golden: tuple[str, ...] = ()  # data made by the published code, which tests compare with
    results: tuple[Result, ...] = ()
    differs: tuple[str, ...] = ()
    """Differences between training with its presets and the published training, a clause each."""


def read_publication(kind: str) -> Publication:
    """Return the publication of a kind of this package, by its name."""
    return msgspec.convert({"address": "", "code": "", **PUBLICATIONS[kind]}, Publication)


class Published:
    """Reads checkpoints of the published code of a kind, which states in a subclass what differs."""

    config: WindowConfig  # settings of the published code, used where no tensor shows a setting
    marks: tuple[str, ...] = ()
    """Published or our names of tensors that show that a file is of this kind. Any of them is enough; names with spaces
    between belong together."""
    absent: tuple[str, ...] = ()  # names of tensors that a file of this kind never has
    names: Mapping[str, str] = {}  # published first part of the name of a tensor to ours, where they differ
    sizes: Mapping[str, tuple[str, int]] = {}  # for a setting, the tensor (our name) and the axis that give it
    layers: Mapping[str, str] = {}  # for a setting that counts layers, the prefix of their names
    optional: tuple[str, ...] = ()  # of those, which no tensor has to show
    unknown: tuple[str, ...] = ()  # settings that no tensor shows, and that change the scores

    def fits(self, tensors: Tables) -> bool:
        """Return whether tensors, of published names or of ours, are of this kind."""
        shown = any(set(mark.split()) <= tensors.keys() for mark in self.marks)
        return shown and not any(name in tensors for name in self.absent)

    def tables(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the tensors in a file of the published code, if it has a special form; None for other content."""
        return None

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        """Return the tensors under our names. Raises LookupError, RuntimeError or TypeError if one is missing."""
        return with_prefixes(tensors, self.names)

    def shapes(self, tensors: Tables) -> dict[str, int]:
        """Return d_model, input_dim, `sizes` and `layers`, as far as there are tensors of our names that show them."""
        has_branches = "rgb_dim" in self.sizes  # the first layer of each feature shows its width
        first = {} if has_branches else {"input_dim": ("feature_head_work.input_linear.0.weight", 1)}
        sizes = {"d_model": ("classifier.weight", 1), **first, **self.sizes}
        found = {
            name: tensors[key].shape[axis]
            for name, (key, axis) in sizes.items()
            if key in tensors and tensors[key].ndim > axis
        }
        for name, prefix in self.layers.items():
            numbers = {key.removeprefix(prefix).split(".")[0] for key in tensors if key.startswith(prefix)}
            found |= {name: len(numbers)} if numbers else {}
        return found

    def settings(self, tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that tensors of our names show; `changes` come from the caller.

        Raises CheckpointError if one is missing, or features may be split in several ways.
        """
        known: dict[str, Any] = self.shapes(tensors)
        names = dict.fromkeys(("d_model", "input_dim", *self.sizes, *self.layers))
        if missing := [name for name in names if name not in known and name not in self.optional]:
            message = f"The tensors that define {', '.join(missing)} are missing."
            raise CheckpointError(message, "use a checkpoint of the LSTR architecture.")
        input_dim = known.pop("input_dim", 0)
        if "rgb_dim" in self.sizes:  # a branch for each feature, or none for one that the model does not take
            return {"rgb_dim": 0, "flow_dim": 0, **known}
        if input_dim in INPUT_DIMS:
            known["rgb_dim"], known["flow_dim"] = INPUT_DIMS[input_dim]
        elif not {"rgb_dim", "flow_dim"} <= set(changes):
            message = f"The model takes {input_dim} features, and the widths of rgb and flow are unknown."
            raise CheckpointError(message, "add --set model.rgb_dim=… and --set model.flow_dim=…")
        return known


def with_prefixes(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return tensors with the first part of their names replaced by `names`; the others keep theirs."""
    found = {}
    for name, tensor in tensors.items():
        first = next((prefix for prefix in names if name.startswith(prefix)), "")
        found[names.get(first, "") + name.removeprefix(first)] = tensor
    return found


def packed_blocks(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return published tensors of blocks under the names of `CausalBlock`, without tables of row numbers.

    Queries, keys and values become one projection, convolutions over one place linear layers. A block with one
    attention calls it `attention`, whether it looks at itself or at others.
    """
    blocks = {name.split(".cross_attention.")[0] for name in tensors if ".cross_attention." in name}
    found, parts = {}, dict[str, dict[str, Tensor]]()
    for name, tensor in tensors.items():
        if name.endswith(".position_ids"):
            continue
        block, _, rest = name.partition(".self_attention.")
        if rest:
            name = f"{block}.{'self_attn' if block in blocks else 'attention'}.{rest}"
        name = name.replace(".cross_attention.", ".attention.").replace(".out_projection.", ".out_proj.")
        for ours, theirs in (("linear1", "conv1"), ("linear2", "conv2")):
            if f".{theirs}." in name:
                name = name.replace(f".{theirs}.", f".{ours}.")
                tensor = tensor[..., 0] if tensor.ndim == 3 else tensor
        attention, _, projection = name.rpartition(".attention." if ".attention." in name else ".self_attn.")
        part, _, what = projection.partition(".")
        if part in PARTS:
            kept = name.removesuffix(projection) + f"in_proj_{what}"
            parts.setdefault(kept, {})[part] = tensor
        else:
            found[name] = tensor
    for name, three in parts.items():
        if set(three) == set(PARTS):  # otherwise loading the model reports the missing tensor
            found[name] = torch.cat([three[part] for part in PARTS])
    return found
