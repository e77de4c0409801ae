"""How long a training and its evaluation take on this machine, by a few steps of them, and what is left of them."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

from lstr.batch import predict_ahead
from lstr.config import WindowConfig
from lstr.kinds import make_model
from lstr.pipelines.datasets.dataset import Split
from lstr.pipelines.training.batches import PieceMaker
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.ranks import ALONE
from lstr.pipelines.training.sampling import draw_windows
from lstr.pipelines.training.step import Learner

ENOUGH = 6.0  # seconds of measuring, after which no more is measured
KNOWN = 5.0  # seconds of work after which its own speed says more than what was measured before
FIRST_CHUNKS, MOST_CHUNKS = 8, 512
NOTHING = torch.zeros(1), torch.ones(1)  # statistics that change no feature


@dataclass(frozen=True)
class Pace:
    """Seconds that a step of training and the score of a chunk take."""

    step: float
    chunk: float
    windows: int
    """How many windows of a step were measured: fewer than it has where a few take long"""
    whole: bool
    """Whether those were all"""

    def seconds(self, steps: int, chunks: int) -> float:
        """Seconds of so many steps and scores."""
        return steps * self.step + chunks * self.chunk


def measure(training: Split, testing: Split, model: WindowConfig, config: TrainConfig, device: str) -> Pace:
    """Take a few real steps of training, which are forgotten, and score a few chunks.

    Of a step, and of a video, only as much as tells what all of it takes: a step of the largest models takes minutes
    on a processor.
    """
    videos = training.narrowed(model).videos
    with torch.random.fork_rng(devices=[]):
        learner = Learner(model, config, training.labels.classes, NOTHING, device, ALONE)
        make = PieceMaker(videos, model, config, learner.outputs, ALONE, learner.device)
        drawn = draw_windows(videos, model, config, 0)[: config.batch_size]
        step, windows = _extrapolated(lambda n: learner.step(make(drawn[:n]), 0, lr=0.0), 1, len(drawn))
    scorer = make_model(model, len(training.labels.classes)).to(device).eval()
    features = max(testing.narrowed(model).videos, key=lambda video: len(video.features)).features
    most = min(len(features), MOST_CHUNKS)
    scored, _ = _extrapolated(lambda n: predict_ahead(scorer, features[:n]), min(FIRST_CHUNKS, most), most)
    return Pace(step, scored / most, windows, windows == len(drawn))


def _extrapolated(work: Callable[[int], object], first: int, most: int) -> tuple[float, int]:
    """Seconds of so much work as `most`, and how much of it was measured.

    From `first` on ever twice as much, as long as time allows, but twice at least: what every step has, as that of the
    optimiser, is told by two from what each window adds.
    """
    work(first)  # to warm up
    measured = [(first, _seconds(work, first))]
    while measured[-1][0] < most and (len(measured) < 2 or sum(seconds for _, seconds in measured) < ENOUGH):
        n = min(most, 2 * measured[-1][0])
        measured.append((n, _seconds(work, n)))
    n, seconds = measured[-1]
    if n == most:
        return seconds, n
    fewer, before = measured[-2]
    added = min(max(0.0, seconds - before) / (n - fewer), seconds / n)
    return seconds + added * (most - n), n


def _seconds(work: Callable[[int], object], n: int) -> float:
    start = perf_counter()
    work(n)
    return perf_counter() - start


class TimeLeft:
    """What is left of all seeds: by the pace that was measured, and by what they really take once that is known."""

    def __init__(self, pace: Pace, steps: int, chunks: int):
        self._pace = pace
        self.steps, self.chunks = steps, chunks
        self._spent = {"steps": 0.0, "chunks": 0.0}
        self._done = {"steps": 0, "chunks": 0}

    def skip(self, what: str, n: int) -> None:
        """So many steps or chunks need not be done, or were done before."""
        setattr(self, what, max(0, getattr(self, what) - n))

    def count(self, what: str, n: int, seconds: float) -> None:
        """So many steps or chunks were done in so many seconds."""
        self.skip(what, n)
        self._spent[what] += seconds
        self._done[what] += n

    @property
    def seconds(self) -> float:
        """Seconds of everything that is left."""
        return self.steps * self._each("steps", self._pace.step) + self.chunks * self._each("chunks", self._pace.chunk)

    def _each(self, what: str, measured: float) -> float:
        done, spent = self._done[what], self._spent[what]
        return spent / done if done and spent > KNOWN else measured
