"""Whole videos scored at once beside windows recomputed 16 at a time, at THUMOS size; writes batch-evaluation.json.

python benchmarks/batch_evaluation.py [--lengths 1057 3000]

Both run in turn in one process, on one thread, with the same random weights and features; scores must be equal.
"""

import argparse
from pathlib import Path
from time import process_time

import numpy as np
import torch

from lstr.batch import predict_ahead, shared_constants
from lstr.kinds import make_model, presets
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine
from lstr.windows.windows import gather

WINDOWS = 16
THUMOS_CHUNKS = 225_222  # of the 213 videos of the test split


@torch.no_grad()
def recompute(model, features: torch.Tensor, ends: np.ndarray) -> tuple[torch.Tensor, float, float]:
    """Scores (B, C) of windows that end at `ends` >= 31, seconds with and without gathering features."""
    start = process_time()
    windows = gather(features, ends, model.config)
    gathered = process_time()
    scores = model(windows)[:, model.config.work_length - 1].softmax(dim=-1)
    return scores, process_time() - start, process_time() - gathered


def measure(preset: str, lengths: list[int]) -> dict:
    """Milliseconds per chunk of both ways, on a video of each length."""
    torch.manual_seed(0)
    model = make_model(presets()[preset].model, 22).eval()
    constants = shared_constants(model)
    rng = np.random.default_rng(0)
    recompute(model, torch.randn(100, model.config.input_dim), np.full(WINDOWS, 99))  # the first is slower
    videos, difference = [], 0.0
    for length in lengths:
        features = torch.randn(length, model.config.input_dim)
        slow = []
        for part in range(2):  # before and after, for the machine may drift
            ends = np.sort(rng.choice(np.arange(31, length), WINDOWS, replace=False))
            expected, *seconds = recompute(model, features, ends)
            slow.append(seconds)
            if part == 0:
                start = process_time()
                scores = predict_ahead(model, features, constants=constants)[:, 0]
                fast = process_time() - start
            difference = max(difference, float((scores[ends] - expected).abs().max()))
        whole, alone = (1000 * seconds / WINDOWS for seconds in np.mean(slow, axis=0))
        once = 1000 * fast / length
        videos.append(
            {
                "chunks": length,
                "recomputed_ms": round(whole, 2),
                "recomputed_ms_without_gathering": round(alone, 2),
                "at_once_ms": round(once, 2),
                "ratio": round(whole / once, 2),
                "ratio_without_gathering": round(alone / once, 2),
            }
        )
    hours = {name: round(videos[0][name] * THUMOS_CHUNKS / 3.6e6, 2) for name in ("recomputed_ms", "at_once_ms")}
    return {
        "grid": model.config.grid,
        "videos": videos,
        "largest_difference": difference,
        "estimated_hours_for_the_test_split": {name.removesuffix("_ms"): value for name, value in hours.items()},
    }


def main() -> None:
    """Measure both grids and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1057, 3000])
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("batch-evaluation.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    record = {
        **about_machine(),
        "threads": 1,
        "time": "processor",
        "windows_together": WINDOWS,
        **{preset: measure(preset, options.lengths) for preset in ("thumos14", "thumos14-published")},
    }
    write_json(options.output, record)


if __name__ == "__main__":
    main()
