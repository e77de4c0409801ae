"""The cue task: whether a model finds, long after, what decides how an action is called.

A video is white noise, a cue of 6 s that points to one of two classes, more noise, and an action of 2 s whose own
features say that it happens and nothing of its class. So the class is known from the cue or by chance. Each video is
new, so that none can be learnt by heart. With two cues the later counts. In training each is drawn for itself; to be
scored the first always points to the other class, so that a model which knows the cues but not their order is left with
chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lstr import streaming
from lstr.batch import predict
from lstr.chunk import FEATURES_PER_SECOND
from lstr.config import WindowConfig
from lstr.kinds import KINDS
from lstr.labels.label_set import BACKGROUND
from lstr.models.kind import Model
from lstr.models.recurrent.fats import FATS
from lstr.models.recurrent.recurrent import Recurrent
from lstr.pipelines.datasets.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.batches import PieceMaker
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.ranks import ALONE
from lstr.pipelines.training.schedule import rates
from lstr.pipelines.training.step import Learner
from lstr.windows.windows import gather, join

CLASSES = (BACKGROUND, "A", "B")
FIRST = 1  # column of A, before B's
WIDTH = 8  # features of each of the two streams
NOTHING = torch.zeros(1), torch.ones(1)  # statistics that change no feature


@dataclass(frozen=True)
class CueTask:
    """How videos are made. Times are in seconds, lengths of evidence in standard deviations of the noise."""

    cue: float = 6.0
    action: float = 2.0
    strength: float = 3.0
    gaps: tuple[float, float] = (4.0, 500.0)
    """From the cue's end to the action's start, drawn log-uniformly between these"""
    lead: float = 50.0
    """Noise before the first cue, at most"""
    cues: int = 1
    conflicting: bool = False
    """Whether the first of two cues always points to the other class"""
    apart: tuple[float, float] = (4.0, 32.0)
    """From the first cue's end to the second's start, where there are two"""
    seed: int = 0
    """Of the directions that cues and action have"""

    def video(self, random: np.random.Generator, gap: float | None = None) -> LabelledVideo:
        """A new video, which ends with its action; `gap` is drawn where it is not named."""
        right = int(random.integers(2))
        parts: list[tuple[float, int | None]] = [(random.uniform(0, self.lead), None)]
        if self.cues == 2:
            first = 1 - right if self.conflicting else int(random.integers(2))
            parts += [(self.cue, first), (_log_uniform(random, self.apart), None)]
        parts += [(self.cue, right), (gap or _log_uniform(random, self.gaps), None), (self.action, 2)]
        means = np.concatenate([self._means(*part) for part in parts])
        rows = (means + random.standard_normal(means.shape)).astype(np.float32)  # (L, 2 * WIDTH)
        targets = np.zeros((len(rows), len(CLASSES)), np.uint8)
        begin = len(rows) - chunks_of(self.action)
        targets[:begin, 0] = 1
        targets[begin:, FIRST + right] = 1
        return LabelledVideo("cue", TwoStreamArray(rows[:, :WIDTH], rows[:, WIDTH:]), targets)

    def _means(self, seconds: float, direction: int | None) -> np.ndarray:
        rows = np.zeros((chunks_of(seconds), 2 * WIDTH))
        if direction is not None:
            drawn = np.random.default_rng(self.seed).standard_normal((2 * WIDTH, 2 * WIDTH))
            rows += self.strength * np.linalg.qr(drawn)[0][direction]
        return rows

    def sees(self, config: WindowConfig, gap: float) -> bool | None:
        """Whether all of the later cue is in a window at the action's last chunk, None where it is in part.

        What a model carries on from chunk to chunk has no such bound: it is then always True.
        """
        if carries(config.kind):
            return True
        newest = chunks_of(gap) + chunks_of(self.action)  # chunks from the cue's last one to the window's newest
        reach = config.work_length + (config.long_length if config.uses.long_memory else 0)
        if newest >= reach:
            return False
        return True if newest + chunks_of(self.cue) <= reach else None


def carries(kind: str) -> bool:
    """Whether a model of this kind hands a state on from chunk to chunk, so that no length bounds what it knows."""
    return issubclass(KINDS[kind].model, Recurrent | FATS)


def chunks_of(seconds: float) -> int:
    """Whole chunks."""
    return round(seconds * FEATURES_PER_SECOND)


def _log_uniform(random: np.random.Generator, bounds: tuple[float, float]) -> float:
    return float(np.exp(random.uniform(*np.log(bounds))))


def train_on(task: CueTask, model: WindowConfig, config: TrainConfig) -> tuple[Model, list[float]]:
    """A model after `config.max_steps` steps, each on new videos and windows that end in their actions; and its losses.

    The videos follow from the seed alone: every model sees the same.
    """
    random = np.random.default_rng([task.seed, config.seed, 0])
    learner = Learner(model, config, CLASSES, NOTHING, "cpu", ALONE)
    rate = rates(config, config.max_steps, config.max_steps)
    losses = []
    for step in range(config.max_steps):
        videos = [task.video(random) for _ in range(config.batch_size)]
        back = random.integers(chunks_of(task.action), size=len(videos))
        drawn = [(v, len(video.features) - 1 - int(back[v])) for v, video in enumerate(videos)]
        make = PieceMaker(videos, model, config, learner.outputs, ALONE, learner.device)
        losses.append(learner.step(make(drawn), step, rate(step))[0])
    return learner.model.eval(), losses


def train_carrying(task: CueTask, model: WindowConfig, config: TrainConfig) -> tuple[Model, list[float]]:
    """An RNN after `config.max_steps` steps in which each window goes on from the state that the window before left.

    `config.batch_size` streams show one video after the other, each in windows of the work memory, and no gradient
    reaches back over the start of a window (truncated backpropagation through time). A state of zeros begins a video.
    """
    random = np.random.default_rng([task.seed, config.seed, 0])
    learner = Learner(model, config, CLASSES, NOTHING, "cpu", ALONE)
    rnn = learner.model
    assert isinstance(rnn, Recurrent), "no other kind has a state to carry"
    streams = [windows_in_order(task, random, model.work_length) for _ in range(config.batch_size)]
    rate = rates(config, config.max_steps, config.max_steps)
    state, losses = rnn.begin(len(streams)), []
    for step in range(config.max_steps):
        rows, targets, begins = (torch.from_numpy(np.stack(parts)) for parts in zip(*map(next, streams), strict=True))
        state = {name: tensor.detach() * ~begins[:, None] for name, tensor in state.items()}  # (B, d_model) each
        logits, state = rnn.run(rnn.feature_head_work(rows), state)  # (B, W, 1, C)
        loss = F.cross_entropy(logits[:, :, 0].transpose(1, 2), targets.argmax(-1))
        for group in learner.optimiser.param_groups:
            group["lr"] = rate(step)
        learner.optimiser.zero_grad()
        loss.backward()
        learner.optimiser.step()
        losses.append(loss.item())
    return rnn.eval(), losses


def windows_in_order(task: CueTask, random: np.random.Generator, length: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Windows (length, D) of one new video after another, their targets (length, C), and whether a video begins.

    Noise before the video and after it fills its windows, so that its action stands anywhere in one.
    """
    while True:
        video = task.video(random)
        after = int(random.integers(length))
        before = -(len(video.features) + after) % length
        noise = [random.standard_normal((n, 2 * WIDTH)).astype(np.float32) for n in (before, after)]
        rows = np.concatenate([noise[0], video.features[:], noise[1]])
        background = np.eye(len(CLASSES), dtype=np.uint8)[[0]]
        targets = np.concatenate([background.repeat(before, 0), video.targets, background.repeat(after, 0)])
        for at in range(0, len(rows), length):
            yield rows[at : at + length], targets[at : at + length], np.bool_(at == 0)


