"""The two TSN networks as one: chunks and their flow to feature rows."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from extractors.errors import RecipeError, WeightsError
from extractors.flow import ALGORITHMS, ChunkFlow, FlowWorkers, default_workers
from extractors.folding import DTYPES, fold
from extractors.manifest import dataset_of
from extractors.recipe import NetworkRecipe, Recipe
from extractors.resnet import build_backbone
from extractors.stages import ahead, closed_after, torch_threads
from extractors.video import Chunk
from extractors.weights import fingerprint, load_statistics, load_weights, randomise, statistics

IMAGES = {"cpu": 4, "cuda": 64}  # about as many of a file go through a network at a time; on a CPU more are no faster
SEED = 2021  # of random weights
# Published input scales (facts, section 0): ImageNet's for RGB; flow bytes minus 128, never divided
INPUTS = {
    "resnet50": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "bninception": ((128.0,) * 10, (1.0,) * 10),
}
NETWORKS = {"rgb": "resnet50", "flow": "bninception"}


@dataclass(frozen=True)
class FeatureRow:
    """One chunk's features: rgb (2048,) and flow (1024,) float32, None when not asked for; `end_time` in seconds."""

    index: int
    end_time: float
    rgb: np.ndarray | None
    flow: np.ndarray | None


@dataclass
class StageSeconds:
    """Seconds each stage worked, in all its threads together. Stages overlap, so the sum is no duration."""

    decode: float = 0.0
    flow: float = 0.0
    rgb_network: float = 0.0
    flow_network: float = 0.0

    def add(self, other: "StageSeconds") -> None:
        """Count the seconds of another in."""
        for name, seconds in vars(other).items():
            setattr(self, name, getattr(self, name) + seconds)


Pending = tuple[Chunk, ChunkFlow | None]
"""A chunk, and its flow on its way."""


def fit(image: np.ndarray, short_side: int) -> np.ndarray:
    """(H, W, C) uint8 so that its shorter side is `short_side` pixels, bilinear."""
    height, width = image.shape[:2]
    scale = short_side / min(height, width)
    size = (max(short_side, round(width * scale)), max(short_side, round(height * scale)))
    return cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)


def centre_crop(image: np.ndarray, crop: int) -> np.ndarray:
    """(H, W, C) → (1, crop, crop, C)."""
    y, x = (image.shape[0] - crop) // 2, (image.shape[1] - crop) // 2
    return image[None, y : y + crop, x : x + crop]


def ten_crops(image: np.ndarray, crop: int) -> np.ndarray:
    """Four corners, centre, and their mirror images (x flow inverted): (H, W, 10) uint8 → (10, crop, crop, 10).

    Offsets in quarter steps as SSN's transforms; the mirrored x component is 255 − v.
    """
    height, width = image.shape[:2]
    h, w = (height - crop) // 4, (width - crop) // 4
    crops = []
    for x, y in ((0, 0), (4 * w, 0), (0, 4 * h), (4 * w, 4 * h), (2 * w, 2 * h)):
        patch = image[y : y + crop, x : x + crop]
        mirrored = patch[:, ::-1].copy()
        mirrored[..., ::2] = 255 - mirrored[..., ::2]
        crops += [patch, mirrored]
    return np.stack(crops)


