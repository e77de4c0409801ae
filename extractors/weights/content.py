"""What a weights file holds, read without running code of it. A network in a model file is read without torch."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.errors import MissingPathError, WeightsError
from lstr.extractors.weights.archive import TENSORS, Archive, is_member

if TYPE_CHECKING:
    from torch import Tensor

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
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} is no plain weights file, or holds objects that would run code.",
            "download it again, or save only its state_dict with torch.save.",
        ) from error
    except Exception as error:  # a file that is no pickle fails in as many ways as it has bytes
        raise WeightsError(f"{path} is damaged or no weights file.", "download it again.") from error


def read_state_dict(path: str | Path) -> "dict[str, Tensor]":
    """The tensors of a weights file by name, out of whatever published wrapper holds them.

    Raises as `read_content`, and WeightsError when it holds no tensors.
    """
    from torch import Tensor

    content = read_content(path)
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        raise WeightsError(f"{path} holds no tensors.", "name a .pth file with a state_dict, or a .safetensors file.")
    return tensors


def read_arrays(path: str | Path) -> dict[str, NDArray[np.float32]]:
    """The tensors of `read_state_dict` in float32, as numpy has them. Raises as that does."""
    path = Path(path)
    if is_member(path):
        arrays = Archive(path.parent).arrays(path.name)
        return {name: array.astype(np.float32, copy=False) for name, array in arrays.items()}
    return {name: tensor.float().numpy() for name, tensor in read_state_dict(path).items()}
