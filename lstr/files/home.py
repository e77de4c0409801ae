"""The home folder of lstr: the default model, fetched weights, compiled kernels."""

import os
from pathlib import Path

# Names of the default model there: a model file, or a checkpoint.
DEFAULTS = ("default.lstr", "default.pt")
CHECKOUT = Path(__file__).parents[2]


def home() -> Path:
    """Return $LSTR_HOME, else this checkout's checkpoints/, else ~/.cache/lstr."""
    if os.environ.get("LSTR_HOME"):
        return Path(os.environ["LSTR_HOME"])
    if (CHECKOUT / "setup.cfg").exists():
        return CHECKOUT / "checkpoints"
    return Path.home() / ".cache" / "lstr"


def default_model() -> Path | None:
    """Return the model that `lstr detect` uses by default; None where no model was made the default."""
    return next((path for name in DEFAULTS if (path := home() / name).is_file()), None)
