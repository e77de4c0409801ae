"""The checkpoint that a detection uses, and what a reader of its scores must know."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from lstr.checkpoint import Checkpoint
from lstr.errors import CheckpointError
from pipelines.files.atomic import replacing
from pipelines.files.home import home
from pipelines.networks.checkpoint_recipe import recipe_of
from pipelines.networks.checkpoints import assumptions_of, open_checkpoint


def find_checkpoint(path: str | Path | None) -> Path:
    """`path`, else $LSTR_CHECKPOINT, else the default checkpoint.

    Raises CheckpointError when there is none.
    """
    if path:
        return Path(path)
    if os.environ.get("LSTR_CHECKPOINT"):
        return Path(os.environ["LSTR_CHECKPOINT"])
    default = home() / "default.pt"
    if not default.exists():
        raise CheckpointError(
            "There is no checkpoint to detect with.", "name one with -c PATH, or run `lstr demo` to make one."
        )
    return default


def leave_default(checkpoint: Path) -> Path:
    """Copy a checkpoint to where `lstr detect` looks when no other is named; returns that path."""
    target = home() / "default.pt"
    with replacing(target) as temporary:
        shutil.copyfile(checkpoint, temporary)
    return target


def load_checkpoint(
    path: str | Path | None, overrides: Mapping[str, str] | None = None, device: str | None = None
) -> Checkpoint:
    """The checkpoint to use, its model on `device` (a GPU when there is one).

    Raises CheckpointError when there is none, or it cannot be read.
    """
    return open_checkpoint(find_checkpoint(path), overrides, device)


def warnings_of(loaded: Checkpoint) -> list[str]:
    """What a reader of the scores must know."""
    warnings = [*assumptions_of(loaded)]
    recipe = recipe_of(loaded)
    if recipe and recipe.is_random:
        warnings.append(f"the {recipe.random_streams} networks carry random weights: the features are untrained.")
    return warnings
