"""The two TSN networks as one: chunks and their flow to feature rows."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from extractors.errors import RecipeError, WeightsError
from extractors.flow.workers import ALGORITHMS, ChunkFlow, FlowWorkers, default_workers
from extractors.networks.build import WeightSources, asked, build_network, folds_of
from extractors.networks.crops import centre_crop, fit, ten_crops
from extractors.networks.fused import DTYPES, fast_precision, fold
from extractors.networks.weights import statistics
from extractors.prefetch import ahead, closed_after, torch_threads
from extractors.presets import FAST, Preset
from extractors.recipe import STREAMS, NetworkRecipe, Recipe
from extractors.video.frames import Chunk

IMAGES = {"cpu": 4, "cuda": 64}  # about as many of a file go through a network at a time; on a CPU more are no faster

T = TypeVar("T")


@dataclass(frozen=True)
class FeatureRow:
    """One chunk's features: rgb (2048,) and flow (1024,) float32, None of a stream not there; `end_time` in seconds."""

    index: int
    end_time: float
    rgb: np.ndarray | None
    flow: np.ndarray | None

    @property
    def features(self) -> dict[str, np.ndarray]:
        """By stream, of the streams there are."""
        return {stream: row for stream, row in zip(STREAMS, (self.rgb, self.flow), strict=True) if row is not None}


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


