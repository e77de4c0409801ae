"""The folder of what outlives a run: the default model, fetched weights, compiled kernels."""

import os
from pathlib import Path

import lstr.extractors

CHECKOUT = Path(lstr.extractors.__file__).parents[2]


def home() -> Path:
    """$LSTR_HOME, else this checkout's checkpoints/, else ~/.cache/lstr."""
    if os.environ.get("LSTR_HOME"):
        return Path(os.environ["LSTR_HOME"])
    if (CHECKOUT / "setup.cfg").exists():
        return CHECKOUT / "checkpoints"
    return Path.home() / ".cache" / "lstr"
