"""Kinds, networks, label formats and channels of other packages, by their entry points."""

from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from lstr.errors import LstrError


def find_others(group: str, ours: Collection[str]) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in alphabetical order, without names that lstr has itself."""
    found = sorted(entry_points(group=group), key=lambda place: place.name)
    return {place.name: place for place in found if place.name not in ours}


def load_other(
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
