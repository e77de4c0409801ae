"""Weights files: their paths, their content, read without executing code, and the model card with the training videos.

Torch is needed only for tensors; a model file is read without it.
"""

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lstr.errors import MissingPathError, WeightsError
from lstr.extractors.networks.archive import TENSORS, Archive, is_archive, is_member, member_path
from lstr.extractors.networks.network import PUBLISHED_HEADS
from lstr.files.content import Number, built
from lstr.files.names import is_slug

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "finetune.json"  # of a weights folder, written last
FORMAT = "lstr-weights/1"
ENTRY = "lstr"  # the card's entry in a weights file, next to its state_dict
WRAPPERS = ("state_dict", "model_state_dict", "model")
PREFIXES = ("module.", "base_model.", "backbone.", "flow.", "rgb.")  # of tensor names in published files
CLASSIFIERS = re.compile(rf"^({PUBLISHED_HEADS})\.")
# Endings of names of tensors that have floating-point values in every network.
LEARNED = ("weight", "bias", "running_mean", "running_var")
PLAIN = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
SAVE_HINT = "save only its state_dict with torch.save, its weights as float32."


@dataclass(frozen=True)
class WeightSources:
    """The sources of the networks' weights."""

    # a weights file, a weights folder or a model file by stream; None for seeded random weights
    files: Mapping[str, str | None] = field(default_factory=dict)
    # stored batch-norm statistics by stream, for random weights
    calibration: "Mapping[str, Mapping[str, Tensor]]" = field(default_factory=dict)
    calibrated_on: tuple[str, ...] = ()
    # reads the graph of a stream's network, for an exported model
    graphs: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)


def is_weights_folder(path: str | Path) -> bool:
    """Return whether a folder is a finished weights folder of `lstr finetune`."""
    return (Path(path) / DESCRIPTION).is_file()


def file_name(stream: str, fold: int | None = None) -> str:
    """Return the name of a network's file in a weights folder."""
    return f"fold_{fold}/{stream}.pth" if fold else f"{stream}.pth"


def network_file(source: str | Path, stream: str, fold: int | None = None) -> Path:
    """Return the path of a stream's weights in a weights folder or a model file; any other path is returned unchanged.

    Only a weights folder has folds.
    """
    source = Path(source)
    if is_archive(source):
        return member_path(source, stream)
    return source / file_name(stream, fold) if source.is_dir() else source


def network_files(source: str | Path, stream: str) -> dict[str, Path]:
    """Return a stream's weights file and the files of its folds, by their names in a weights folder."""
    files, fold = {file_name(stream): network_file(source, stream)}, 1
    while Path(source).is_dir() and (path := network_file(source, stream, fold)).is_file():
        files[file_name(stream, fold)] = path
        fold += 1
    return files


@dataclass(frozen=True)
class Origin:
    """The file that weights were first loaded from, and its licence; networks trained from them keep this record."""

    file: str
    sha256: str
    licence: str | None = None  # none if it is unknown
    dataset: str | None = None  # training data set of the file; None if it is unknown
    address: str | None = None

    def __str__(self) -> str:
        trained = f", trained on {self.dataset}" if self.dataset else ""
        licence = f"licence {self.licence}" if self.licence else "unknown licence"
        return f"{self.file}{trained}, {licence}"


@dataclass(frozen=True)
class ModelCard:
    """The metadata inside a weights file, as JSON, so that copies of the file keep it."""

    name: str  # name of the weights folder, and of the feature directories
    stream: str
    network: str  # its name in NETWORKS
    classes: tuple[str, ...]
    # SHA-256 by id of each video that it was trained on, that chose its epoch, or that its initial weights were trained
    # on
    seen: Mapping[str, str]
    mAP: Number | None = None  # mAP on the videos that chose its epoch
    fold: int | None = None  # the fold it was not trained on, from 1; None for the network of all training videos
    # its initial weights; None for random weights, and for files from before this entry existed
    origin: Origin | None = None

    def to_json(self) -> str:
        """Return the JSON text for the file."""
        entries = {"format": FORMAT, **asdict(self), "seen": dict(self.seen)}
        return json.dumps({name: value for name, value in entries.items() if name != "origin" or value})


