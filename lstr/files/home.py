"""This installation: the home folder (default model, fetched weights, kernels), and entry points of other packages."""

import os
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from lstr.errors import LstrError

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


def find_added(group: str, ours: Collection[str]) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in alphabetical order, without names that lstr has itself."""
    found = sorted(entry_points(group=group), key=lambda place: place.name)
    return {place.name: place for place in found if place.name not in ours}


def load_added(
    place: EntryPoint, what: str, make: Callable[[Any], Any], expected: str, error_type: type[LstrError]
) -> Any:
    """Import what an entry point of another package names.

    Args:
        place: The entry point.
        what: What it is, for messages: `kind`, `network`.
        make: Returns the object to use from the imported one, or None if that is not valid.
        expected: What the imported object has to be, for the hint.
        error_type: Raised if the import fails or the object is not valid.
    """
    try:
        found = make(place.load())
    except Exception as error:  # the code of another package can raise anything
        raise error_type(
            f"The {what} {place.name} of another package cannot be imported ({place.value}: {error}).",
            "reinstall that package, or remove it.",
        ) from error
    if found is None:
        raise error_type(
            f"The {what} {place.name} of another package is not valid ({place.value}).", f"make it {expected}."
        )
    return found
