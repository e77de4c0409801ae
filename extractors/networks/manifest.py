"""The list of published weights files: their authors, addresses and hashes."""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from lstr.errors import WeightsError
from lstr.extractors.networks.archive import DOCUMENT, FOREIGN, Archive, is_member
from lstr.extractors.networks.network import TIMM
from lstr.extractors.networks.weights_file import Origin, is_weights_folder, read_card, sha256_of
from lstr.files.content import read_object
from lstr.files.home import home
from lstr.files.names import is_slug, slug

MANIFEST = resources.files("lstr.extractors.networks") / "manifest.json"
PINS = "fetched.json"  # in the home folder: SHA-256 that files without a published hash had at their first download


@dataclass(frozen=True)
class PublishedFile:
    """One entry of manifest.json."""

    name: str
    stream: str  # `rgb` or `flow`
    network: str  # its name in NETWORKS, or `timm:NAME`
    dataset: str  # training data set; part of the name of the feature folder, as in `rgb_kinetics_resnet50`
    address: str
    sha256_prefix: str | None  # first hex digits of the file's SHA-256; None where the authors published no hash
    licence: str | None  # the licence of the repository that published it; None where none was found
    # `kinetics` or `activitynet`: the published LSTR features that used it; `imagenet`: weights that are installed with
    # lstr
    recipe: str | None
    note: str
    # location in an installed Python package, as `package/folder/file`; None if it has to be downloaded
    package: str | None = None
    pinned: bool = False  # whether its SHA-256 was recorded at its first download on this machine

    def is_called(self, name: str) -> bool:
        """Return whether a name refers to this file: a file name, a recipe, or a timm network's name with its tag."""
        return name in (self.name, self.recipe) or (self.network.startswith(TIMM) and name == self.network)

    def origin(self, sha256: str) -> Origin:
        """Return the origin of weights that were initialised from this file, which has this SHA-256."""
        return Origin(self.name, sha256, self.licence, self.dataset, self.address)

    @property
    def place(self) -> Path:
        """Return its path on this machine, also if it is not downloaded yet."""
        top, _, rest = (self.package or "").partition("/")
        spec = find_spec(top) if top else None
        folders = (spec and spec.submodule_search_locations) or []
        return Path(folders[0], rest) if folders else home() / self.name


def read_manifest() -> list[PublishedFile]:
    """Return all published files; the files of the two published recipes are first.

    A file without a published hash has the hash of its first download. Raises WeightsError for a damaged record
    of these.
    """
    pins = read_pins()
    entries = [PublishedFile(**entry) for entry in json.loads(MANIFEST.read_text())["weights"]]
    for at, entry in enumerate(entries):
        if entry.name in pins and not entry.sha256_prefix:
            entries[at] = replace(entry, sha256_prefix=pins[entry.name], pinned=True)
    return entries


def read_pins() -> dict[str, str]:
    """Return the SHA-256 values that were recorded at a first download, by file name. Raises WeightsError."""
    path = home() / PINS
    if not path.is_file():
        return {}
    try:
        pins = {entry["name"]: entry["sha256_prefix"] for entry in (read_object(path) or {})["weights"]}
        if not all(isinstance(pin, str) and pin for pin in pins.values()):
            raise ValueError("a hash is missing")
    except (KeyError, TypeError, ValueError) as error:
        hint = f"remove {path}, and fetch its files again."
        raise WeightsError(f"{path} cannot be read as the record of fetched weights ({error}).", hint) from error
    return pins


def published_by_hash(sha256: str) -> PublishedFile | None:
    """Return the published file with this SHA-256, independent of its current name; None for other files."""
    return next((e for e in read_manifest() if e.sha256_prefix and sha256.startswith(e.sha256_prefix)), None)


def published_as(name: str, folder: str | Path = ".") -> list[PublishedFile]:
    """Return the published files that a name refers to; empty if `folder` has a file or weights folder of that name.

    Any other folder of that name, such as a folder of images, does not count.
    """
    path = Path(folder, name)
    if is_weights_folder(path) or (path.exists() and not path.is_dir()):
        return []
    return [entry for entry in read_manifest() if entry.is_called(name)]


def dataset_of(path: str | Path) -> str:
    """Return the data set of a published file, such as `kinetics`, by its SHA-256; `custom` for other files.

    For a network in a model file, the model file has the answer. A file with a hash that only this machine recorded is
    `custom` too, so that the result is the same on all machines.
    """
    if is_member(path):
        stream, archive, found = Path(path).stem, Archive(Path(path).parent), "custom"
        with suppress(KeyError, TypeError):
            found = archive.document["networks"][stream]["weights"]
        if not is_slug(found):
            message = f"{DOCUMENT} in {archive.path} has weights named {found!r}, which is not a valid file name."
            raise WeightsError(message, FOREIGN)
        return found
    entry = published_by_hash(sha256_of(path))
    return entry.dataset if entry and not entry.pinned else "custom"


def origin_of(path: str | Path) -> Origin | None:
    """Return the origin of the weights in a file: the origin on its card, or the file itself without a card.

    Returns None for weights that were trained from random initial weights. Raises as `read_card`.
    """
    if card := read_card(path):
        return card.origin
    entry = published_by_hash(sha256 := sha256_of(path))
    return entry.origin(sha256) if entry else Origin(Path(path).name, sha256)


def fit_name(path: str | Path) -> str:
    """Return a name for the weights in a folder: a valid file name other than the names of data sets and recipes."""
    name = slug(Path(path).absolute().name, "weights")
    reserved = {"random", "custom", *(word for e in read_manifest() for word in (e.dataset, e.recipe) if word)}
    return f"{name}-finetuned" if name.lower() in reserved else name
