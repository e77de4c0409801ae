"""Synthetic two-stream features on real label sequences, whose evidence at three ranges is known.

The 20 actions are ten pairs. What a chunk of an action shows, against white noise of variance 1 in every feature:

- *in a chunk*: that an action happens (`when`, in motion) and which pair it is of (`pair`, in appearance). An Ambiguous
  chunk shows that something happens, background nothing;
- *over seconds*: which of the pair it is (`member`), so faintly that a chunk hardly says it and a whole action does;
- *over minutes*: the same, by a cue of 6 s in the background, 30 to 240 s before the first action and wherever the next
  action is of the other member. All pairs share the direction of cues. What came before helps too, for real videos
  repeat the same action or two.

These directions are orthogonal to each other and to the nuisance: a constant and a slow drift of each video in
directions of their own. Everything but the labels is drawn anew in every epoch, the places of cues included, so that
nothing in the features tells which video it is. Equal settings give the same videos to the bit, whatever was drawn
before.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, THUMOS_CLASSES
from lstr.pipelines.datasets.dataset import LabelledVideo, TwoStreamArray

SUBSETS = {"training": "video_validation_*.npy", "testing": "video_test_*.npy"}
NOISE_ROWS = 8191  # a prime longer than any window, so that no window holds a row of noise twice
ACTIONS = [i for i, name in enumerate(THUMOS_CLASSES) if name not in (BACKGROUND, AMBIGUOUS)]
AMBIGUOUS_COLUMN = THUMOS_CLASSES.index(AMBIGUOUS)
N_PAIRS = len(ACTIONS) // 2
WHEN, PAIRS, MEMBERS = 0, slice(1, 1 + N_PAIRS), slice(1 + N_PAIRS, 1 + 2 * N_PAIRS)
CUE = 1 + 2 * N_PAIRS
RANK = CUE + 1
"""Dimensions of the evidence: when, which pair, which member of each pair, and the cues'."""


def pair_of(action: int) -> tuple[int, int]:
    """The pair of an action's column, from 0, and the sign of the action in it."""
    place = action - ACTIONS[0]
    return place // 2, 1 - 2 * (place % 2)


