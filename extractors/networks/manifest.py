"""The list of published weights files: who made them, where they are, and how to know them by their hash."""

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
PINS = "fetched.json"  # in the home folder: SHA-256 of the first fetch of files without a published hash


@dataclass(frozen=True)
class PublishedFile:
    """One entry of manifest.json."""

    name: str
    # `rgb` or `flow`
    stream: str
    # its name in NETWORKS, or `timm:NAME`
    network: str
    # what it was trained on; part of the name of the feature folder, as in `rgb_kinetics_resnet50`
    dataset: str
    address: str
    # first hex digits of the file's SHA-256; None where the authors published no hash
    sha256_prefix: str | None
    # the licence of the repository that published it; None where none was found
    licence: str | None
    # `kinetics` or `activitynet`: the published LSTR features it belongs to; `imagenet`: what comes with lstr
    recipe: str | None
    note: str
    # where it is in an installed Python package, as `package/folder/file`; None where it has to be fetched
    package: str | None = None
    # whether its SHA-256 was taken at its first fetch to this machine
    pinned: bool = False

    def is_called(self, name: str) -> bool:
        """Return whether a file name, a recipe or, of timm, the network's name with its tag means this file."""
        return name in (self.name, self.recipe) or (self.network.startswith(TIMM) and name == self.network)

    def origin(self, sha256: str) -> Origin:
        """Return the origin of weights that began with this file, whose whole SHA-256 is given."""
        return Origin(self.name, sha256, self.licence, self.dataset, self.address)

    @property
    def place(self) -> Path:
        """Where it is on this machine, or would be."""
        top, _, rest = (self.package or "").partition("/")
        spec = find_spec(top) if top else None
        folders = (spec and spec.submodule_search_locations) or []
        return Path(folders[0], rest) if folders else home() / self.name


def read_manifest() -> list[PublishedFile]:
    """Return every published file, those of the two published recipes first.

    A file without a published hash has that of its first fetch. Raises WeightsError for a damaged list or record.
    """
    pins = read_pins()
    entries = [PublishedFile(**entry) for entry in json.loads(MANIFEST.read_text())["weights"]]
    for at, entry in enumerate(entries):
        if entry.name in pins and not entry.sha256_prefix:
            entries[at] = replace(entry, sha256_prefix=pins[entry.name], pinned=True)
        # both become parts of paths
        for part in (entry.name, entry.dataset):
            if not is_slug(part):
                raise WeightsError(f"{MANIFEST} names {part!r}, which is not a valid file name.", "install lstr again.")
    return entries


def read_pins() -> dict[str, str]:
    """Return the SHA-256 of files whose first fetch took it, by name. Raises WeightsError."""
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
    """Return the published file of this SHA-256, whatever it is called now; None for any other."""
    return next((e for e in read_manifest() if e.sha256_prefix and sha256.startswith(e.sha256_prefix)), None)


def published_as(name: str, folder: str | Path = ".") -> list[PublishedFile]:
    """Return the published files that a name means; none where a file or weights folder in `folder` has that name.

    Any other folder of that name, such as one of images, does not count.
    """
    path = Path(folder, name)
    if is_weights_folder(path) or (path.exists() and not path.is_dir()):
        return []
    return [entry for entry in read_manifest() if entry.is_called(name)]


def dataset_of(path: str | Path) -> str:
    """Return `kinetics` (or another data set) for a published file, by its SHA-256, else `custom`.

    A network in a model file states it. A file whose hash is pinned on this machine is `custom` too, because another
    machine would call it so.
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
    """Return what the weights in a file began with: as its card says, else the file itself.

    None for weights that were trained here from random ones. Raises as `read_card`.
    """
    if card := read_card(path):
        return card.origin
    entry = published_by_hash(sha256 := sha256_of(path))
    return entry.origin(sha256) if entry else Origin(Path(path).name, sha256)


def fit_name(path: str | Path) -> str:
    """Return the name of a folder as the name of its weights: a valid file name that does not mean other weights."""
    name = slug(Path(path).absolute().name, "weights")
    reserved = {"random", "custom", *(word for e in read_manifest() for word in (e.dataset, e.recipe) if word)}
    return f"{name}-finetuned" if name.lower() in reserved else name
