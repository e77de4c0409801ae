"""Networks on torch, on any device: batch norm is fused into convolutions, exact up to rounding.

Torch is the default runtime, and the other runtimes convert its networks.
"""

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.overrides import TorchFunctionMode

from lstr.errors import NetworkRuntimeError, first_line
from lstr.extractors.networks.backbones import ConvNorm
from lstr.extractors.networks.crops import View, centre_crop
from lstr.extractors.networks.runtime import USE_TORCH, NetworkJob, RunningNetwork
from lstr.extractors.recipe import NetworkRecipe

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
SIDES = (64, 224)  # pixels of the image for tracing a network's layers; some networks accept only one size
EXPORT_OPSET = 18  # of the graphs of `lstr export`
ROUNDINGS = 10  # a converted float32 network's largest error, relative to that of torch's own float32
TOLERANCE = 1e-4  # of a converted float32 network's features of noise, relative to the largest feature


class _Calls(TorchFunctionMode):
    """Records the calls of a forward pass, to find convolutions with an output that only one batch norm uses.

    A function mode affects only its thread. torch.fx is not an option: while it traces, calls of modules fail in all
    other threads.
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        modules = dict(network.named_modules())
        self._convolutions = {id(m.weight): name for name, m in modules.items() if type(m) is nn.Conv2d}
        norms = {name: m for name, m in modules.items() if isinstance(m, nn.BatchNorm2d) and m.running_mean is not None}
        self._norms = {id(norm.running_mean): name for name, norm in norms.items()}
        self._seen: list[Tensor] = []  # keeps tensors alive, so that ids stay unique
        self.makers: dict[int, str] = {}
        self.users: Counter[int] = Counter()
        self.calls: Counter[str] = Counter()
        self.pairs: list[tuple[int, str]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record one call of a torch function."""
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):  # not a size
            tensors = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, Tensor)]
            self._seen += [*tensors, made]
            self.users.update({id(tensor) for tensor in tensors})
            for key in map(id, tensors):
                if (name := self._convolutions.get(key)) is not None:
                    self.makers[id(made)] = name
                    self.calls[name] += 1
                elif (name := self._norms.get(key)) is not None:
                    self.pairs.append((id(tensors[0]), name))
                    self.calls[name] += 1
        return made


def fuse(network: nn.Module, precision: str, device: str, everywhere: bool = True) -> nn.Module:
    """Return a copy of a backbone for inference on a device: float32 or bf16, channels-last.

    Each batch norm that follows a convolution is fused into it; with `everywhere` False only in ResNet's units. Other
    layers stay unchanged.
    """
    # the network itself keeps its weights, because it is hashed and trained with them
    fused = copy.deepcopy(network)
    fused.eval()
    for parent in list(fused.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, ConvNorm):
                conv = fuse_conv_bn_eval(child.conv, child.bn)
                activations = [*child][2:]
                setattr(parent, name, nn.Sequential(conv, *activations) if activations else conv)
    if everywhere and any(isinstance(module, nn.BatchNorm2d) for module in fused.modules()):
        stem = next(module for module in fused.modules() if isinstance(module, nn.Conv2d))
        pairs: list[tuple[str, str]] = []  # stays empty if no image size fits
        for side in SIDES:
            image = stem.weight.new_zeros(1, stem.in_channels, side, side)  # outside the mode, which records every call
            with contextlib.suppress(Exception):  # a network may not accept this side; the next one is tried
                with torch.no_grad(), _Calls(fused) as seen:
                    fused(image)
                # only that batch norm uses the output of the convolution, and both are called once
                used_once = ((seen.makers.get(key), norm) for key, norm in seen.pairs if seen.users[key] == 1)
                pairs = [(conv, norm) for conv, norm in used_once if conv and seen.calls[conv] == seen.calls[norm] == 1]
                break
        for first, second in pairs:
            norm = cast(nn.BatchNorm2d, fused.get_submodule(second))
            # timm's batch norms also apply an activation; a batch norm with unknown parts is not fused
            parts = [part for name in ("drop", "act") if isinstance(part := getattr(norm, name, None), nn.Module)]
            if type(norm) is nn.BatchNorm2d or len(parts) == 2:
                fused.set_submodule(first, fuse_conv_bn_eval(cast(nn.Conv2d, fused.get_submodule(first)), norm))
                fused.set_submodule(second, nn.Identity() if type(norm) is nn.BatchNorm2d else nn.Sequential(*parts))
    # channels-last, because oneDNN and cuDNN convolve such images without reordering them
    fused.to(device=device, dtype=DTYPES[precision]).to(memory_format=torch.channels_last)
    return fused.requires_grad_(False)


