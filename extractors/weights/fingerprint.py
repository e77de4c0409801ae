"""The hash of a network's tensors, of which a recipe has it; computed without the network, and without torch."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.backbones.network import PUBLISHED_HEADS
from lstr.extractors.weights.content import read_arrays

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
