"""The published weight files: who made them, where their authors put them, and how to know them by their hash."""

import hashlib
import json
from dataclasses import dataclass, replace
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from lstr.errors import RecipeError, WeightsError
from lstr.extractors.networks.archive import Archive, is_member
from lstr.extractors.networks.network import TIMM
from lstr.files.content import built, read_object
from lstr.files.home import home
from lstr.files.names import is_slug, slug

PINS = "fetched.json"  # of the home folder: files whose hash was taken at their first fetch
HUB = "https://huggingface.co"
UNKNOWN = "unknown"  # a licence that timm does not state
MANIFEST = resources.files("lstr.extractors.networks") / "manifest.json"


@dataclass(frozen=True)
class Origin:
    """The file that weights are, or began with, and its licence; it goes on into whatever is trained from it."""

    file: str
    sha256: str
    licence: str | None = None
    """None where it is not known here."""
    dataset: str | None = None
    """What the file was trained on, where that is known."""
    address: str | None = None

    def __str__(self) -> str:
        trained = f", trained on {self.dataset}" if self.dataset else ""
        licence = f"licence {self.licence}" if self.licence else "of a licence not known here"
        return f"{self.file}{trained}, {licence}"


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
    mean: tuple[float, ...] | None = None
    """Mean of the pixels that it was trained on, of 0–1, where timm states it; the network's entry has it as well."""
    std: tuple[float, ...] | None = None
    side: int | None = None
    """Pixels of the images that it was trained on, where timm states it."""
    pinned: bool = False
    """Whether its SHA-256 is that of its first fetch to this machine, and nobody's word."""

    def is_called(self, name: str) -> bool:
        """Whether a file name, a recipe or, of timm, the network's name with the tag of weights means it."""
        return name in (self.name, self.recipe) or (self.network.startswith(TIMM) and name == self.network)

    def origin(self, sha256: str) -> Origin:
        """What is told of weights that began with this file, whose whole SHA-256 is given."""
        return Origin(self.name, sha256, self.licence, self.dataset, self.address)

    @property
    def place(self) -> Path:
        """Where it is on this machine, or would be."""
        top, _, rest = (self.package or "").partition("/")
        spec = find_spec(top) if top else None
        folders = (spec and spec.submodule_search_locations) or []
        return Path(folders[0], rest) if folders else home() / self.name


def read_manifest() -> list[PublishedFile]:
    """Every published file, those of the two published recipes first; last what was fetched that is not on the list.

    A hash that is not on the list is that of the first fetch, where there was one. Raises WeightsError for a name of no
    file, or where the record of fetched files cannot be read.
    """
    pins = read_pins()
    entries = [PublishedFile(**entry) for entry in json.loads(MANIFEST.read_text())["weights"]]
    listed = {entry.name for entry in entries}
    for at, entry in enumerate(entries):
        if entry.name in pins and not entry.sha256_prefix:
            entries[at] = replace(entry, sha256_prefix=pins[entry.name].sha256_prefix, pinned=True)
    entries += [pin for name, pin in pins.items() if name not in listed]
    for entry in entries:
        for part in (entry.name, entry.dataset):
            if not is_slug(part):
                raise WeightsError(f"{MANIFEST} names {part!r}, which is no file name.", "install lstr again.")
    return entries


def read_pins() -> dict[str, PublishedFile]:
    """The files of this machine whose SHA-256 was taken at their first fetch, by name. Raises WeightsError."""
    path = home() / PINS
    if not path.is_file():
        return {}
    try:
        entries = [built(PublishedFile, entry) for entry in (read_object(path) or {})["weights"]]
        if not all(entry.pinned and entry.sha256_prefix for entry in entries):
            raise ValueError("a hash is missing")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = f"remove {path}, and fetch its files again: their hashes are taken anew then."
        raise WeightsError(f"{path} cannot be read as the record of fetched weights ({error}).", hint) from error
    return {entry.name: entry for entry in entries}


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

    Of a network in a model file it is what that states. A file whose hash is pinned here alone is `custom` too: another
    machine would call it so.
    """
    if is_member(path):
        return Archive(Path(path).parent).weights_name(Path(path).name)
    entry = published_by_hash(sha256_of(path))
    return entry.dataset if entry and not entry.pinned else "custom"


def timm_file(name: str) -> PublishedFile:
    """The file of a network by timm's name; without the tag of weights, that of timm's choice. Nothing is asked.

    Raises RecipeError where timm is not installed or has no such network, WeightsError where it states no place of
    weights.
    """
    try:
        import timm
        from timm.models import get_pretrained_cfg
    except ImportError as error:
        raise RecipeError(f"timm is not installed ({error}).", 'pip install "lstr-video[timm]"') from error
    if not timm.is_model(name) or ":" in name:
        raise RecipeError(f"timm {timm.__version__} has no network {name!r}.", "see timm.list_models(pretrained=True).")
    about = get_pretrained_cfg(name, allow_unregistered=False)
    if about is None or not about.hf_hub_id or not about.tag:
        hint = "see timm.list_models(pretrained=True); a file of your own is given as --weights rgb=FILE."
        raise WeightsError(f"timm states no place of weights of {name}.", hint)
    full = f"{about.architecture}.{about.tag}"
    return PublishedFile(
        f"{full}.safetensors",
        "rgb",
        f"{TIMM}{full}",
        slug(about.tag, "timm"),
        f"{HUB}/{about.hf_hub_id}/resolve/main/{about.hf_hub_filename or 'model.safetensors'}",
        None,
        about.license or UNKNOWN,
        None,
        "not on the list; as timm states it",
        mean=tuple(about.mean),
        std=tuple(about.std),
        side=about.input_size[-1],
    )
