"""Torch and graphs side by side: the same chunks, and how far apart the scores are."""

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr import exported_streaming as exported
from lstr import streaming
from lstr.exported_streaming import ExportedStep
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.runtime import LEAST_COSINE
from lstr.extractors.run import FeatureRow, TwoStream
from lstr.extractors.streams import MODEL_STREAMS
from lstr.extractors.video.frames import Chunk
from lstr.models.kind import Model
from lstr.pipelines.progress import Progress

# In probability: what graphs may differ by at most
TOLERANCE = 1e-5
# Steps that both run after the memory is full
BEYOND = 200
# Steps from one word on them to the next
TOLD = 20

Features = NDArray[np.float32]


@dataclass(frozen=True)
class Alike:
    """How far apart torch and the graphs were, at most."""

    chunks: int
    """Real chunks, through networks and model"""
    scores: float
    """In probability, on those"""
    steps: int
    """Steps of the model in all, to 200 past the memory's end"""
    later_scores: float
    """In probability, on those after the real chunks"""
    cosine: float
    """The least, of a chunk's features by torch and by graphs"""
    whole: bool
    """Whether the graphs' own features were scored; those of int8 networks differ by steps, so that torch's were"""

    def fault(self) -> str:
        """What is wrong with the graphs; nothing where they may be used."""
        worst = max(self.scores, self.later_scores)
        if not worst <= TOLERANCE:  # nan too
            at = f"on {self.chunks} chunks" if self.scores == worst else f"in {self.steps} steps"
            return f"their scores differ by {worst:.2g} {at}, and {TOLERANCE:g} is the most that is let through"
        if not self.cosine >= LEAST_COSINE:
            return f"the cosine of a chunk's features is {self.cosine:.3f}, and {LEAST_COSINE:g} is the least"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """It as model.json has it."""
        return {**asdict(self), "tolerance": TOLERANCE}


def compare_networks(
    networks: tuple[TwoStream, TwoStream], chunks: Sequence[Chunk], workers: FlowWorkers | None
) -> Generator[Progress, None, tuple[Features, Features]]:
    """Features (n, D) of chunks by torch, and by graphs."""
    found: list[Features] = []
    for name, twostream in zip(("features by torch", "features by graphs"), networks, strict=True):
        rows = []
        for row in twostream.rows(iter(chunks), workers):
            rows.append(_joined(row))
            yield Progress(name, len(rows), len(chunks))
        found.append(np.stack(rows))
    return found[0], found[1]


def compare_steps(
    model: Model, step: ExportedStep, features: tuple[Features, Features], whole: bool
) -> Generator[Progress, None, Alike]:
    """Scores of a model and of its step as a graph: on real features, then on others until the memory is full, and on.

    features (n, D) by torch and by graphs; `whole` scores each by its own. Of several streams each has other chunks.
    """
    theirs, ours = features
    B, config, n = step.description.streams, model.config, len(theirs)
    total = n + config.work_length + config.context + (config.long_length if config.n_long else 0) + BEYOND
    ours_seen = ours if whole else theirs
    rng = np.random.default_rng(0)
    torch_state, state = streaming.create(model, B), exported.create(step, B)
    worst = [0.0, 0.0]  # on real chunks, and after those
    for k in range(total):
        if k < n:
            rows = [np.stack([seen[(k + stream) % n] for stream in range(B)]) for seen in (theirs, ours_seen)]
        else:
            rows = [_invented(theirs, rng, B)] * 2
        expected = streaming.step_ahead(model, torch_state, *_parts(rows[0], config.rgb_dim)).numpy()
        found = exported.step_ahead(step, state, *_parts(rows[1], config.rgb_dim))
        difference = float(np.abs(found - expected).max())
        worst[k >= n] = difference if not difference <= worst[k >= n] else worst[k >= n]
        if k % TOLD == 0 or k == total - 1:
            yield Progress("steps side by side", k + 1, total)
    lengths = np.linalg.norm(theirs, axis=1) * np.linalg.norm(ours, axis=1)
    cosine = float(((theirs * ours).sum(1) / np.maximum(lengths, 1e-12)).min())
    return Alike(n, worst[0], total, worst[1], round(cosine, 6), whole)


def _invented(features: Features, rng: np.random.Generator, n: int) -> Features:
    """Features (n, D) like those of chunks: each between two of them."""
    first, second = features[rng.integers(len(features), size=(2, n))]
    share = rng.random((n, 1), dtype=np.float32)
    return (share * first + (1 - share) * second).astype(np.float32)


def _joined(row: FeatureRow) -> Features:
    """Features (D,) of a chunk: appearance first, then motion."""
    parts = [part for stream in MODEL_STREAMS if (part := getattr(row, stream)) is not None]
    return np.concatenate(parts)


def _parts(rows: Features, rgb_dim: int) -> tuple[Features | None, Features | None]:
    """Features (B, D) as a model takes them, rgb and flow; None of a stream that it has not."""
    rgb, flow = rows[:, :rgb_dim], rows[:, rgb_dim:]
    return rgb if rgb.shape[1] else None, flow if flow.shape[1] else None
