"""Whether each picture of a long video is the one that is asked for, and how long that takes; writes exact-frames.json.

Each frame shows its own number in black and white squares, so that a picture says which one it is, and decoding from
the beginning says the same of all. python benchmarks/exact_frames.py [--hours 3] [--asked 300]
"""

import argparse
import tempfile
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import av
import numpy as np

from lstr.extractors.video.exact_frames import ExactFrames
from lstr.extractors.video.frame_index import index_frames
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

RATE, GROUP, SQUARE = 25, 250, 16
COLUMNS, ROWS = 6, 4
"""24 squares, of which each is a bit of the number"""


def picture_of(number: int) -> np.ndarray:
    """A picture (H, W) of 0 and 255 that shows a number."""
    bits = (number >> np.arange(COLUMNS * ROWS)) & 1
    squares = bits.reshape(ROWS, COLUMNS).astype(np.uint8) * 255
    return squares.repeat(SQUARE, 0).repeat(SQUARE, 1)


def number_in(image: np.ndarray) -> int:
    """The number that a picture (H, W) or (H, W, 3) shows."""
    grey = image if image.ndim == 2 else image[..., 1]
    middles = grey[SQUARE // 2 :: SQUARE, SQUARE // 2 :: SQUARE][:ROWS, :COLUMNS]
    return int(((middles > 127).ravel().astype(np.int64) << np.arange(COLUMNS * ROWS)).sum())


def write_counted(path: Path, seconds: float) -> int:
    """Write a video whose frames show their numbers, with B-frames; how many frames it has."""
    count = round(seconds * RATE)
    with av.open(str(path), "w") as container:
        options = {"preset": "superfast", "g": str(GROUP), "bf": "2", "crf": "18"}
        stream = container.add_stream("libx264", rate=Fraction(RATE), options=options)
        stream.width, stream.height, stream.pix_fmt = COLUMNS * SQUARE, ROWS * SQUARE, "yuv420p"
        grey = np.full((ROWS * SQUARE * 3 // 2, COLUMNS * SQUARE), 128, np.uint8)
        for number in range(count):
            grey[: ROWS * SQUARE] = picture_of(number)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format="yuv420p")))
        container.mux(stream.encode())
    return count


def decoded_numbers(path: Path) -> np.ndarray:
    """The numbers that all pictures show, one after another."""
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "AUTO"
        planes = (frame.to_ndarray(format="gray8") for frame in container.decode(video=0))
        return np.array([number_in(plane) for plane in planes])


def asked_of(count: int, random: int) -> list[int]:
    """Frames at random, at the edges of groups of pictures, and at both ends."""
    rng = np.random.default_rng(0)
    edges = [at + step for at in rng.choice(count // GROUP, 20) * GROUP for step in (-1, 0, 1)]
    near = [0, 1, 2, count - 3, count - 2, count - 1]
    return [int(at) for at in [*near, *edges, *rng.integers(0, count, random)] if 0 <= at < count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--asked", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counted.mp4"
        count = write_counted(path, arguments.hours * 3600)
        start = perf_counter()
        index = index_frames(path)
        indexed = perf_counter() - start
        start = perf_counter()
        in_order = decoded_numbers(path)
        decoded = perf_counter() - start
        assert len(index.times) == len(in_order) == count, (len(index.times), len(in_order), count)
        wrong, took = 0, []
        with ExactFrames(index) as frames:
            for number in asked_of(count, arguments.asked):
                start = perf_counter()
                image = frames.image(number, COLUMNS * SQUARE)
                took.append(1000 * (perf_counter() - start))
                wrong += number_in(image) != in_order[number] or in_order[number] != number
                wrong += abs(float(index.times[number]) - number / RATE) > 1e-6
        record = {
            "hours": arguments.hours,
            "frames": count,
            "megabytes": round(path.stat().st_size / 1e6, 1),
            "index_seconds": round(indexed, 2),
            "decode_all_seconds": round(decoded, 1),
            "asked": len(took),
            "wrong": int(wrong),
            "frame_ms": {"median": round(float(np.median(took)), 1), "worst": round(max(took), 1)},
        }
    write_json(Path(__file__).with_name("exact-frames.json"), {**about_machine(), **record})
    print(record)


if __name__ == "__main__":
    main()
