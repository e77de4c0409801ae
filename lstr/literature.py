"""What is known of each kind of model, and which presets are its own."""

from __future__ import annotations

from lstr.cited_peers import CITED_PEERS
from lstr.config import PRESETS, LSTRConfig
from lstr.publication import Publication
from lstr.successors import SUCCESSORS

PUBLICATIONS: dict[str, Publication] = {**SUCCESSORS, **CITED_PEERS}
"""By the names of `lstr.config.KINDS`."""


def presets_of(kind: str) -> tuple[str, ...]:
    """The presets of a kind, the published size first."""
    return tuple(name for name, config in PRESETS.items() if config.kind == kind)


def published_size(kind: str) -> LSTRConfig:
    """The configuration that a kind was published with: its first preset, or the defaults where it has none."""
    return next((config for config in PRESETS.values() if config.kind == kind), LSTRConfig(kind=kind))