def read_card(path: str | Path) -> ModelCard | None:
    """Return the card of a weights file, or of a network in a model file; None without one, as in published files.

    Raises MissingPathError or WeightsError as `read_content`, and WeightsError for a card that is not valid.
    """
    path = Path(path)
    if is_member(path):
        note: object = Archive(path.parent).note(path.name)
    else:
        content = read_content(path, mapped=True)
        note = content.get(ENTRY) if isinstance(content, Mapping) else None
    if note is None:
        return None
    try:
        entries = json.loads(note)  # type: ignore[arg-type]  # a TypeError is caught
        if entries.pop("format") != FORMAT:
            raise ValueError
        card = built(ModelCard, entries)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise WeightsError(
            f"{path} states its training data in an unknown form.",
            "use the version of lstr that wrote it, or train again with `lstr finetune`.",
        ) from error
    if not is_slug(card.name):
        raise WeightsError(
            f"{path}: the name in its card is {card.name!r}, which is not a valid file name.",
            "use only weights that `lstr finetune` wrote, or that their authors published.",
        )
    return card


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file, or of a member of a model file, as model.json records it, in 64 hex digits."""
    if is_member(path):
        return Archive(Path(path).parent).members[Path(path).name]["sha256"]
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_content(path: str | Path, mapped: bool = False) -> object:
    """Return the content of a weights file; a network in a model file is returned in the layout of `lstr finetune`.

    With `mapped`, tensors stay on disk until they are read, if the format allows it. Raises MissingPathError for a
    missing file, and WeightsError for a file that is damaged or would execute code.
    """
    path = Path(path)
    if is_member(path):
        tensors, note = Archive(path.parent).tensors(path.name)
        return {"state_dict": tensors, **({} if note is None else {ENTRY: note})}
    if not path.is_file():
        raise MissingPathError(f"{path} is not a file.", "check the path of the weights.")
    import torch

    try:
        # safetensors contains only data; from a pickle torch reads only weights, and executes nothing
        if path.suffix == TENSORS:
            from safetensors.torch import load_file

            return load_file(path)
        is_zip = zipfile.is_zipfile(path)
        if is_zip:
            with zipfile.ZipFile(path) as container:
                claimed, size = sum(info.file_size for info in container.infolist()), path.stat().st_size
            if claimed > size:  # a zip bomb: torch.save never compresses
                raise WeightsError(
                    f"{path} is compressed: {size} bytes on disk, {claimed} bytes unpacked.",
                    "save it again with torch.save, which does not compress.",
                )
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and is_zip)
    except WeightsError:
        raise
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} is not a plain weights file, or holds objects that would run code.",
            "download it again, or save only its state_dict with torch.save.",
        ) from error
    except Exception as error:  # unpickling arbitrary bytes can raise any type
        raise WeightsError(f"{path} is damaged or is not a weights file.", "download it again.") from error


def read_state_dict(path: str | Path) -> "dict[str, Tensor]":
    """Return the tensors of a weights file by name, unwrapped from any published layout.

    Raises as `read_content`, and WeightsError if there are no tensors, or tensors of other types than plain numbers.
    """
    import torch
    from torch import Tensor

    content = read_content(path)
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise WeightsError(
            f"{path} contains no tensors.", "name a .pth file with a state_dict, or a .safetensors file."
        )
    for name, tensor in tensors.items():
        _check_type(path, name, str(tensor.dtype).removeprefix("torch."))
        plain = not (tensor.is_meta or tensor.is_nested) and tensor.layout == torch.strided
        if not plain or tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
            raise WeightsError(f"{path}: {name} is not a plain tensor with its own numbers.", SAVE_HINT)
    return tensors


def _check_type(path: str | Path, name: str, dtype: str) -> None:
    """Raise WeightsError for a type that a network's tensor of this name cannot have."""
    if dtype not in PLAIN or name.endswith(LEARNED) and "float" not in dtype:
        raise WeightsError(f"{path}: {name} has the unsupported type {dtype}.", SAVE_HINT)


def bare_name(name: str) -> str:
    """Return the name of a tensor without the prefixes of published files."""
    while prefix := next((p for p in PREFIXES if name.startswith(p)), None):
        name = name.removeprefix(prefix)
    return name


def fingerprint_of(tensors: Mapping[str, NDArray[np.float32]]) -> str:
    """Return 16 hex digits of the SHA-256 over tensors by sorted name, without counters."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        # published files lack these counters, and features do not depend on them
        if not name.endswith("num_batches_tracked"):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()[:16]


def fingerprint_of_file(path: str | Path) -> str:
    """Return the fingerprint of a network from its file, without building it.

    If the file names its tensors differently from the network, the fingerprint differs. Raises as `read_content`.
    """
    path = Path(path)
    if is_member(path):  # without torch
        arrays = Archive(path.parent).arrays(path.name)
        for name, array in arrays.items():
            _check_type(path, name, str(array.dtype))
        arrays = {name: array.astype(np.float32, copy=False) for name, array in arrays.items()}
    else:
        arrays = {name: tensor.float().numpy() for name, tensor in read_state_dict(path).items()}
    named = {bare_name(name): array for name, array in arrays.items()}
    return fingerprint_of({name: array for name, array in named.items() if not CLASSIFIERS.match(name)})