@dataclass(frozen=True)
class Generator:
    """How features are made. Strengths are in standard deviations of the noise, times in seconds."""

    rgb: int = 2048
    flow: int = 1024
    """Widths of the streams"""
    when: float = 1.2
    pair: float = 1.2
    member: float = 0.15
    cue: float = 2.0
    cue_seconds: float = 6.0
    before: tuple[float, float] = (30.0, 240.0)
    """From a cue's end to the action that it is about, drawn log-uniformly"""
    nuisance: float = 1.0
    nuisance_rank: int = 8
    """Directions of the nuisance in each stream"""
    slow_chunks: float = 64.0
    """Chunks in which a drift forgets all but 1/e"""
    seed: int = 0
    _kept: dict = field(default_factory=dict, compare=False, repr=False)

    def settings(self) -> dict:
        """Everything but what is kept, as JSON."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def means(self, columns: np.ndarray, cues: np.ndarray) -> np.ndarray:
        """Evidence (L, RANK) of chunks by their class (L,), and by the sign of a cue (L,) where there is one."""
        rows = np.zeros((len(columns), RANK), np.float32)
        rows[columns > 0, WHEN] = self.when
        for action in ACTIONS:
            pair, sign = pair_of(action)
            rows[columns == action, 1 + pair] = self.pair
            rows[columns == action, 1 + N_PAIRS + pair] = sign * self.member
        rows[:, CUE] = self.cue * cues
        return rows

    def cues(self, columns: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Where there are cues (L,): the sign of the actions that follow, 0 elsewhere."""
        found = np.zeros(len(columns), np.int8)
        length, announced, free = round(self.cue_seconds * FEATURES_PER_SECOND), 0, 0
        for start, stop, column in runs_of(columns):
            if column in ACTIONS:
                sign = pair_of(column)[1]
                places = _background(columns, free, start, length) if sign != announced else np.zeros(0, int)
                if len(places):
                    wanted = start - length - np.exp(random.uniform(*np.log(self.before))) * FEATURES_PER_SECOND
                    first = places[np.abs(places - wanted).argmin()]
                    found[first : first + length] = announced = sign
                free = stop
        return found

    def draw(self, labels: Mapping[str, np.ndarray], epoch: int) -> list[LabelledVideo]:
        """The videos of an epoch, by the labels (L, 22) of their ids; their features are made when they are read."""
        return [self.video(name, targets, epoch) for name, targets in labels.items()]

    def video(self, name: str, targets: np.ndarray, epoch: int) -> LabelledVideo:
        """One video of an epoch."""
        random = np.random.default_rng([self.seed, epoch, zlib.crc32(name.encode())])
        columns = targets.argmax(axis=1)
        means = self.means(columns, self.cues(columns, random))
        shown = {"rgb": np.delete(means, WHEN, axis=1), "flow": means[:, [WHEN]]}
        streams = []
        for stream, evidence in shown.items():
            rows = np.concatenate([evidence, self._nuisance(len(columns), random)], axis=1, dtype=np.float32)
            spread, noise = self._stream(stream, rows.shape[1])
            streams.append(Drawn(rows, spread, noise, int(random.integers(NOISE_ROWS))))
        return LabelledVideo(name, TwoStreamArray(*streams), targets)

    def evidence(self, video: LabelledVideo) -> np.ndarray:
        """All that the features of a video say of its labels (L, RANK): evidence under white noise of variance 1."""
        parts = [stream[:] @ stream.spread.T for stream in (video.features.rgb, video.features.flow)]
        rgb, flow = (part[:, : part.shape[1] - self.nuisance_rank] for part in parts)
        return np.concatenate([flow, rgb], axis=1)

    def _nuisance(self, n_chunks: int, random: np.random.Generator) -> np.ndarray:
        """(L, nuisance_rank): a constant of the video and a drift, each of the strength `nuisance`."""
        keep = np.exp(-1 / self.slow_chunks)
        steps = random.standard_normal((n_chunks, self.nuisance_rank)) * np.sqrt(1 - keep**2)
        drift = lfilter([1], [1, -keep], steps, axis=0)
        return self.nuisance * (random.standard_normal(self.nuisance_rank) + drift)

    def _stream(self, name: str, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Orthonormal directions (rank, width) of a stream, and its rows of white noise (NOISE_ROWS, width)."""
        if name not in self._kept:
            random, width = np.random.default_rng([self.seed, zlib.crc32(name.encode())]), getattr(self, name)
            directions = np.linalg.qr(random.standard_normal((width, rank)))[0].T.astype(np.float32)
            self._kept[name] = directions, random.standard_normal((NOISE_ROWS, width), np.float32)
        return self._kept[name]


@dataclass(frozen=True)
class Drawn:
    """One stream's features (L, width), made of a chunk's evidence and nuisance (L, rank) when it is read."""

    rows: np.ndarray
    spread: np.ndarray
    noise: np.ndarray
    first: int
    """row of noise of chunk 0"""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(L, width)"""
        return len(self.rows), self.spread.shape[1]

    def __getitem__(self, chunks: slice | np.ndarray) -> np.ndarray:
        which = np.arange(len(self.rows))[chunks]
        return self.rows[which] @ self.spread + self.noise[(self.first + which) % NOISE_ROWS]


def runs_of(columns: np.ndarray) -> list[tuple[int, int, int]]:
    """(start, stop, class) of each run of one class."""
    edges = [0, *(np.flatnonzero(np.diff(columns)) + 1).tolist(), len(columns)]
    return [(a, b, int(columns[a])) for a, b in zip(edges[:-1], edges[1:], strict=True) if b > a]


def _background(columns: np.ndarray, first: int, stop: int, length: int) -> np.ndarray:
    """Where `length` chunks of background begin that lie in [first, stop)."""
    if stop - first < length:
        return np.zeros(0, int)
    taken = np.concatenate([[0], np.cumsum(columns[first:stop] > 0)])
    return first + np.flatnonzero(taken[length:] == taken[:-length])


def read_targets(published: Path) -> dict[str, dict[str, np.ndarray]]:
    """Published targets (L, 22) by subset and video id, from `published`/target_perframe/*.npy."""
    folder = published / "target_perframe"
    return {
        subset: {path.stem: np.load(path) for path in sorted(folder.glob(pattern))}
        for subset, pattern in SUBSETS.items()
    }