@torch.no_grad()
def last_scores(model: Model, videos: Sequence[LabelledVideo]) -> Tensor:
    """Scores (B, C) of the last chunk of each video, as a stream has them."""
    if model.config.uses.long_memory:  # they depend on one window alone
        windows = join([gather(video.features[:], [len(video.features) - 1], model.config) for video in videos])
        outputs = model.outputs()
        newest = (outputs.slots == -1) | (outputs.slots == model.config.work_length - 1)
        place = np.flatnonzero(newest & (outputs.ahead == 0))[-1]
        return model(windows)[:, place].softmax(dim=-1)
    if not carries(model.config.kind):  # they depend on as many chunks as the work memory has
        newest = [video.features[-model.config.work_length :] for video in videos]
        return torch.stack([predict(model, rows)[-1] for rows in newest])
    longest = max(len(video.features) for video in videos)
    rows = [np.pad(video.features[:], ((longest - len(video.features), 0), (0, 0))) for video in videos]
    state = streaming.create(model, len(videos))
    for chunk in range(longest):
        begins = [i for i, video in enumerate(videos) if longest - len(video.features) == chunk]
        if begins:
            streaming.reset(state, begins)
        features = np.stack([row[chunk] for row in rows])
        scores = streaming.step(model, state, features[:, :WIDTH], features[:, WIDTH:])
    return scores


def accuracy(model: Model, task: CueTask, gap: float, videos: int, seed: int = 0) -> float:
    """Share of new videos of one gap whose action is called right at its last chunk, of the two classes of actions.

    Where there are two cues, they differ.
    """
    random = np.random.default_rng([task.seed, seed, 1, chunks_of(gap)])
    drawn = [replace(task, conflicting=True).video(random, gap) for _ in range(videos)]
    found = last_scores(model, drawn)[:, FIRST:].argmax(dim=1).numpy()
    return float(np.mean(found == [int(video.targets[-1, FIRST:].argmax()) for video in drawn]))
