"""Long videos joined from clips of two sets, in which an early event decides how a later one is called.

The clips are cut from UT-Interaction (hugs, five other interactions, and the stretches between them) and from UR Fall
(people who walk or sit, fall, and lie). A joined video has a lead, one interaction, a gap that other clips fill, and a
fall. Where the interaction is a hug the fall is called A, else B; no other hug is in the video. So the pixels are real,
and how a fall is called is known from the hug or by chance.

What is joined are features, which is the same as to join pixels: with RGB differences a chunk's features are made of
its six frames alone, and clips are joined at borders of chunks (`check_seams` of joined.py tries it on a file).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from finetuned import folds_of
from recall_task import chunks_of
from synthetic_features import runs_of

from lstr.labels.label_set import BACKGROUND, Labels, read_labels, targets
from lstr.pipelines.datasets.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.features.folder import open_features

INTERACTIONS, FALLS = "ut_interaction", "urfall"
SETS = (INTERACTIONS, FALLS)
CUE, FALL = "hug", "falling"
CLASSES = (BACKGROUND, "A", "B")
WIDTH = 128
"""Principal directions that the features of a fold are reduced to."""
LEAD = 20.0
"""Seconds before the interaction that decides, at most"""
GAPS = (5.0, 60.0)
"""Seconds from that interaction's end to the start of the fall, drawn log-uniformly in training"""
SHORTEST = 4
"""Chunks of a filling clip, at least"""


@dataclass(frozen=True)
class Clip:
    """A piece of a video: its features (L, D), and where somebody falls in it."""

    source: str
    rows: np.ndarray
    fall: tuple[int, int] = (0, 0)
    """first chunk, and the one after the last"""


@dataclass(frozen=True)
class Clips:
    """What videos are joined from."""

    hugs: list[Clip]
    others: list[Clip]
    """the five other interactions"""
    quiet: list[Clip]
    """nothing happens between two people"""
    ordinary: list[Clip]
    """people who walk or sit, before they fall"""
    falls: list[Clip]


@dataclass(frozen=True)
class Joined:
    """A joined video, and what it was joined from."""

    video: LabelledVideo
    fall: tuple[int, int]
    """first chunk, and the one after the last"""
    sources: tuple[str, str]
    """the videos of the interaction that decides, and of the fall"""
    gap: float

    @property
    def called(self) -> int:
        """The column of A or B."""
        return int(self.video.targets[self.fall[0]].argmax())


def join(random: np.random.Generator, clips: Clips, after_hug: bool, gap: float, clip: Clip, cue: Clip) -> Joined:
    """A video of a lead, the interaction `cue`, a gap of so many seconds, and the fall of `clip`."""
    start, stop = clip.fall
    before = min(start, chunks_of(gap))  # what the clip has before its fall is part of the gap
    parts = [*fill(random, clips, chunks_of(random.uniform(0, LEAD))), cue.rows]
    parts += [*fill(random, clips, chunks_of(gap) - before), clip.rows[start - before :]]
    rows = np.concatenate(parts)
    first = len(rows) - (len(clip.rows) - start)
    fall = (first, first + stop - start)
    wanted = np.zeros((len(rows), len(CLASSES)), np.uint8)
    wanted[:, 0] = 1
    wanted[slice(*fall)] = np.eye(len(CLASSES), dtype=np.uint8)[1 if after_hug else 2]
    nothing = np.zeros((len(rows), 0), np.float32)
    video = LabelledVideo(f"{cue.source}+{clip.source}", TwoStreamArray(nothing, rows), wanted)
    return Joined(video, fall, (cue.source, clip.source), gap)


def fill(random: np.random.Generator, clips: Clips, length: int) -> list[np.ndarray]:
    """Clips without a hug that are so many chunks long together; the last one is cut to fit."""
    parts: list[np.ndarray] = []
    while length > 0:
        group = (clips.others, clips.quiet, clips.ordinary)[random.integers(3)]
        parts.append(group[random.integers(len(group))].rows[:length])
        length -= len(parts[-1])
    return parts


