"""Measure the speed of each kind of model at its published size, relative to LSTR; writes models.json.

Weights, features and memories are random, because speed does not depend on them. `lstr models` shows these speeds.

    python benchmarks/models.py [RECORD.json] [--kinds rnn miniroad] [--training] [--seconds 5]
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch
from lstr_step import Measuring, Row, follow, interleave, ratio, stream_row, summary

from lstr import streaming
from lstr.config import WindowConfig
from lstr.errors import ConfigError
from lstr.kinds import KINDS
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.models.kind import Model
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.models import build, cost_of, filled
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.training.config import TrainConfig, preset_named
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.window_samples import draw_windows, read_ahead

ROUNDS = 5
CORES = (1, 2)
VIDEOS, CHUNKS = 2, 4096
"""Of random features that training is measured on: memories of every length are mostly full."""


@dataclass(frozen=True)
class KindsBench:
    """Which kinds to measure, and for how long."""

    kinds: tuple[str, ...] = ()
    """None is all of them"""
    seconds: float = 5.0
    """Rough time of a row"""
    training: bool = False
    """Whether steps of training are measured too"""
    shapes: tuple[tuple[str, WindowConfig], ...] = ()
    """Sizes by kind in place of the published ones"""

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ConfigError(f"Unknown kind of model: {kind!r}.", f"Choose one of: {', '.join(KINDS)}.")

    @property
    def measured(self) -> dict[str, WindowConfig]:
        """The size of each kind that is measured."""
        own = dict(self.shapes)
        return {kind: own.get(kind, KINDS[kind].published_size) for kind in self.kinds or KINDS}


def bench_kinds(options: KindsBench) -> Iterator[Progress | Finished[dict]]:
    """Measure a stream of each kind, and with `training` its training steps; the last event has the record.

    Each kind is measured in turns with LSTR, so that the ratio does not depend on other load on the machine.
    """
    threads = torch.get_num_threads()
    cores = [n for n in CORES if n <= (os.cpu_count() or 1)]
    rows: dict = {}
    about = about_machine() | {"device": "cpu", "weights": "random", "seconds_a_row": options.seconds}
    about |= {"classes": len(THUMOS_CLASSES), "windows": f"{VIDEOS} random videos of {CHUNKS} chunks"}
    n_parts = len(options.measured) * (len(cores) * ROUNDS + options.training)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for done, _ in enumerate(measure(options, cores, rows), start=1):
                yield Progress("measuring", done, n_parts)
    finally:
        torch.set_num_threads(threads)
    yield Finished({**about, **rows})


def measure(options: KindsBench, cores: list[int], rows: dict) -> Measuring[None]:
    """Measure each kind into `rows`, one at a time, next to the same LSTR."""
    found = rows["kinds"] = {}
    lstr = build(dict(options.shapes).get("lstr", KINDS["lstr"].published_size), len(THUMOS_CLASSES), "cpu")
    for kind, config in options.measured.items():
        model = build(config, len(THUMOS_CLASSES), "cpu")
        row: dict = {"preset": KINDS[kind].published_preset, "date": date.today().isoformat()}
        row |= {**cost_of(config, len(THUMOS_CLASSES)), "stream": {}}
        for n in cores:
            torch.set_num_threads(n)
            row["stream"][str(n)] = yield from stream_speed(model, lstr, options.seconds)
        del model
        if options.training:
            train = preset_named(row["preset"])[1] if row["preset"] else TrainConfig()
            row["training"] = training_speed(config, train, options.seconds)
            yield
        found[kind] = row


class Meter:
    """Processor time of a row's steps, over all threads."""

    def __init__(self, row: Row) -> None:
        self.row, self.seconds, self.steps = row, 0.0, 0

    def step(self) -> None:
        """Run one step of the row."""
        start = process_time()
        self.row.step()
        self.seconds += process_time() - start
        self.steps += 1


def stream_speed(model: Model, lstr: Model, seconds: float) -> Measuring[dict]:
    """Measure one stream of a model in turns with one of an LSTR."""
    meter = Meter(stream_row(model, filled(streaming.create(model))))
    reference = stream_row(lstr, filled(streaming.create(lstr)))
    rows = {"lstr": reference, "own": Row(meter.step, meter.row.burst)}
    taken = yield from interleave(rows, seconds, ROUNDS, "cpu")
    processor = round(1000 * meter.seconds / meter.steps, 3)
    return {**summary(taken["own"]), "processor_ms": processor, "ratio_to_lstr": ratio(taken["lstr"], taken["own"])}


def random_videos(config: WindowConfig, n_chunks: int) -> list[LabelledVideo]:
    """Return videos of random features; each chunk has one random class."""
    random = np.random.default_rng(0)
    videos = []
    for name in range(VIDEOS):
        widths = config.rgb_dim, config.flow_dim
        rgb, flow = (random.standard_normal((n_chunks, width), dtype=np.float32) for width in widths)
        targets = np.eye(len(THUMOS_CLASSES), dtype=np.uint8)[random.integers(0, 21, n_chunks)]
        videos.append(LabelledVideo(str(name), TwoStreamArray(rgb, flow), targets))
    return videos


def training_speed(config: WindowConfig, train: TrainConfig, seconds: float) -> dict:
    """Measure training steps per second with one read-ahead thread, and the share of time that waits for it."""
    videos = random_videos(config, CHUNKS)
    learner = Learner(videos, THUMOS_CLASSES, config, train)
    drawn = [window for epoch in range(20) for window in draw_windows(videos, config, train, epoch)]
    jobs = [drawn[at : at + train.batch_size] for at in range(0, len(drawn), train.batch_size)]
    batches, waited, steps = read_ahead(jobs, learner.make_batch, 1), 0.0, 0
    learner.step(next(batches), 0, train.lr)  # the first one makes the optimiser's tensors
    begun, used = perf_counter(), process_time()
    while not steps or perf_counter() - begun < seconds:
        start = perf_counter()
        batch = next(batches, None)
        waited += perf_counter() - start
        if batch is None:
            break
        learner.step(batch, steps + 1, train.lr)
        steps += 1
    took, processor = perf_counter() - begun, process_time() - used
    return {
        "steps_per_second": round(steps / took, 3),
        "windows_per_second": round(steps * train.batch_size / took, 2),
        "processor_seconds_a_step": round(processor / steps, 3),
        "data_wait": round(waited / took, 4),
        "batch_size": train.batch_size,
        "steps": steps,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", nargs="?", type=Path, default=Path(__file__).with_name("models.json"))
    parser.add_argument("--kinds", nargs="*", default=(), help="these alone")
    parser.add_argument("--training", action="store_true", help="measure steps of training too")
    parser.add_argument("--seconds", type=float, default=5.0, help="rough time of a row")
    given = parser.parse_args()
    follow(bench_kinds(KindsBench(tuple(given.kinds), given.seconds, given.training)), given.record)


if __name__ == "__main__":
    main()
