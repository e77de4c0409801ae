"""Which video a label file means by the name that it has for it."""

from collections.abc import Collection
from pathlib import PurePath

from lstr.extractors.video.inputs import VIDEO_SUFFIXES

# Folders in front of a video that may be part of its id.
DEEPEST = 8


def plain_id(name: str, present: Collection[str]) -> str:
    r"""The id of a video that is called `name`, without the ending of a video file, and without folders that none has.

    present: the ids at hand. Of a path of Windows the part after the last `\` is the id, unless its folders are
    at hand.
    """
    if name in present:
        return name
    plain = name.replace("\\", "/")
    suffix = PurePath(plain).suffix
    if suffix.lower() in VIDEO_SUFFIXES:
        if whole := _tail(plain, present):  # of two files that differ by their endings
            return whole
        plain = plain.removesuffix(suffix)
    return _tail(plain, present) or (plain.rpartition("/")[2] if "\\" in name else plain)


def _tail(path: str, present: Collection[str]) -> str:
    """The longest end of a path that is an id at hand; empty where none is."""
    parts = path.rsplit("/", DEEPEST)
    tails = ("/".join(parts[first:]) for first in range(len(parts)))
    return next((tail for tail in tails if tail in present), "")
