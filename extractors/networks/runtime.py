"""The interface of the runtimes of networks, and the store of converted networks on disk.

Torch defines a network; OpenVINO and ONNX Runtime compute the same features faster on a CPU (`converted_networks`).
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

from lstr.errors import NetworkRuntimeError, OutputError, install_hint
from lstr.extractors.networks.crops import View
from lstr.extractors.recipe import NetworkRecipe
from lstr.files.atomic import replacing, sweep

if TYPE_CHECKING:  # converted networks run without torch
    from torch import Tensor, nn

RUNTIMES = ("torch", "openvino", "onnxruntime")
AUTO = "auto"
USE_TORCH = "run it with torch: --set runtime=torch."

IMAGES, FEATURES = "images", "features"  # names of input and output in a network's ONNX file
FORMAT = 2  # of stored converted networks; increase it if the conversion changes
SUFFIX = ".network"
MAX_BYTES = 2 << 30  # of converted networks on disk
CHECK_BYTES = 4  # at the start of a stored file: the checksum of the remaining bytes


@dataclass(frozen=True)
class NetworkJob:
    """A network for a runtime: how to build its module, its recipe, and how it will be used."""

    network: "Callable[[], nn.Module]"  # builds the module; called only if no converted network is stored
    part: NetworkRecipe
    precision: str
    size: tuple[int, int]  # height and width of an image, in pixels
    device: str
    threads: int  # number of threads that will call it at once

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        return *self.size, len(self.part.mean)

    def example(self) -> "Tensor":
        """Return one image (1, H, W, C) of reproducible noise."""
        import torch

        generator = torch.Generator().manual_seed(0)
        return torch.randint(0, 256, (1, *self.shape), generator=generator, dtype=torch.uint8)

    def key(self, runtime: str, version: str) -> str:
        """Return the name of the converted network, a hash of weights, input scale, layers, image size and versions."""
        # these do not change the converted network; its tensors reflect `stem`, and `self.size` the size
        unused = ("weights", "crops", "calibrated_on", "folds", "stem", "size", "margin")
        part = {name: value for name, value in asdict(self.part).items() if name not in unused}
        about = [FORMAT, runtime, version, version_of("torch"), self.size, part]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


class RunningNetwork:
    """A network on a runtime, callable from any thread: images in, features out, both numpy arrays."""

    runtime: str
    # whether its input is whole chunks (B, images, H, W, C) and its output one row per chunk, as in exported graphs
    averages = False
    makes_crops = False  # whether `of_fitted` crops images on the GPU

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return features (N, D) of images (N, H, W, C), averaged over space. A row changes by at most 1e-5 with N."""
        raise NotImplementedError

    def prepare(self, batches: Iterable[int]) -> None:
        """Compile for these numbers of images now, instead of at the first call."""
        return  # ONNX Runtime accepts any number

    def of_fitted(self, images: Sequence[NDArray[np.uint8]], view: View) -> NDArray[np.float32]:
        """Return features (B, D) of each chunk's resized image (H, W, C), averaged over the crops of `view`.

        Images may differ in size.
        """
        raise NotImplementedError


def is_installed(runtime: str) -> bool:
    """Return whether a runtime can be imported, without importing it."""
    return runtime == "torch" or importlib.util.find_spec(runtime) is not None


def choose_runtime(wanted: str, device: str) -> str:
    """Return the runtime for `wanted`; `auto` is OpenVINO on a CPU if it is installed, else torch.

    Raises NetworkRuntimeError if the runtime is unknown, is not installed, or does not support this device.
    """
    if wanted == AUTO:
        return "openvino" if device == "cpu" and is_installed("openvino") else "torch"
    if wanted not in RUNTIMES:
        raise NetworkRuntimeError(f"Unknown runtime: {wanted}.", f"choose one of: {', '.join((AUTO, *RUNTIMES))}.")
    if not is_installed(wanted):
        command = install_hint(wanted) if wanted == "onnxruntime" else f"pip install {wanted}"
        raise NetworkRuntimeError(f"The runtime {wanted} is not installed.", f"{command}, or --set runtime=auto.")
    if wanted != "torch" and device != "cpu":
        raise NetworkRuntimeError(f"The runtime {wanted} computes on the CPU, not on {device}.", "set LSTR_DEVICE=cpu.")
    return wanted


def read_converted(folder: Path, key: str) -> bytes | None:
    """Return the stored network of a key; None if it is missing or damaged, so that it is converted again."""
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


def write_converted(folder: Path, key: str, content: bytes) -> None:
    """Store a converted network in a folder that processes may share; does nothing if the folder is not writable.

    The least recently used networks are removed beyond MAX_BYTES.
    """
    with suppress(OutputError, OSError):  # also if another process removes a network at the same time
        with replacing(folder / f"{key}{SUFFIX}") as temporary:
            # runtimes do not check their files, so the checksum keeps incomplete or changed files from them
            temporary.write_bytes(zlib.crc32(content).to_bytes(CHECK_BYTES, "little") + content)
        sweep(folder)
        total = 0
        for path in sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True):
            total += path.stat().st_size
            if total > MAX_BYTES:
                path.unlink(missing_ok=True)