def draw(random: np.random.Generator, clips: Clips) -> Joined:
    """A video for training: half of them have a hug."""
    after_hug, gap = bool(random.integers(2)), float(np.exp(random.uniform(*np.log(GAPS))))
    cues = clips.hugs if after_hug else clips.others
    fall = clips.falls[random.integers(len(clips.falls))]
    return join(random, clips, after_hug, gap, fall, cues[random.integers(len(cues))])


def draw_tests(random: np.random.Generator, clips: Clips, gaps: Sequence[float], each: int) -> list[Joined]:
    """So many videos of each gap, half of them with a hug; hugs, other interactions and falls take turns."""
    found = []
    falls = [clips.falls[i] for i in random.permutation(len(clips.falls))]
    cues = {True: clips.hugs, False: [clips.others[i] for i in random.permutation(len(clips.others))]}
    for place in range(len(gaps) * each):
        after_hug, turn = place % 2 == 0, place // 2
        cue = cues[after_hug][turn % len(cues[after_hug])]
        found.append(join(random, clips, after_hug, gaps[place // each], falls[turn % len(falls)], cue))
    return found


def cut(videos: Mapping[str, np.ndarray], labels: Mapping[str, Labels], ids: Iterable[str]) -> Clips:
    """The clips of the videos `ids`, by the features (L, D) of all videos."""
    found = Clips([], [], [], [], [])
    for name in ids:
        of_set = next(one for one in labels.values() if name in one.videos)
        rows, classes = videos[name], of_set.classes
        shown = targets(of_set.videos[name], classes, len(rows)).argmax(axis=1)  # (L,)
        runs = [(start, stop, classes[column]) for start, stop, column in runs_of(shown)]
        for start, stop, label in runs:
            if label == FALL:
                found.falls.append(Clip(name, rows, (start, stop)))
            elif of_set is labels[FALLS]:
                if label == BACKGROUND and stop - start >= SHORTEST and stop < len(rows):
                    found.ordinary.append(Clip(name, rows[start:stop]))
            elif label == CUE:
                found.hugs.append(Clip(name, rows[start:stop]))
            elif stop - start >= SHORTEST:
                (found.quiet if label == BACKGROUND else found.others).append(Clip(name, rows[start:stop]))
    return found


@dataclass(frozen=True)
class Fold:
    """Clips to train on, and clips whose videos neither networks nor models have seen."""

    training: Clips
    testing: Clips


def read_fold(data: Path, features: Mapping[str, Sequence[Path]], fold: int) -> Fold:
    """The clips of fold 1, 2 or 3, by the feature folders of each set, one for each network of the fold.

    The features of all networks stand side by side, in the principal directions of the training videos.
    """
    labels = {name: read_labels(data / name / "labels.json") for name in SETS}
    videos, testing = {}, []
    for name, paths in features.items():
        ids = sorted(labels[name].videos)
        testing += folds_of(ids)[fold - 1]
        folders = [open_features(path) for path in paths]
        for video_id in ids:
            parts = [np.concatenate(folder.load(video_id), axis=1) for folder in folders]
            videos[video_id] = np.concatenate(parts, axis=1, dtype=np.float32)
    training = [name for name in videos if name not in testing]
    mean, onto = principal(np.concatenate([videos[name] for name in training]), WIDTH)
    reduced = {name: (rows - mean) @ onto for name, rows in videos.items()}
    return Fold(cut(reduced, labels, training), cut(reduced, labels, testing))


def principal(rows: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean (D,) of rows (L, D), and their first n principal directions (D, n), in which their mean variance is 1."""
    mean = rows.mean(axis=0)
    _, lengths, directions = np.linalg.svd(rows - mean, full_matrices=False)
    variance = (lengths[:n] ** 2).sum() / len(rows) / n
    return mean, directions[:n].T / np.sqrt(variance)