class TwoStream:
    """A network on RGB and one on flow, or one of them, in evaluation mode on one device, with their recipe.

    `device` is a torch device name. What computes features is a folded copy of each network, in the precision of the
    recipe; the networks themselves keep the weights as given. `sources` says where these are from.
    """

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        recipe: Recipe,
        device: str,
        sources: WeightSources | None = None,
    ):
        self.networks = networks
        for network in self.networks.values():
            network.to(device=device, memory_format=torch.channels_last)
            network.eval()
        self.recipe = recipe
        self.device = device
        self.sources = sources or WeightSources()
        self.seconds = StageSeconds()
        self.threads = default_workers()
        """Batches at once on a CPU, where there are no threads of flow to go by."""
        self._folded: dict[str, nn.Module] = {}

    def rgb_input(self, frames: np.ndarray) -> np.ndarray:
        """A chunk's frames (6, H, W, 3) → (crops · segments, 224, 224, 3) uint8: the central frame, or several."""
        n, segments = len(frames), self.recipe.rgb.segments
        if segments == 1:
            return self._cropped("rgb", frames[self.recipe.rgb_frame])
        # as mmaction2's SampleFrames picks them from a video of this length
        views = [self._cropped("rgb", frames[(2 * i + 1) * n // (2 * segments)]) for i in range(segments)]
        return np.stack(views, 1).reshape(-1, *views[0].shape[1:])  # of each crop all segments, one after the other

    def flow_input(self, flow: np.ndarray) -> np.ndarray:
        """A chunk's flow (10, H, W) → (crops, 224, 224, 10) uint8."""
        return self._cropped("flow", np.ascontiguousarray(flow.transpose(1, 2, 0)))

    def _cropped(self, stream: str, image: np.ndarray) -> np.ndarray:
        """(H, W, C) → (crops, 224, 224, C)."""
        crops, crop = self.recipe.parts[stream].crops, self.recipe.crop
        image = fit(image, self.recipe.short_side)
        return ten_crops(image, crop, flow=stream == "flow") if crops == 10 else centre_crop(image, crop)

    @torch.inference_mode()
    def pooled(self, stream: str, images: np.ndarray) -> np.ndarray:
        """(B, images, 224, 224, C) uint8 → (B, D) float32, averaged over space and the images of a chunk."""
        network = self._folded_network(stream)
        x = torch.from_numpy(images).to(self.device).flatten(0, 1)  # (B · images, 224, 224, C)
        x = self._scaled(stream, x).to(DTYPES[self.recipe.precision])
        features = network(x).float().mean((2, 3))  # (B · images, D)
        return features.unflatten(0, images.shape[:2]).mean(1).cpu().numpy()

    def _folded_network(self, stream: str) -> nn.Module:
        if stream not in self._folded:
            self._folded[stream] = fold(self.networks[stream], self.recipe.precision, self.device)
        return self._folded[stream]

    def _scaled(self, stream: str, x: Tensor) -> Tensor:
        """(N, 224, 224, C) uint8 → (N, C, 224, 224) as published; the permuted view is channels-last already."""
        part: NetworkRecipe = self.recipe.parts[stream]
        x = (x.flip(-1) if part.bgr else x).float().sub_(torch.tensor(part.mean, device=self.device))
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
        n_flow = workers.workers if with_flow else 0
        return self._rows(self._read(chunks, workers if with_flow else None), n_flow, 1 if live else self.batch)

    def rows_with_flow(self, chunks: Iterable[tuple[Chunk, np.ndarray]], threads: int) -> Iterator[FeatureRow]:
        """As `rows`, of chunks whose flow (10, H, W) uint8 is there already, by as many threads as compute flow there.

        Of a chunk's frames only the recipe's `rgb_frame` is looked at, so its network must see a frame at a time.
        """
        pending = ((chunk, ChunkFlow.known(flow)) for chunk, flow in chunks)
        return self._rows(self._timed(pending), threads, self.batch)

    def _rows(self, reading: Iterator[Pending], n_flow: int, batch: int) -> Iterator[FeatureRow]:
        self.prepare()
        # one thread of torch a batch, and as many batches at once as there are cores, or flow threads: cores change
        # between flow and networks as either has work, and none waits for another within a layer
        threads = 1 if self.device != "cpu" else n_flow or self.threads
        return self._compute(ahead(reading, batch + 2 * n_flow, "reader"), batch, threads)

    @property
    def batch(self) -> int:
        """Chunks that go through the networks at a time where as many are at hand."""
        images = max(self.recipe.parts[stream].images for stream in self.networks)
        return max(1, IMAGES[torch.device(self.device).type] // images)

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
        with closed_after(self._timed(chunks)) as source:
            for chunk in source:
                yield chunk, workers.submit(chunk.frames) if workers else None

    def _timed(self, items: Iterable[T]) -> Iterator[T]:
        """The same, with the time that it takes to have them."""
        with closed_after(items) as source:
            while True:
                start = perf_counter()
                item = next(source, None)
                self.seconds.decode += perf_counter() - start
                if item is None:
                    return
                yield item

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
        """Give a random network batch-norm statistics measured on images (N, segments, 224, 224, C) uint8.

        Without them a random network's activations carry little (its layers do not normalise). The recipe must be
        made again afterwards, because the network's hash changes.
        """
        network = self.networks[stream]
        norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average over the batches
        network.train()
        batch = max(2, batch // images.shape[1])
        for start in range(0, len(images), batch):
            part = torch.from_numpy(images[start : start + batch]).to(self.device)
            if part.shape[0] * part.shape[1] > 1:
                network(self._scaled(stream, part.flatten(0, 1)))
        network.eval()
        self._folded.pop(stream, None)


def default_device() -> str:
    """`cuda` when there is one, else `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def build_twostream(preset: Preset, sources: WeightSources, device: str, precision: str | None = None) -> TwoStream:
    """The networks a preset asks for with their weights, and the recipe that follows from them.

    `precision` is float32 or bf16; None for what the preset prefers on this device. Raises WeightsError,
    MissingPathError or RecipeError for an unusable file.
    """
    if precision is None:
        precision = fast_precision(device) if preset.precision == FAST else preset.precision
    networks, parts = {}, dict.fromkeys(STREAMS)
    for stream in preset.streams:
        part = replace(asked(stream, preset.parts[stream]), folds=folds_of(sources.files[stream], stream))
        networks[stream], parts[stream] = build_network(stream, part, sources)
    shared = {name: getattr(preset, name) for name in ("rgb_frame", "long_side", "short_side", "crop")}
    algorithm = preset.algorithm and ALGORITHMS[preset.algorithm]
    recipe = Recipe(**parts, **shared, flow_algorithm=algorithm, precision=precision)
    return TwoStream(networks, recipe, device, sources)


def rebuild_twostream(recipe: Recipe, sources: WeightSources, device: str) -> TwoStream:
    """The networks that a recipe names, checked against its hashes.

    Raises WeightsError when the files at hand (or this machine's random numbers) give other networks.
    """
    twostream = build_as(recipe, sources, device)
    for stream in recipe.streams:
        want, have = recipe.parts[stream], twostream.recipe.parts[stream]
        if want.sha256 != have.sha256:
            raise WeightsError(
                f"The {stream} network here is {have.weights} {have.sha256}, "
                f"the features come from {want.weights} {want.sha256}.",
                f"give the file they were made with as --{stream}-weights.",
            )
    return twostream


def build_as(recipe: Recipe, sources: WeightSources, device: str) -> TwoStream:
    """The networks of a recipe with whatever weights there are, and the recipe that they then have.

    Raises WeightsError where the recipe has a weights file and none is given.
    """
    networks, parts = {}, {}
    for stream in recipe.streams:
        want: NetworkRecipe = recipe.parts[stream]
        if want.weights != "random" and sources.files[stream] is None:
            raise WeightsError(
                f"The features come from {want.weights} {want.network} weights, and no file of them was given.",
                f"add `--{stream}-weights PATH`.",
            )
        networks[stream], parts[stream] = build_network(stream, want, sources)
    return TwoStream(networks, replace(recipe, **parts), device, sources)


def calibration_of(twostream: TwoStream) -> dict[str, dict[str, Tensor]]:
    """The batch-norm statistics of each random network, to be stored with the recipe."""
    return {
        stream: statistics(network)
        for stream, network in twostream.networks.items()
        if twostream.recipe.parts[stream].weights == "random"
    }
