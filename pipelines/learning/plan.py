"""What learning will do, how long it takes here and how much disk, before it begins; and how it keeps to a time."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lstr.errors import TooShortError
from lstr.extractors.streams import STREAMS, in_training_order

CHUNKS, FEATURES, MODEL, THRESHOLDS, MEASURE, PACK = "chunks", "features", "model", "thresholds", "measure", "pack"
NETWORKS = {stream: f"{stream} network" for stream in STREAMS}
"""The step that trains a stream's network."""
NAMES = {
    CHUNKS: "compute frames and flow",
    **{key: f"train the {stream if stream != 'rgb' else 'RGB'} network" for stream, key in NETWORKS.items()},
    FEATURES: "compute features",
    MODEL: "train the model",
    THRESHOLDS: "choose thresholds",
    MEASURE: "measure on held-out videos",
    PACK: "write the model file",
}
"""What a person reads, by the key of a step."""
FEWEST_EPOCHS, FEWEST_DRAWS = 6, 96  # that a network is trained for under a short time
SLOWER = 1.2  # than planned, which a time allows for
STARTING = 3.0  # seconds that a step takes to begin
MEASURING = 0.02  # seconds a chunk, with resampling and figures


@dataclass(frozen=True)
class PlannedStep:
    """One of the steps, and how long it takes."""

    key: str
    """The step in `NAMES`"""
    seconds: float

    @property
    def name(self) -> str:
        """What a person reads."""
        return NAMES[self.key]


@dataclass(frozen=True)
class Doing:
    """So much of one step is done, and how long all that is left takes, in seconds."""

    step: PlannedStep
    number: int
    steps: int
    done: int
    total: int
    left: float


@dataclass(frozen=True)
class Compared:
    """What was tried, and what of it the model file will have."""

    tried: Mapping[str, float]
    """mAP of each way to make the model, on videos that its models lacked"""
    taken: str

    def to_dict(self) -> dict[str, Any]:
        """The entries of model.json, in their order."""
        return {"tried": [{"model": name, "mAP": mAP} for name, mAP in self.tried.items()], "taken": self.taken}


