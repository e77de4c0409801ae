"""The home folder (default model, downloaded weights, kernels), and plugins of other packages."""

import os
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from lstr.errors import LstrError

# Names of the default model in the home folder: a model file, or a checkpoint.
DEFAULTS = ("default.lstr", "default.pt")
CHECKOUT = Path(__file__).parents[2]


def home() -> Path:
    """Return the home folder: $LSTR_HOME, else checkpoints/ of this checkout, else ~/.cache/lstr."""
    if os.environ.get("LSTR_HOME"):
        return Path(os.environ["LSTR_HOME"])
    if (CHECKOUT / "setup.cfg").exists():
        return CHECKOUT / "checkpoints"
    return Path.home() / ".cache" / "lstr"


def default_model() -> Path | None:
    """Return the path of the default model of `lstr detect`; None if no default was set."""
    return next((path for name in DEFAULTS if (path := home() / name).is_file()), None)


def find_added(group: str, ours: Collection[str]) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in alphabetical order, without the names that lstr defines."""
    found = sorted(entry_points(group=group), key=lambda place: place.name)
    return {place.name: place for place in found if place.name not in ours}


def load_added(
    place: EntryPoint, what: str, make: Callable[[Any], Any], expected: str, error_type: type[LstrError]
) -> Any:
    """Import the object of another package's entry point.

    Args:
        place: The entry point.
        what: The type of plugin, for messages: `kind`, `network`.
        make: Converts the imported object; returns None if it is not valid.
        expected: Description of a valid object, for the hint.
        error_type: Raised if the import fails or the object is not valid.
    """
    try:
        found = make(place.load())
    except Exception as error:  # code of other packages can raise any type
        raise error_type(
            f"The {what} {place.name} of another package cannot be imported ({place.value}: {error}).",
            "reinstall that package, or remove it.",
        ) from error
    if found is None:
        raise error_type(
            f"The {what} {place.name} of another package is not valid ({place.value}).", f"make it {expected}."
        )
    return found
