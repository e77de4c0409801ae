"""The folder of what outlives a run: the default model, fetched weights, compiled kernels."""

import os
from pathlib import Path

import lstr.extractors

DEFAULTS = ("default.lstr", "default.pt")
"""Names of the default model there: a model file, or a checkpoint."""
CHECKOUT = Path(lstr.extractors.__file__).parents[2]


def home() -> Path:
    """$LSTR_HOME, else this checkout's checkpoints/, else ~/.cache/lstr."""
    if os.environ.get("LSTR_HOME"):
        return Path(os.environ["LSTR_HOME"])
    if (CHECKOUT / "setup.cfg").exists():
        return CHECKOUT / "checkpoints"
    return Path.home() / ".cache" / "lstr"


def default_model() -> Path | None:
    """The model that `lstr detect` uses when no other is named; None where none was made the default."""
    return next((path for name in DEFAULTS if (path := home() / name).is_file()), None)