@dataclass(frozen=True)
class LearnPlan:
    """The steps, and what they are of."""

    videos: Mapping[str, int]
    """How many, by subset"""
    chunks: Mapping[str, int]
    """Chunks of video, by subset"""
    n_classes: int
    split: str
    """How the result will be measured, a sentence"""
    steps: tuple[PlannedStep, ...]
    epochs: Mapping[str, int]
    """Epochs of each stream's network"""
    draws: int
    """Images of an epoch"""
    bytes: int
    """Bytes of disk that it takes, about"""
    threads: int = 1
    """Threads of torch that trained fastest here; a run that goes on keeps it, and ends in the same bits"""
    budget: float | None = None
    """Seconds that all of it may take"""
    folds: int = 0
    """Folds of the videos, each of which other networks and models lack; 0 where videos are held out instead"""
    measured: int = 0
    """How many of the folds are measured, by such networks and models; the others only teach"""
    candidates: tuple[str, ...] = ()
    """The models that are tried, by name (`lstr.pipelines.learning.ways`)"""
    recipe: str | None = None
    """How features are made, where that was left to the plan"""
    at_once: int = 1
    """Networks of a stream that are trained at once, each with `threads`"""
    twice: bool = False
    """Whether the best of the models is trained by two seeds, and averaged"""
    kinds: tuple[str, ...] = ()
    """The kinds of these models, or of the only one"""
    of_one: bool = False
    """Whether a single recording teaches"""

    @property
    def models(self) -> str:
        """Which models are trained, and what of them the file will have, in one sentence."""
        if not self.folds or (len(self.candidates) < 2 and not self.twice):
            return f"one model sees the features, of kind {self.kinds[0]}"
        of_kinds = f"of kind {self.kinds[0]}" if len(self.kinds) == 1 else f"of kinds {' and '.join(self.kinds)}"
        tried = f"models {of_kinds} are tried ({', '.join(self.candidates)}), alone, averaged"
        seeds = " and by two seeds" if self.twice else ""
        return f"{tried}{seeds}; an average of several is packed unless one alone is better"

    @property
    def doubt(self) -> str:
        """What holding videos out costs thresholds, where the networks know all others; empty where they do not."""
        if self.folds or self.videos.get("validation") or not any(self.epochs.values()):
            return ""
        if self.of_one:
            return (
                "what is learnt from one recording may hold for that one alone, and there is no other to choose "
                "thresholds on: label a second one before you rely on it."
            )
        return (
            "thresholds are chosen on videos that the networks have learnt from, which score higher than new ones: "
            "expect many false alarms. Folds avoid that, and so do validation videos beside the testing ones."
        )

    @property
    def seconds(self) -> float:
        """Seconds that all steps take."""
        return sum(step.seconds for step in self.steps)

    def since(self, key: str) -> tuple[PlannedStep, ...]:
        """A step and those that follow it."""
        return self.steps[[step.key for step in self.steps].index(key) :]

    def doing(self, key: str, done: int = 0, total: int = 0) -> Doing:
        """So much of a step as part of all."""
        step, *later = self.since(key)
        left = step.seconds * (1 - done / max(1, total)) + sum(step.seconds for step in later)
        return Doing(step, len(self.steps) - len(later), len(self.steps), done, total, left)

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        steps = [{"key": step.key, "name": step.name, "seconds": step.seconds} for step in self.steps]
        return {**asdict(self), "steps": steps, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LearnPlan":
        """From its JSON object."""
        steps = tuple(PlannedStep(step["key"], step["seconds"]) for step in values["steps"])
        names = {name: tuple(values[name]) for name in ("candidates", "kinds")}
        kept = {name: value for name, value in values.items() if name != "seconds"}
        return cls(**{**kept, **names, "steps": steps})


@dataclass(frozen=True)
class Costs:
    """Seconds of each part on this machine."""

    chunk: float
    """Decoding, and flow"""
    row: float
    """The features of a chunk by networks that are trained"""
    image: Mapping[str, float]
    """One sample in training, by stream; of networks that are trained at once, the share of each"""
    model: float
    """All steps of training the model on all videos"""
    crossing: float = 0.0
    """Training all models of all folds"""
    fixed: float = 0.0
    """The features of a chunk by networks that stay as they begin"""


def make_steps(
    chunks: Mapping[str, int],
    costs: Costs,
    epochs: Mapping[str, int],
    draws: int,
    n_models: int,
    folds: int = 0,
    passes: float = 1.0,
) -> tuple[PlannedStep, ...]:
    """All steps; `n_models` are trained, one for good and the others to choose thresholds.

    With folds there are as many more networks of each stream, and models of their own cost. passes: how often features
    of all videos are computed by networks that are trained (`passes_of`).
    """
    learnt, held = chunks.get("training", 0), chunks.get("testing", 0)
    choosing = chunks.get("validation", 0)
    model = costs.crossing if folds else STARTING + costs.model
    networks = [
        PlannedStep(NETWORKS[stream], (1 + folds) * (STARTING + epochs[stream] * draws * costs.image[stream]))
        for stream in in_training_order([stream for stream, n in epochs.items() if n])
    ]
    rows = (passes * (learnt + choosing) + held) * costs.row + (learnt + choosing + held) * costs.fixed
    return (
        PlannedStep(CHUNKS, STARTING + (learnt + choosing) * costs.chunk),
        *networks,
        PlannedStep(FEATURES, STARTING + held * costs.chunk + rows),
        PlannedStep(MODEL, model),
        PlannedStep(THRESHOLDS, STARTING if folds else (n_models - 1) * model + 1),
        PlannedStep(MEASURE, STARTING + (held or learnt) * MEASURING),
        PlannedStep(PACK, 1.0),
    )


def passes_of(folds: int, measured: int, seen: bool) -> float:
    """How often features of all videos are computed by trained networks.

    Once by networks that lack each video, and where all folds are measured as often to align networks. seen: whether
    they are computed by networks that have learnt from the videos too.
    """
    if not folds:
        return 1.0
    others = measured * (1 - 1 / folds)
    return 1 + (1 + others) * ((measured == folds) + seen)


def fit_epochs(
    budget: float | None,
    others: float,
    costs: Costs,
    epochs: Mapping[str, int],
    draws: int,
    folds: int = 0,
    enough: float = 0.0,
) -> tuple[dict[str, int], int]:
    """The epochs of each stream's network, and the images of an epoch, that a time leaves.

    budget: seconds of everything, None for no bound; others: of what is not the training of networks, of which each
    stream has one, and one for each fold; enough: the share of their training that is the least. Raises TooShortError
    with the shortest time that is enough.
    """
    image = {stream: (1 + folds) * seconds for stream, seconds in costs.image.items()}
    whole = sum(epochs[stream] * draws * seconds for stream, seconds in image.items())
    if budget is None:
        return dict(epochs), draws
    if not whole:  # networks that stay as they begin take none of it
        if SLOWER * others > budget:
            raise _too_short("", SLOWER * others, budget)
        return dict(epochs), draws
    share = (budget - SLOWER * others) / (SLOWER * whole)
    if share >= 1:
        return dict(epochs), draws
    by_folds = f" by {folds} folds" if folds else ""
    if share < enough:
        least = SLOWER * (others + enough * whole)
        raise _too_short(by_folds, least, budget)
    fitted = {stream: math.floor(n * share) for stream, n in epochs.items()}
    fewest = {stream: min(n, FEWEST_EPOCHS) for stream, n in epochs.items()}
    if all(fitted[stream] >= fewest[stream] for stream in epochs):
        return fitted, draws
    per_draw = sum(fewest[stream] * seconds for stream, seconds in image.items())
    fitting = math.floor((budget - SLOWER * others) / (SLOWER * per_draw))
    if fitting < min(FEWEST_DRAWS, draws):
        least = SLOWER * (others + per_draw * min(FEWEST_DRAWS, draws))
        raise _too_short(by_folds, least, budget)
    return fewest, min(draws, fitting)


def _too_short(by_folds: str, least: float, budget: float) -> TooShortError:
    return TooShortError(
        f"Learning{by_folds} takes {math.ceil(least)} s at least here, and may take {budget:g} s.",
        f"give --time {math.ceil(least / 60)}m or more, or fewer videos.",
    )
