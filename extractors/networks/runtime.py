"""Runtimes of networks: which there are, what each is given and returns, and converted networks on disk.

Torch defines a network; OpenVINO and ONNX Runtime compute the same faster on a processor (`converted_networks`).
"""

import hashlib
import importlib.util
import json
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lstr.errors import NetworkRuntimeError, OutputError
from lstr.extractors.networks.crops import View
from lstr.extractors.recipe import INT8, NetworkRecipe
from lstr.files.atomic import replacing, sweep

if TYPE_CHECKING:  # a network that was converted before runs without torch
    from torch import Tensor, nn

RUNTIMES = ("torch", "openvino", "onnxruntime")
AUTO = "auto"
INSTALL = {"openvino": "pip install openvino", "onnxruntime": 'pip install "lstr-video[onnxruntime]"'}
USE_TORCH = "leave it to torch: --set runtime=torch."

IMAGES, FEATURES = "images", "features"  # names of input and output in a network's ONNX file
FORMAT = 1  # of stored converted networks; raise it when conversion changes
MIN_COSINE = 0.98  # of an int8 network's features to torch's
SUFFIX = ".network"
MAX_BYTES = 2 << 30  # of converted networks on disk
CHECK_BYTES = 4  # at the start of a stored file: the checksum of the rest


@dataclass(frozen=True)
class NetworkJob:
    """A network to compute with: the module, its recipe, and how it will be used."""

    # builds it, if no converted one is available
    network: "Callable[[], nn.Module]"
    part: NetworkRecipe
    # hash of the module's tensors as they are now
    sha256: str
    precision: str
    # height and width of an image, in pixels
    size: tuple[int, int]
    device: str
    # number of threads that will call it at once
    threads: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        return *self.size, len(self.part.mean)

    @property
    def exact_precision(self) -> str:
        """The precision in which it is converted: a runtime makes bf16 of float32 by itself."""
        return INT8 if self.precision == INT8 else "float32"

    def example(self) -> "Tensor":
        """Return one image (1, H, W, C) of noise that is always the same."""
        import torch

        generator = torch.Generator().manual_seed(0)
        return torch.randint(0, 256, (1, *self.shape), generator=generator, dtype=torch.uint8)

    def key(self, runtime: str, version: str) -> str:
        """Return the name of the converted network: another for other weights, scale, layers, images or versions."""
        part = {**asdict(self.part), "weights": "", "sha256": self.sha256, "folds": (), "calibrated_on": (), "crops": 1}
        # what does not change the converted network is no part of its name: crops and folds above, and these
        for name in ("stem", "size", "margin"):  # the tensors have the first, `self.size` the others
            del part[name]
        about = [FORMAT, runtime, version, version_of("torch"), self.exact_precision, self.size, part]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


class RunningNetwork:
    """A network that is ready to compute, for any number of threads: bytes in, features out, all in numpy."""

    runtime: str
    # whether its input is whole chunks (B, images, H, W, C), of which it gives one row each, as exported graphs
    averages = False
    # whether it crops images on a GPU by `of_fitted`
    makes_crops = False

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return (N, D) of (N, H, W, C), the maps averaged over space. A row does not depend on N beyond 1e-5."""
        raise NotImplementedError

    def prepare(self, batches: Iterable[int]) -> None:
        """Make what depends on the number of images, now rather than at the first call with that number."""
        return  # ONNX Runtime takes any number

    def of_fitted(self, images: Sequence[NDArray[np.uint8]], view: View) -> NDArray[np.float32]:
        """Return (B, D) of each chunk's fitted image (H, W, C), averaged over what `view` shows of it.

        Images may differ in size.
        """
        raise NotImplementedError


def is_installed(runtime: str) -> bool:
    """Return whether a runtime can be imported, without importing it."""
    return runtime == "torch" or importlib.util.find_spec(runtime) is not None


def choose_runtime(wanted: str, device: str) -> str:
    """Return the runtime for `wanted`; `auto` is OpenVINO on a processor where it is installed, else torch.

    Raises NetworkRuntimeError for one that is unknown, is not installed, or does not compute on this device.
    """
    if wanted == AUTO:
        return "openvino" if device == "cpu" and is_installed("openvino") else "torch"
    if wanted not in RUNTIMES:
        raise NetworkRuntimeError(f"Unknown runtime: {wanted}.", f"choose one of: {', '.join((AUTO, *RUNTIMES))}.")
    if not is_installed(wanted):
        raise NetworkRuntimeError(
            f"The runtime {wanted} is not installed.", f"{INSTALL[wanted]}, or --set runtime=auto."
        )
    if wanted != "torch" and device != "cpu":
        raise NetworkRuntimeError(f"The runtime {wanted} computes on the CPU, not on {device}.", "set LSTR_DEVICE=cpu.")
    return wanted


def read_converted(folder: Path, key: str) -> bytes | None:
    """Return the converted network of a key; None where none was written, or it is damaged: it is converted again."""
    path = folder / f"{key}{SUFFIX}"
    try:
        content = path.read_bytes()
    except OSError:
        return None
    network = content[CHECK_BYTES:]
    is_whole = zlib.crc32(network).to_bytes(CHECK_BYTES, "little") == content[:CHECK_BYTES]
    with suppress(OSError):
        os.utime(path) if is_whole else path.unlink()  # the time of its last use
    return network if is_whole else None


def write_converted(folder: Path, key: str, content: bytes, max_bytes: int = MAX_BYTES) -> None:
    """Store a converted network in a folder that processes may share, where it can be written.

    The least recently used make room.
    """
    with suppress(OutputError, OSError):
        with replacing(folder / f"{key}{SUFFIX}") as temporary:
            # runtimes do not check their files, so a torn or changed one must not reach them
            temporary.write_bytes(zlib.crc32(content).to_bytes(CHECK_BYTES, "little") + content)
        sweep(folder)
        found = []
        for path in folder.glob(f"*{SUFFIX}"):
            with suppress(OSError):  # another process may have removed it
                found.append((path.stat().st_mtime, path.stat().st_size, path))
        total = 0
        for _, size, path in sorted(found, reverse=True):
            total += size
            if total > max_bytes:
                path.unlink(missing_ok=True)
