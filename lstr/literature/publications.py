"""What is known of each kind of model, and which presets are its own."""

from __future__ import annotations

from lstr.config import FOR_LITTLE_VIDEO, PRESETS, LSTRConfig
from lstr.literature.cited_peers import CITED_PEERS
from lstr.literature.publication import Publication
from lstr.literature.successors import SUCCESSORS

PUBLICATIONS: dict[str, Publication] = {**SUCCESSORS, **CITED_PEERS}
"""By the names of `lstr.config.KINDS`."""


def presets_of(kind: str) -> tuple[str, ...]:
    """The presets of a kind, the published size first and those for little video last."""
    return tuple(name for name, config in PRESETS.items() if config.kind == kind)


def published_preset(kind: str) -> str | None:
    """The preset that has the settings a kind was published with; None without one."""
    return next((name for name in presets_of(kind) if name not in FOR_LITTLE_VIDEO), None)


def published_size(kind: str) -> LSTRConfig:
    """The configuration that a kind was published with, the defaults where no preset has it."""
    name = published_preset(kind)
    return LSTRConfig(kind=kind) if name is None else PRESETS[name]
