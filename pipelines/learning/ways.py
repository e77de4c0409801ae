"""Ways to make the model that sees the features: which models are trained on which videos, and averaged.

Each is measured on videos that its models lack, fold by fold, and the best one is taken for the model file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lstr.pipelines.training.config import preset_for

Held = frozenset[int]
"""The folds whose videos a model has not learnt from; none of one that has learnt from all."""
OF_SMALL = "small"
OTHERS = (("trn", "trn-small"),)
"""Models that are tried beside the preset `small`, as far as there is time: name and preset, one a line. Of all kinds
TRN came next to it on the features of two small sets (`benchmarks/kinds.json`)."""
AS_GOOD = 0.01
"""mAP by which a later way has to be better than an earlier, simpler one."""


@dataclass(frozen=True)
class Candidate:
    """A model: its preset, the same without some videos as with all, and what is set otherwise."""

    name: str
    """Its folder's too"""
    preset: str
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)
    seen: bool = False
    """Whether networks that have seen the videos make the features that it is trained on, which look better than those
    of new ones; else networks that lack each"""
    streams: tuple[str, ...] = ()
    """The streams that it sees alone; none for all"""


@dataclass(frozen=True, order=True)
class Run:
    """A model to train: which, and without which folds."""

    candidate: str
    held: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of its folder: `all`, or `without_1_2`."""
        return "_".join(["without", *map(str, self.held)]) if self.held else "all"


@dataclass(frozen=True)
class Way:
    """How models become one: a candidate on all videos, several averaged, or the average of those without a fold."""

    name: str
    candidates: tuple[Candidate, ...]
    by_folds: bool = False
    """Whether it is the average of models that each lack one of the folds it may see"""

    def runs(self, held: Held, folds: Sequence[int]) -> list[Run]:
        """The models whose average it is, where the folds `held` are not to be learnt from."""
        without = [held | {fold} for fold in folds if fold not in held] if self.by_folds else [held]
        return [Run(one.name, tuple(sorted(lacking))) for one in self.candidates for lacking in without]


def candidates_of(settings: Mapping[str, str], n_chunks: int, streams: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """The models to try on so much training video, the first of them in any case.

    Of several streams of features each is seen alone too, by a model whose scores are averaged with those of others.
    Other kinds are tried only where the settings leave the model as it is.
    """
    preset = preset_for(n_chunks, settings)
    each = [Candidate(f"{preset}-{stream}", preset, streams=(stream,)) for stream in streams if len(streams) > 1]
    seen = Candidate(f"{preset}-seen", preset, seen=True)
    is_set = any(name.startswith(("model.", "train.")) and name != "train.seed" for name in settings)
    others = OTHERS if preset == OF_SMALL and not is_set else ()
    return Candidate(preset, preset), *each, seen, *(Candidate(name, other) for name, other in others)


def ways_of(candidates: Sequence[Candidate], n_folds: int) -> list[Way]:
    """All ways that can be compared, the simplest first; one alone where there is one candidate.

    An average over folds needs three of them, for no networks lack two folds.
    """
    alone = [Way(one.name, (one,)) for one in candidates]
    by_stream = tuple(one for one in candidates if one.streams)
    if len(by_stream) > 1:
        alone.append(Way("average over streams", by_stream))
        alone.append(Way(f"average over streams and {candidates[0].name}", (candidates[0], *by_stream)))
    candidates = [one for one in candidates if not one.streams]
    able = [one for one in candidates if not one.seen and n_folds > 2 and len(candidates) > 1]
    by_folds = [Way(f"{one.name}, average over folds", (one,), True) for one in able]
    pairs = [(a, b) for at, a in enumerate(candidates) for b in candidates[at + 1 :]]
    together = [*pairs, *([tuple(candidates)] if len(candidates) > 2 else [])]
    return [
        *alone,
        *by_folds,
        *(Way(f"average of {' and '.join(one.name for one in some)}", some) for some in together),
    ]


def measured_runs(ways: Iterable[Way], folds: Iterable[int]) -> list[Run]:
    """The models that the comparison of ways needs."""
    folds = list(folds)
    return sorted({run for way in ways for fold in folds for run in way.runs(frozenset({fold}), folds)})


def best_of(mAP: Mapping[str, float]) -> str:
    """The way that is taken, of mAP by way, the simplest first: a later one has to be better by AS_GOOD."""
    taken = next(iter(mAP))
    for name, value in mAP.items():
        if value > mAP[taken] + AS_GOOD:
            taken = name
    return taken


def share_of(run: Run, n_folds: int) -> float:
    """The share of the videos that a run learns from."""
    return 1 - len(run.held) / n_folds if n_folds else 1.0
