"""Content of a weights file, read without running its code, and the hash of its tensors. Model files need no torch."""

import hashlib
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lstr.errors import MissingPathError, WeightsError
from lstr.extractors.networks.archive import TENSORS, Archive, is_member
from lstr.extractors.networks.network import PUBLISHED_HEADS

if TYPE_CHECKING:
    from torch import Tensor

# How the names of tensors end that hold fractions in every network.
LEARNED = ("weight", "bias", "running_mean", "running_var")
PLAIN = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
SOUND = "save only its state_dict with torch.save, its weights as float32."
WRAPPERS = ("state_dict", "model_state_dict", "model")


def read_content(path: str | Path, mapped: bool = False) -> object:
    """What is in a weights file; `mapped` leaves its tensors on disk until they are read, where it is of that kind.

    Of a network in a model file it is what the file of `lstr finetune` would hold. Raises MissingPathError when it does
    not exist, WeightsError when it is damaged or needs code to load.
    """
    path = Path(path)
    if is_member(path):
        part = Archive(path.parent).tensors(path.name)
        return {"state_dict": part.tensors, **({} if part.note is None else {"lstr": part.note})}
    if not path.is_file():
        raise MissingPathError(f"{path} is not a file.", "check the path of the weights.")
    import torch

    try:
        if path.suffix == TENSORS:
            from safetensors.torch import load_file

            return load_file(path)
        if zipfile.is_zipfile(path):
            _check_deflated(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and zipfile.is_zipfile(path))
    except WeightsError:
        raise
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} is no plain weights file, or holds objects that would run code.",
            "download it again, or save only its state_dict with torch.save.",
        ) from error
    except Exception as error:  # a file that is no pickle fails in as many ways as it has bytes
        raise WeightsError(f"{path} is damaged or no weights file.", "download it again.") from error


def read_state_dict(path: str | Path) -> "dict[str, Tensor]":
    """The tensors of a weights file by name, out of whatever published wrapper holds them.

    Raises as `read_content`, and WeightsError when it holds no tensors, or others than plain numbers.
    """
    import torch
    from torch import Tensor

    content, path = read_content(path), Path(path)
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise WeightsError(f"{path} holds no tensors.", "name a .pth file with a state_dict, or a .safetensors file.")
    for name, tensor in tensors.items():
        _check_type(path, name, str(tensor.dtype).removeprefix("torch."))
        place = None if tensor.is_meta or tensor.is_nested or tensor.layout != torch.strided else tensor
        if place is None or place.numel() * place.itemsize > place.untyped_storage().nbytes():
            raise WeightsError(f"{path}: {name} is no plain tensor with its own numbers.", SOUND)
    return tensors


def _check_deflated(path: Path) -> None:
    """Raise WeightsError where the members of a zip would take more bytes than the file has."""
    with zipfile.ZipFile(path) as container:
        claimed = sum(info.file_size for info in container.infolist())
    if claimed > (size := path.stat().st_size):
        hint = "save it again with torch.save, which does not compress."
        raise WeightsError(f"{path} is compressed: its {size} bytes stand for {claimed}.", hint)


def _check_type(path: Path, name: str, dtype: str) -> None:
    """Raise WeightsError where a tensor is of a type that no such tensor of a network is."""
    if dtype not in PLAIN or name.endswith(LEARNED) and "float" not in dtype:
        raise WeightsError(f"{path}: {name} is of type {dtype}, which no such tensor is.", SOUND)


def read_arrays(path: str | Path) -> dict[str, NDArray[np.float32]]:
    """The tensors of `read_state_dict` in float32, as numpy has them. Raises as that does."""
    path = Path(path)
    if is_member(path):
        arrays = Archive(path.parent).arrays(path.name)
        for name, array in arrays.items():
            _check_type(path, name, str(array.dtype))
        return {name: array.astype(np.float32, copy=False) for name, array in arrays.items()}
    return {name: tensor.float().numpy() for name, tensor in read_state_dict(path).items()}


PREFIXES = ("module.", "base_model.", "backbone.", "flow.", "rgb.")
CLASSIFIERS = re.compile(rf"^({PUBLISHED_HEADS})\.")


def bare_name(name: str) -> str:
    """The name of a tensor without the prefixes of published files."""
    while prefix := next((p for p in PREFIXES if name.startswith(p)), None):
        name = name.removeprefix(prefix)
    return name


def fingerprint_of(tensors: Mapping[str, NDArray[np.float32]]) -> str:
    """16 hex digits of the SHA-256 over tensors by sorted name; counters left out."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        if not name.endswith("num_batches_tracked"):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()[:16]


def fingerprint_of_file(path: str | Path) -> str:
    """The fingerprint of the network in a file whose tensors are called as the network's, without building it.

    Of a file of another layout it is that of no network. Raises as `read_content`.
    """
    named = ((bare_name(name), tensor) for name, tensor in read_arrays(path).items())
    return fingerprint_of({name: tensor for name, tensor in named if not CLASSIFIERS.match(name)})
