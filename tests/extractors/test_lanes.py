"""Instruction sets of a CPU, threads that read ahead, and the lane of a GPU, here on the CPU."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from lstr.extractors import devices, lanes
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.run import IMAGES, Ahead, TwoStream
from lstr.extractors.video.frames import Chunk

AVX512 = "fpu avx2 avx512f avx512_vnni avx512_bf16"
CORES = "processor\t: 0\n{}\n\nprocessor\t: 1\nvendor_id\t: another\nflags\t\t: amx_bf16\n"


@pytest.mark.parametrize(
    ("description", "precision"),
    [
        (f"vendor_id\t: GenuineIntel\nflags\t\t: {AVX512} amx_tile amx_bf16", "bf16"),
        (f"vendor_id\t: GenuineIntel\nflags\t\t: {AVX512}", "float32"),
        (f"vendor_id\t: AuthenticAMD\nflags\t\t: {AVX512}", "bf16"),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 avx512f", "float32"),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx2 amx_bf16_of_another_name", "float32"),
        ("Features\t: asimd bf16 i8mm", "float32"),
    ],
)
def test_fast_precision_of_a_cpu(monkeypatch, tmp_path, description, precision):
    monkeypatch.setattr(devices, "CPU", tmp_path / "cpuinfo")
    assert devices.fast_precision("cpu") == "float32", "a system without this file"
    devices.CPU.write_text(CORES.format(description))
    assert devices.fast_precision("cpu") == precision


@pytest.mark.parametrize("n", [1, 2, 50])
def test_reading_ahead_is_ordered_and_limited(n):
    def source():
        for number in range(20):
            n_ahead.append(number - len(numbers))
            yield number
        raise OSError("unplugged")

    numbers, n_ahead = [], []
    with closing(Ahead(source(), n, "numbers")) as items, pytest.raises(OSError, match="unplugged"):
        for number in items:
            numbers.append(number)
    assert numbers == [*range(20)] and max(n_ahead) <= n + 1
    assert "numbers" not in {thread.name for thread in threading.enumerate()}


SIDE = 32
RGB = NetworkRecipe("tiny", "custom", "", 10, (104.0, 117.0, 128.0), (58.0, 57.0, 1.5), width=6, bgr=True)
FLOW = NetworkRecipe("tiny", "custom", "", 10, (128.0,) * 10, (1.0,) * 10, width=6)


class ReplayLane(lanes.Lane):
    """A lane that copies results, and replays into the same memory as a CUDA graph does."""

    captures = True

    def send(self, arrays):
        return super().send(arrays).clone()

    def fetch(self, result):
        return result.clone().numpy

    def capture(self, work):
        memory = work().clone()

        def replay():
            memory.copy_(work())
            return memory

        return replay


def random_twostream(device: str = "cpu", crops: int = RGB.crops) -> TwoStream:
    torch.manual_seed(0)
    parts = {"rgb": replace(RGB, crops=crops), "flow": replace(FLOW, crops=crops)}
    networks = {name: nn.Conv2d(len(part.mean), 6, 5, 2) for name, part in parts.items()}
    return TwoStream(networks, Recipe(**parts, flow_algorithm="dis-medium", short_side=40, crop=SIDE), device)


def random_chunks(n: int, height: int, width: int) -> list:
    """Return n pairs of a chunk and its flow."""
    random = np.random.default_rng(n)
    frames = random.integers(0, 256, (n, 6, height, width, 3), np.uint8)
    return [(Chunk(i, i / 4, frames[i]), random.integers(0, 256, (10, height, width), np.uint8)) for i in range(n)]


def features(twostream: TwoStream, videos: tuple[list, ...]) -> dict[str, np.ndarray]:
    rows = [row for video in videos for row in twostream.rows(iter(video), threads=1)]
    assert [row.index for row in rows] == [chunk.index for video in videos for chunk, _ in video]
    return {stream: np.stack([row.features[stream] for row in rows]) for stream in ("rgb", "flow")}


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@contextmanager
def busy_gpu() -> Iterator[None]:
    """Keep the GPU busy in another thread."""
    is_over = threading.Event()
    square = torch.rand(1000, 1000, device="cuda")  # not drawn in the thread: no draw may coincide with a capture

    def work():
        lane = lanes.CudaLane("cuda")
        while not is_over.is_set():
            with lane.working():
                wait = lane.fetch(square @ square)
            wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("crops", [1, 2, 10])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_features_of_captured_networks(device, crops, monkeypatch):
    """For a full batch, the last chunks of a video, and chunks of two sizes together."""
    exact = random_twostream(crops=crops)
    monkeypatch.setitem(IMAGES, "cpu", IMAGES["cuda"])
    captured = random_twostream(device, crops)
    videos = random_chunks(captured.batch + 1, 48, 64), random_chunks(1, 69, 48)
    images = [captured.views["rgb"].image(video[0][0].frames) for video in videos]
    with monkeypatch.context() as patch, busy_gpu() if device == "cuda" else nullcontext():
        if device == "cpu":
            patch.setattr(lanes, "open_lane", lambda device: ReplayLane())
        found = features(captured, videos)
        mixed = captured._network("rgb").of_fitted(images, captured.views["rgb"])
    tolerance = 1e-4 if device == "cuda" else 1e-5
    for stream, expected in features(exact, videos).items():
        assert_close(found[stream], expected, tolerance)
    expected = np.stack([exact.pooled("rgb", exact.views["rgb"].of(image)[None])[0] for image in images])
    assert_close(mixed, expected, tolerance)
