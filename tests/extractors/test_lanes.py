"""Where work is done: the extensions of a processor, threads, and the way of a GPU, here on a processor."""

import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from lstr.extractors import devices, lanes
from lstr.extractors.devices import fast_precision
from lstr.extractors.lanes import Lane, open_lane
from lstr.extractors.networks.crops import View, centre_crop
from lstr.extractors.networks.torch_runtime import crops_of
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.run import IMAGES, Ahead, TwoStream
from lstr.extractors.video.frames import Chunk

AVX512 = "fpu avx2 avx512f avx512_vnni avx512_bf16"
CORES = "processor\t: 0\n{}\n\nprocessor\t: 1\nvendor_id\t: another\nflags\t\t: amx_bf16\n"


@pytest.mark.parametrize(
    ("told", "precision"),
    [
        (f"vendor_id\t: GenuineIntel\nflags\t\t: {AVX512} amx_tile amx_bf16", "bf16"),
        (f"vendor_id\t: GenuineIntel\nflags\t\t: {AVX512}", "float32"),
        (f"vendor_id\t: AuthenticAMD\nflags\t\t: {AVX512}", "bf16"),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 avx512f", "float32"),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx2 amx_bf16_of_another_name", "float32"),
        ("Features\t: asimd bf16 i8mm", "float32"),
        ("", "float32"),
    ],
)
def test_fast_is_bfloat16_where_it_is_faster(monkeypatch, tmp_path, told, precision):
    monkeypatch.setattr(devices, "CPU", tmp_path / "cpuinfo")
    assert fast_precision("cpu") == "float32", "of another system nothing is known"
    devices.CPU.write_text(CORES.format(told))
    assert fast_precision("cpu") == precision


def running(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def ahead(items, n, name):
    with closing(Ahead(items, n, name)) as made:
        yield from made


@pytest.mark.parametrize("n", [1, 2, 50])
def test_order_is_kept_and_a_failure_comes_in_its_place(n):
    def source():
        yield from range(20)
        raise OSError("unplugged")

    made = []
    with pytest.raises(OSError, match="unplugged"):
        for item in ahead(source(), n, "numbers"):
            made.append(item)
    assert made == [*range(20)] and not running("numbers")


def test_no_more_is_made_than_asked_for():
    made, resting = [], threading.Event()

    def source():
        for i in range(100):
            made.append(i)
            if len(made) == 4:
                resting.set()
            yield i

    items = ahead(source(), 3, "numbers")
    assert next(items) == 0
    assert resting.wait(10)  # the one taken, and three
    threading.Event().wait(0.05)
    assert made == [0, 1, 2, 3]
    items.close()


SIDE = 32
RGB = NetworkRecipe("tiny", "custom", "", 10, (104.0, 117.0, 128.0), (58.0, 57.0, 1.5), width=6, bgr=True)
FLOW = NetworkRecipe("tiny", "custom", "", 10, (128.0,) * 10, (1.0,) * 10, width=6)


class Replaying(Lane):
    """Copies what is fetched, and replays into the same memory as a graph does."""

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


def twostream(**parts) -> TwoStream:
    torch.manual_seed(0)
    made = {"rgb": RGB, "flow": FLOW} | parts
    networks = {name: nn.Conv2d(len(part.mean), 6, 5, 2) for name, part in made.items()}
    return TwoStream(networks, Recipe(**made, flow_algorithm="dis-medium", short_side=40, crop=SIDE), "cpu")


def chunks(n: int, height: int = 48, width: int = 64) -> list:
    random = np.random.default_rng(n)
    frames = random.integers(0, 256, (n, 6, height, width, 3), np.uint8)
    return [(Chunk(i, i / 4, frames[i]), random.integers(0, 256, (10, height, width), np.uint8)) for i in range(n)]


def rows(made: TwoStream, video: list) -> list:
    return list(made.rows(iter(video), threads=1))


@pytest.mark.parametrize("crops", [1, 2, 10])
@pytest.mark.parametrize("size", [(40, 53), (41, 40), (57, 40)])
def test_crops_on_a_device_are_the_same_bytes(crops, size):
    for flow, channels in ((False, 3), (True, 10)):
        images = np.random.default_rng(0).integers(0, 256, (3, *size, channels), np.uint8)
        view = View((SIDE, SIDE), crops, flow)
        trimmed = images if crops == 10 else [centre_crop(image, *view.size)[0] for image in images]
        found = crops_of(torch.from_numpy(np.stack(trimmed)), view)
        assert (found.numpy() == np.stack([view.of(image) for image in images])).all()


@pytest.mark.parametrize("crops", [1, 2, 10])
def test_features_by_replayed_networks(crops, monkeypatch):
    """Of a whole batch, of what is left at the end of a video, and of chunks of two sizes together."""
    monkeypatch.setattr(lanes, "open_lane", lambda device: Replaying())
    monkeypatch.setitem(IMAGES, "cpu", IMAGES["cuda"])
    parts = {"rgb": replace(RGB, crops=crops), "flow": replace(FLOW, crops=crops)}
    made = twostream(**parts)
    videos = chunks(made.batch + 1), chunks(1, 64, 48)
    found = [row for video in videos for row in rows(made, video)]
    mixed = [made.views["rgb"].image(video[0][0].frames) for video in videos]
    together = made._network("rgb").of_fitted(mixed, made.views["rgb"])
    monkeypatch.setattr(lanes, "open_lane", open_lane)
    exact = twostream(**parts)
    expected = [row for video in videos for row in rows(exact, video)]
    assert [row.index for row in found] == [row.index for row in expected]
    for stream in ("rgb", "flow"):
        ours, theirs = (np.stack([row.features[stream] for row in made]) for made in (found, expected))
        assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()
    pair = np.stack([exact.pooled("rgb", exact.views["rgb"].of(image)[None])[0] for image in mixed])
    assert np.abs(together - pair).max() <= 1e-5 * np.abs(pair).max()


@pytest.mark.gpu
def test_a_lane_of_a_gpu():
    """Copies, captured work and crops as on a processor, beside another thread that keeps the GPU busy."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    ended = threading.Event()
    square = torch.rand(1000, 1000, device="cuda")  # not drawn in the thread: no draw may meet a capture

    def busy():
        other = lanes.CudaLane("cuda")
        while not ended.is_set():
            with other.working():
                wait = other.fetch(square @ square)
            wait()

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        torch.manual_seed(0)
        parts = {"rgb": RGB, "flow": FLOW}
        networks = {name: nn.Conv2d(len(part.mean), 6, 5, 2) for name, part in parts.items()}
        recipe = Recipe(**parts, flow_algorithm="dis-medium", short_side=40, crop=SIDE)
        expected = rows(twostream(), chunks(9))
        found = rows(TwoStream(networks, recipe, "cuda"), chunks(9))
    finally:
        ended.set()
        thread.join()
    for ours, theirs in zip(found, expected, strict=True):
        for stream in ("rgb", "flow"):
            assert np.abs(ours.features[stream] - theirs.features[stream]).max() <= 1e-4 * np.abs(theirs.rgb).max()
