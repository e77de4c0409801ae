"""What any runtime needs to convert a network: the network and how it will be used, where to keep what was made of
it, and whether that is the same."""

import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from lstr.errors import NetworkRuntimeError
from lstr.extractors.recipe import INT8, NetworkRecipe

if TYPE_CHECKING:  # a network that was converted before needs none
    from torch import Tensor, nn

    from lstr.extractors.networks.torch_runtime import PooledNetwork

# What a network's ONNX file calls what it takes and gives
IMAGES, FEATURES = "images", "features"
FORMAT = 1  # of what is kept of a converted network; raise it when conversion changes
TOLERANCE = 1e-4  # of a converted float32 network's features of noise, as a share of the largest
LEAST_COSINE = 0.98  # of those of an int8 network


class Store(Protocol):
    """Keeps converted networks from one run to the next."""

    def read(self, key: str) -> bytes | None:
        """What was written under a key; None where nothing was, or it is damaged."""

    def write(self, key: str, parts: Sequence[bytes]) -> None:
        """Keep parts, one after the other; one that cannot be kept is left out silently."""


@dataclass(frozen=True)
class NetworkJob:
    """A network to compute with: the module, what its recipe says of it, and how it will be used."""

    network: "Callable[[], nn.Module]"
    """Makes it, where no converted one is at hand."""
    part: NetworkRecipe
    sha256: str
    """Hash of the module's tensors as they are now."""
    precision: str
    size: tuple[int, int]
    """Height and width of an image, in pixels."""
    device: str
    threads: int
    """How many threads will call it at once."""

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return len(self.part.mean)

    @property
    def images(self) -> int:
        """Images of a chunk."""
        return self.part.images

    def pooled(self, precision: str | None = None) -> "PooledNetwork":
        """The network as torch computes it; another `precision` than its own for a runtime that rounds by itself."""
        from lstr.extractors.networks.torch_runtime import PooledNetwork

        return PooledNetwork(self.network(), self.part, precision or self.precision, self.device, self.size)

    def example(self) -> "Tensor":
        """The fewest images (N, H, W, C) that the network takes, of noise that is always the same."""
        import torch

        shape = (self.part.segments, *self.size, self.channels)
        return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)

    def key(self, runtime: str, version: str) -> str:
        """Names what a runtime makes of it: another one for other weights, scale, layers, images or versions."""
        part = {**asdict(self.part), "weights": "", "sha256": self.sha256, "folds": (), "calibrated_on": (), "crops": 1}
        del part["stem"]  # the tensors have it
        del part["size"], part["margin"]
        size = self.size if len({*self.size}) > 1 else self.size[0]
        about = [FORMAT, runtime, version, version_of("torch"), exact_precision(self), size, part]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def check_features(job: NetworkJob, runtime: str, compute: Callable[[NDArray[np.uint8]], NDArray[np.float32]]) -> None:
    """Compare what a converted network, in float32 or int8, makes of noise with torch's features.

    Raises NetworkRuntimeError where it is something else.
    """
    import torch

    images = job.example()
    with torch.inference_mode():
        exact = job.pooled(exact_precision(job))(images).numpy()
    found = compute(images.numpy())
    same = found.shape == exact.shape and bool(np.isfinite(found).all())
    if same and job.part.ranges:  # a value between two steps may fall to either, so the direction is compared
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(exact, axis=1)
        same = bool(((found * exact).sum(1) >= LEAST_COSINE * lengths).all())
    elif same:
        same = bool(np.abs(found - exact).max() <= TOLERANCE * np.abs(exact).max())
    if not same:
        raise NetworkRuntimeError(
            f"{runtime} makes other features of the network {job.part.network} than torch.",
            "leave it to torch: --set runtime=torch.",
        )


def exact_precision(job: NetworkJob) -> str:
    """In which a network is converted: bf16 is made of float32 by the runtime itself."""
    return INT8 if job.precision == INT8 else "float32"


def onnx_of(network: "nn.Module", images: "Tensor", axis: str, opset: int) -> bytes:
    """A network as an ONNX file from IMAGES to FEATURES, for any number along the first axis of the example."""
    import torch

    file = io.BytesIO()
    with torch.no_grad(), _plain_attention(), warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # of what a trace takes for constant: sizes, which are
        torch.onnx.export(
            network,
            (images,),
            file,  # type: ignore[arg-type]  # torch's declaration leaves files out, which it takes
            input_names=[IMAGES],
            output_names=[FEATURES],
            dynamic_axes={IMAGES: {0: axis}, FEATURES: {0: axis}},
            opset_version=opset,
            dynamo=False,  # the newer exporter needs another package, and fixes the number along that axis
        )
    return file.getvalue()


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Let torch's attention be made of products, which ONNX has, and not of its one fast operator, which it has not."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
