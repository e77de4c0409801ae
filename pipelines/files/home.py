"""The default model in the folder of what outlives a run."""

from pathlib import Path

from lstr.extractors.home import home

__all__ = ["DEFAULTS", "default_model", "home"]

DEFAULTS = ("default.lstr", "default.pt")
"""Names of the default model there: a model file, or a checkpoint."""


def default_model() -> Path | None:
    """The model that `lstr detect` uses when no other is named; None where none was made the default."""
    return next((path for name in DEFAULTS if (path := home() / name).is_file()), None)
