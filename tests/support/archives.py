"""Model files with changed content."""

from collections.abc import Callable
from pathlib import Path

from lstr.extractors.networks.archive import CARD, DOCUMENT, Archive, write_archive


def rewrite_model(source: Path, target: Path, change: Callable[[dict, dict], object]) -> Path:
    """Write a copy of a model file after `change(document, members)`, the content of model.json and the other files."""
    archive = Archive(source)
    members = {name: archive.read(name) for name in archive.sizes if name not in (DOCUMENT, CARD)}
    document = {name: value for name, value in archive.document.items() if name not in ("format", "members")}
    change(document, members)
    write_archive(target, document, "", members)
    return target
