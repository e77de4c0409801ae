"""The published weight files: who made them, where their authors put them, and how to know them by their hash."""

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from lstr.extractors.errors import WeightsError
from lstr.extractors.home import home
from lstr.extractors.names import is_slug
from lstr.extractors.weights.archive import Archive, is_member

MANIFEST = resources.files("lstr.extractors.weights") / "manifest.json"


@dataclass(frozen=True)
class PublishedFile:
    """One entry of checkpoints/manifest.json."""

    name: str
    stream: str
    """`rgb` or `flow`."""
    network: str
    """Its name in NETWORKS."""
    dataset: str
    """What it was trained on; part of the name of the feature folder, as in `rgb_kinetics_resnet50`."""
    address: str
    sha256_prefix: str | None
    """First hex digits of the file's SHA-256; None where the authors published no hash."""
    licence: str | None
    """The licence of the repository that published it; None where none was found."""
    recipe: str | None
    """`kinetics` or `activitynet`: the published LSTR features it belongs to; `imagenet`: what comes with lstr."""
    note: str
    package: str | None = None
    """Where it is in an installed Python package, as `package/folder/file`; None where it has to be fetched."""

    @property
    def place(self) -> Path:
        """Where it is on this machine, or would be."""
        top, _, rest = (self.package or "").partition("/")
        spec = find_spec(top) if top else None
        folders = (spec and spec.submodule_search_locations) or []
        return Path(folders[0], rest) if folders else home() / self.name


def read_manifest() -> list[PublishedFile]:
    """Every published file, those of the two published recipes first. Raises WeightsError for a name of no file."""
    entries = [PublishedFile(**entry) for entry in json.loads(MANIFEST.read_text())["weights"]]
    for entry in entries:
        for part in (entry.name, entry.dataset):
            if not is_slug(part):
                raise WeightsError(f"{MANIFEST} names {part!r}, which is no file name.", "install lstr again.")
    return entries


def sha256_of(path: str | Path) -> str:
    """64 hex digits over the bytes of a file, or of a member of a model file, which states them."""
    if is_member(path):
        return Archive(Path(path).parent).sha256(Path(path).name)
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def published_by_hash(sha256: str) -> PublishedFile | None:
    """The published file of this SHA-256, whatever it is called now; None for any other."""
    return next((e for e in read_manifest() if e.sha256_prefix and sha256.startswith(e.sha256_prefix)), None)


def dataset_of(path: str | Path) -> str:
    """`kinetics` (or another published set) when the file's SHA-256 starts as in the manifest, else `custom`.

    Of a network in a model file it is what that states.
    """
    if is_member(path):
        return Archive(Path(path).parent).weights_name(Path(path).name)
    entry = published_by_hash(sha256_of(path))
    return entry.dataset if entry else "custom"