class Scale(nn.Module):
    """Converts images to a network's input scale; its constants stay on the device, because each copy would wait."""

    mean: Tensor
    std: Tensor

    def __init__(self, part: NetworkRecipe):
        super().__init__()
        self.bgr = part.bgr
        self.divides = any(std != 1 for std in part.std)
        self.register_buffer("mean", torch.tensor(part.mean), persistent=False)
        self.register_buffer("std", torch.tensor(part.std), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Convert (N, H, W, C) uint8 to (N, C, H, W) float32; the permuted view is channels-last already."""
        x = (images.flip(-1) if self.bgr else images).float() - self.mean
        if self.divides:
            x = x / self.std
        return x.permute(0, 3, 1, 2)


class PooledNetwork(nn.Module):
    """The network of a stream for inference in a precision, including its input scale and the mean over space."""

    def __init__(self, job: NetworkJob, precision: str | None = None):
        """Build the network in the precision of the job, or in another one for a runtime that rounds itself."""
        super().__init__()
        part, precision = job.part, precision or job.precision
        fused = fuse(job.network(), precision, job.device, part.fuses)
        for module in fused.modules():
            if hasattr(module, "settle"):
                cast(Any, module).settle(job.size)
        self.network = fused
        self.dtype = DTYPES[precision]
        self.scale = Scale(part).to(job.device)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (N, D) float32 of images (N, H, W, C) uint8, or of chunks (N, images, H, W, C), averaged."""
        pixels = images if images.dim() == 4 else images.reshape(-1, *images.shape[2:])
        features = self.network(self.scale(pixels).to(self.dtype)).float().mean((2, 3))
        if images.dim() == 4:
            return features
        return features.reshape(-1, images.shape[1], features.shape[-1]).mean(1)


def make_network_graph(job: NetworkJob) -> bytes:
    """Return the network of a job, averaged over a chunk's images, as an ONNX file without local paths.

    Raises NetworkRuntimeError if it cannot be exported.
    """
    import onnx

    from lstr.extractors.networks.graph_file import export_graph

    images = job.example().repeat(job.part.crops, 1, 1, 1)[None]
    try:
        written = export_graph(PooledNetwork(job, "float32"), images, "chunks", EXPORT_OPSET)
    except Exception as error:  # torch's exporter raises many types
        raise NetworkRuntimeError(
            f"The network {job.part.network} cannot be converted to ONNX ({first_line(error)}).", "run it with torch."
        ) from error
    made = onnx.load_model_from_string(written)
    for node in made.graph.node:
        node.ClearField("doc_string")  # it may contain paths of the source code
        node.name = ""
    return made.SerializeToString(deterministic=True)


def check_features(job: NetworkJob, runtime: str, compute: Callable[[NDArray[np.uint8]], NDArray[np.float32]]) -> None:
    """Compare a converted network's features of noise, in float32, with torch's.

    Raises NetworkRuntimeError if they differ.
    """
    images = job.example()
    with torch.inference_mode():
        exact = PooledNetwork(job, "float32")(images).numpy()
    found = compute(images.numpy())
    same = found.shape == exact.shape and bool(np.isfinite(found).all())
    if same:
        # relative to the largest value, because small values are sums that cancel and have large relative errors
        same = bool(np.abs(found - exact).max() <= TOLERANCE * np.abs(exact).max())
        if not same:
            # A network may amplify rounding: features of a random mobilenetv3, calibrated on plain images, were 4e-4
            # from float64 in torch's float32 too, depending on the CPU. bf16 rounds 65,000 times as coarsely.
            double = PooledNetwork(job, "float32").double()
            double.dtype = torch.float64
            with torch.inference_mode():
                truth = double(images).numpy()
            same = bool(np.abs(found - truth).max() <= ROUNDINGS * np.abs(exact - truth).max())
    if not same:
        message = f"{runtime} and torch compute different features with the network {job.part.network}."
        raise NetworkRuntimeError(message, USE_TORCH)


class TorchNetwork(RunningNetwork):
    """A RunningNetwork on torch, on any device.

    On a GPU it has a separate lane. `prepare` captures CUDA graphs for numbers of images. `of_fitted` crops images on
    the GPU, because copying ten crops would take ten times as long.
    """

    runtime = "torch"

    def __init__(self, job: NetworkJob):
        from lstr.extractors.lanes import open_lane

        if job.device != "cpu" and job.precision == "float32":
            # so that a GPU computes it as precisely as a CPU: by default cuDNN rounds products to TF32
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self.pooled = PooledNetwork(job)  # created before the lane, which waits for the weights' stream
        self.lane, self.shape = open_lane(job.device), job.shape
        self.makes_crops = self.lane.captures
        self._graphs: dict[int, tuple[Tensor, Callable[[], Tensor]]] = {}

    @torch.inference_mode()
    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork."""
        if not self.lane.captures:  # a CPU computes in the calling thread
            return self.pooled(torch.from_numpy(images)).numpy()
        with self.lane.working():
            wait = self.lane.fetch(self._features(self.lane.send(images)))
        return wait()

    @torch.inference_mode()
    def of_fitted(self, images: Sequence[NDArray[np.uint8]], view: View) -> NDArray[np.float32]:
        """See RunningNetwork."""
        # copy only the centre, unless corners are needed
        trimmed = [image if view.crops == 10 else centre_crop(image, *view.size)[0] for image in images]
        with self.lane.working():
            sizes = groupby(trimmed, lambda image: image.shape)
            # images of one size are sent as one tensor, because each copy to the device waits
            crops = [crops_of(self.lane.send([*group]), view).flatten(0, 1) for _, group in sizes]
            wait = self.lane.fetch(self._features(torch.cat(crops)))
        features = wait()
        return features.reshape(len(images), -1, features.shape[-1]).mean(1)

    def prepare(self, batches: Iterable[int]) -> None:
        """Capture the network for these numbers of images, if the device supports it."""
        if not self.lane.captures:
            return
        with torch.inference_mode(), self.lane.working():
            for n in sorted(set(batches) - self._graphs.keys()):
                images = torch.zeros((n, *self.shape), dtype=torch.uint8, device=self.pooled.scale.mean.device)
                self._graphs[n] = images, self.lane.capture(partial(self.pooled, images))

    def _features(self, images: Tensor) -> Tensor:
        """Compute with the smallest graph that the images fit in; results of other rows are dropped."""
        n = len(images)
        # a graph has a fixed number of images; a smaller batch leaves its last rows unchanged
        size = min((size for size in self._graphs if size >= n), default=None)
        if size is None:
            return self.pooled(images)
        memory, replay = self._graphs[size]
        memory[:n] = images
        return replay()[:n]


def crops_of(images: Tensor, view: View) -> Tensor:
    """Return crops (B, crops, *view.size, C) of trimmed images (B, H, W, C) uint8 on any device, equal to `view.of`."""
    if view.crops == 1:
        return images[:, None]
    mirror = images.flip(2)
    if view.flow:
        mirror[..., ::2] = 255 - mirror[..., ::2]
    if view.crops == 2:
        return torch.stack([images, mirror], 1)
    width, (down, across), crops = images.shape[2], view.size, []
    for x, y in view.corners(*images.shape[1:3]):
        crops.append(images[:, y : y + down, x : x + across])
        crops.append(mirror[:, y : y + down, width - x - across : width - x])
    return torch.stack(crops, 1)