class TwoStream:
    """ResNet-50 on RGB and BN-Inception on flow, or one of them, in evaluation mode on one device, with their recipe.

    `device` is a torch device name. What computes features is a folded copy of each network, in the precision of the
    recipe; the networks themselves keep the weights as given.
    """

    def __init__(self, networks: Mapping[str, nn.Module], recipe: Recipe, device: str):
        self.networks = networks
        for network in self.networks.values():
            network.to(device=device, memory_format=torch.channels_last)
            network.eval()
        self.recipe = recipe
        self.device = device
        self.seconds = StageSeconds()
        self._folded: dict[str, nn.Module] = {}

    def rgb_input(self, frames: np.ndarray) -> np.ndarray:
        """A chunk's frames (6, H, W, 3) → (1, 224, 224, 3) uint8: one centre crop of the central frame."""
        recipe = self.recipe
        return centre_crop(fit(frames[recipe.rgb_frame], recipe.short_side), recipe.crop)

    def flow_input(self, flow: np.ndarray) -> np.ndarray:
        """A chunk's flow (10, H, W) → (crops, 224, 224, 10) uint8."""
        recipe = self.recipe
        image = fit(np.ascontiguousarray(flow.transpose(1, 2, 0)), recipe.short_side)
        return ten_crops(image, recipe.crop) if recipe.flow.crops == 10 else centre_crop(image, recipe.crop)

    @torch.inference_mode()
    def pooled(self, stream: str, images: np.ndarray) -> np.ndarray:
        """(B, crops, 224, 224, C) uint8 → (B, D) float32, averaged over space and crops."""
        network = self._folded_network(stream)
        batch, crops = images.shape[:2]
        x = torch.from_numpy(images).to(self.device).flatten(0, 1)  # (B · crops, 224, 224, C)
        x = self._scaled(stream, x).to(DTYPES[self.recipe.precision])
        features = network(x).float().mean((2, 3))  # (B · crops, D)
        return features.unflatten(0, (batch, crops)).mean(1).cpu().numpy()

    def _folded_network(self, stream: str) -> nn.Module:
        if stream not in self._folded:
            self._folded[stream] = fold(self.networks[stream], self.recipe.precision, self.device)
        return self._folded[stream]

    def _scaled(self, stream: str, x: Tensor) -> Tensor:
        """(N, 224, 224, C) uint8 → (N, C, 224, 224) as published; the permuted view is channels-last already."""
        part: NetworkRecipe = getattr(self.recipe, stream)
        x = x.float().sub_(torch.tensor(part.mean, device=self.device))
        if any(std != 1 for std in part.std):
            x.div_(torch.tensor(part.std, device=self.device))
        return x.permute(0, 3, 1, 2)

    def rows(self, chunks: Iterable[Chunk], workers: FlowWorkers | None, live: bool = False) -> Iterator[FeatureRow]:
        """Feature rows in order, while later chunks are decoded and computed in threads of their own.

        A bounded number of chunks is read ahead. Those of a live source go through the networks one by one, at once;
        those of a file a few at a time. A row never depends on a later chunk. Without the flow network no flow is
        computed, and there need be no workers. Close the generator to end its threads. Raises FlowError, RecipeError
        for workers of another algorithm, and what `chunks` raises.
        """
        with_flow = "flow" in self.networks
        if with_flow and ALGORITHMS[workers.algorithm] != self.recipe.flow_algorithm:
            raise RecipeError(
                f"The recipe has {self.recipe.flow_algorithm} flow, not {ALGORITHMS[workers.algorithm]}.",
                "give the --flow of the features it belongs to.",
            )
        self.prepare()
        batch = 1 if live else max(1, IMAGES[torch.device(self.device).type] // self.recipe.flow.crops)
        n_flow = workers.workers if with_flow else 0
        # one thread of torch a batch, and as many batches at once as there are cores, or flow threads: cores change
        # between flow and networks as either has work, and none waits for another within a layer
        threads = 1 if self.device != "cpu" else n_flow or default_workers()
        reading = ahead(self._read(chunks, workers if with_flow else None), batch + 2 * n_flow, "reader")
        return self._compute(reading, batch, threads)

    def prepare(self) -> None:
        """Make what computes features, now rather than in several threads at once."""
        for stream in self.networks:
            self._folded_network(stream)

    def submit(self, pool: ThreadPoolExecutor, chunks: Iterable[Chunk], workers: FlowWorkers | None) -> Future:
        """Start the features of a batch of chunks, after `prepare`: a future list of FeatureRows in their order.

        A thread of `pool` waits for the flow.
        """
        with_flow = "flow" in self.networks
        ready = tuple((chunk, workers.submit(chunk.frames) if with_flow else None) for chunk in chunks)
        return pool.submit(lambda: self._batch(ready)[0])

    def _read(self, chunks: Iterable[Chunk], workers: FlowWorkers | None) -> Iterator[Pending]:
        """Chunks with their flow on its way."""
        with closed_after(chunks) as source:
            while True:
                start = perf_counter()
                chunk = next(source, None)
                self.seconds.decode += perf_counter() - start
                if chunk is None:
                    return
                yield chunk, workers.submit(chunk.frames) if workers else None

    def _compute(self, reading: Iterator[Pending], batch: int, threads: int) -> Iterator[FeatureRow]:
        def submitted() -> Iterator[Future]:
            with closed_after(reading) as source:
                while ready := tuple(islice(source, batch)):
                    yield pool.submit(self._batch, ready)

        with (
            torch_threads(torch.get_num_threads()),  # for what a thread of the pool sets, later ones begin with
            ThreadPoolExecutor(threads, "networks", torch.set_num_threads, (1,)) as pool,
            closed_after(ahead(submitted(), threads, "batches")) as computing,
        ):
            for future in computing:
                rows, seconds = future.result()
                self.seconds.add(seconds)
                yield from rows

    def _batch(self, ready: tuple[Pending, ...]) -> tuple[list[FeatureRow], StageSeconds]:
        seconds = StageSeconds()
        rgb = flow = [None] * len(ready)
        if "rgb" in self.networks:
            start = perf_counter()
            rgb = self.pooled("rgb", np.stack([self.rgb_input(chunk.frames) for chunk, _ in ready]))
            seconds.rgb_network = perf_counter() - start
        if "flow" in self.networks:
            fields = [pending.result() for _, pending in ready]
            start = perf_counter()
            flow = self.pooled("flow", np.stack([self.flow_input(field) for field in fields]))
            seconds.flow_network = perf_counter() - start
            seconds.flow = sum(pending.seconds for _, pending in ready)
        rows = [
            FeatureRow(chunk.index, chunk.end_time, r, f) for (chunk, _), r, f in zip(ready, rgb, flow, strict=True)
        ]
        return rows, seconds

    @torch.no_grad()
    def calibrate(self, stream: str, images: np.ndarray, batch: int = 32) -> None:
        """Give a random network batch-norm statistics measured on images (N, 224, 224, C) uint8.

        Without them a random network's activations carry little (its layers do not normalise). The recipe must be
        made again afterwards, because the network's hash changes.
        """
        network = self.networks[stream]
        norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average over the batches
        network.train()
        for start in range(0, len(images), batch):
            part = images[start : start + batch]
            if len(part) > 1:
                network(self._scaled(stream, torch.from_numpy(part).to(self.device)))
        network.eval()
        self._folded.pop(stream, None)


def default_device() -> str:
    """`cuda` when there is one, else `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class WeightSources:
    """Where the networks' weights come from: a published file, or None for seeded random weights."""

    rgb: str | None = None
    flow: str | None = None
    calibration: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Stored batch-norm statistics by stream, for random weights."""
    calibrated_on: tuple[str, ...] = ()


def build_twostream(
    sources: WeightSources, flow_crops: int, device: str, algorithm: str = "tvl1", precision: str = "float32"
) -> TwoStream:
    """Both networks with their weights, and the recipe that follows from them, the flow algorithm and the precision.

    Raises WeightsError or MissingPathError for an unusable file.
    """
    built = {stream: _build_network(stream, sources, flow_crops) for stream in NETWORKS}
    recipe = Recipe(built["rgb"][1], built["flow"][1], flow_algorithm=ALGORITHMS[algorithm], precision=precision)
    return TwoStream({stream: network for stream, (network, _) in built.items()}, recipe, device)


def rebuild_twostream(
    recipe: Recipe, sources: WeightSources, device: str, streams: Collection[str] = tuple(NETWORKS)
) -> TwoStream:
    """The networks that a recipe names, or those of some streams, checked against its hashes.

    Raises WeightsError when the files at hand (or this machine's random numbers) give other networks.
    """
    networks = {}
    for stream in streams:
        want: NetworkRecipe = getattr(recipe, stream)
        if want.weights != "random" and getattr(sources, stream) is None:
            raise WeightsError(
                f"The features come from {want.weights} {want.network} weights, and no file of them was given.",
                f"add `--{stream}-weights PATH`.",
            )
        networks[stream], have = _build_network(stream, sources, recipe.flow.crops)
        if want.sha256 != have.sha256:
            raise WeightsError(
                f"The {stream} network here is {have.weights} {have.sha256}, "
                f"the features come from {want.weights} {want.sha256}.",
                f"give the file they were made with as --{stream}-weights.",
            )
    return TwoStream(networks, recipe, device)


def _build_network(stream: str, sources: WeightSources, flow_crops: int) -> tuple[nn.Module, NetworkRecipe]:
    network, path = NETWORKS[stream], getattr(sources, stream)
    backbone = build_backbone(network)
    if path:
        load_weights(backbone, path, network)
        origin = {"weights": dataset_of(path)}
    else:
        randomise(backbone, SEED)
        if stream in sources.calibration:
            load_statistics(backbone, sources.calibration[stream])
        calibrated_on = sources.calibrated_on if stream in sources.calibration else ()
        origin = {"weights": "random", "seed": SEED, "calibrated_on": calibrated_on}
    mean, std = INPUTS[network]
    crops = 1 if stream == "rgb" else flow_crops
    return backbone, NetworkRecipe(network, sha256=fingerprint(backbone), crops=crops, mean=mean, std=std, **origin)


def calibration_of(twostream: TwoStream) -> dict[str, dict[str, Tensor]]:
    """The batch-norm statistics of each random network, to be stored with the recipe."""
    return {
        stream: statistics(network)
        for stream, network in twostream.networks.items()
        if getattr(twostream.recipe, stream).weights == "random"
    }
