"""Ways to make the model that sees the features: which models are trained on which videos, and averaged.

Each is measured on videos that its models lack, fold by fold, and the best one is taken for the model file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lstr.pipelines.training.config import preset_for

Held = frozenset[int]
"""The folds whose videos a model has not learnt from; none of one that has learnt from all."""
OF_SMALL = "rnn-small"
OF_RNN = ("kind", "cell", "d_model", "dropout", "work_length", "rgb_dim", "flow_dim")
"""The `model.` settings that an RNN uses; a model with others is an LSTR."""
OTHERS = (("trn", "trn-small"),)
"""Models that are tried with the preset `rnn-small` if there is time: name and preset, one a line. Of all kinds
TRN came next to it on the features of two small sets (`benchmarks/kinds.json`)."""
OVER_STREAMS = "average over streams"
AS_GOOD = 0.01
"""mAP by which an average may be worse than the best way: on videos of another place it holds better. On actions of
UT-Interaction recorded elsewhere greys and differences alone had .65 to .71, and averages of both .71 to .76."""


@dataclass(frozen=True)
class Candidate:
    """A model: its preset, the same without some videos as with all, and what it sees."""

    name: str
    """Its folder's too"""
    preset: str
    seen: bool = False
    """Whether networks that have seen the videos make the features that it is trained on, which look better than those
    of new ones; else networks that lack each"""
    streams: tuple[str, ...] = ()
    """The streams that it sees; none for all"""
    again: int = 0
    """The training of the same model that it is, each with a seed of its own"""

    @property
    def trained_again(self) -> "Candidate":
        """The same by another seed."""
        return replace(self, name=f"{self.name}-{self.again + 2}", again=self.again + 1)


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

    @property
    def twice(self) -> "Way":
        """The average of it and of its models by other seeds, which differ by as much as most ways do."""
        again = tuple(one.trained_again for one in self.candidates)
        return replace(self, name=f"{self.name}, by two seeds", candidates=(*self.candidates, *again))

    def with_again(self, some: Sequence[Candidate]) -> "Way":
        """The average of it and of some of its models by other seeds."""
        name = f"{self.name}, {' and '.join(one.name for one in some)} by two seeds"
        return replace(self, name=name, candidates=(*self.candidates, *(one.trained_again for one in some)))

    def runs(self, held: Held, folds: Sequence[int]) -> list[Run]:
        """The models whose average it is, where the folds `held` are not to be learnt from."""
        without = [held | {fold} for fold in folds if fold not in held] if self.by_folds else [held]
        return [Run(one.name, tuple(sorted(lacking))) for one in self.candidates for lacking in without]


def candidates_of(
    settings: Mapping[str, str],
    n_chunks: int,
    streams: Sequence[str] = (),
    trained: Sequence[str] | None = None,
    unseen: bool = True,
) -> tuple[Candidate, ...]:
    """The models to try on so much training video, the first of them in any case.

    Of several streams of features each is seen alone too, by a model whose scores are averaged with those of others.
    Other kinds are tried only where the settings leave the model as it is. trained: the streams whose networks have
    seen the videos, None for all. unseen: whether there are features of every video by networks that lack it.
    """
    has_other = any(name.startswith("model.") and name[6:] not in OF_RNN for name in settings)
    preset = preset_for(n_chunks, settings, kind="lstr" if has_other else "rnn")
    as_they_begin = trained is not None and not trained  # no network has seen any video
    trained = streams if trained is None else [stream for stream in streams if stream in trained]
    of_trained = () if len(trained) == len(streams) else tuple(trained)
    known = [Candidate(f"{preset}-seen", preset, seen=True, streams=of_trained)] if len(of_trained) != 1 else []
    each = [
        Candidate(f"{preset}-{stream}", preset, seen=stream in trained, streams=(stream,))
        for stream in sorted(streams, key=lambda stream: stream not in trained)
        if len(streams) > 1
    ]
    is_set = any(name.startswith(("model.", "train.")) and name != "train.seed" for name in settings)
    others = OTHERS if preset == OF_SMALL and not is_set else ()
    if as_they_begin:
        known, unseen = [], True
    if not unseen:
        return *known, *each, *(Candidate(name, other, seen=True, streams=of_trained) for name, other in others)
    return *known, *each, Candidate(preset, preset), *(Candidate(name, other) for name, other in others)


def ways_of(candidates: Sequence[Candidate], n_folds: int) -> list[Way]:
    """All ways that can be compared, the simplest first; one alone where there is one candidate.

    An average over folds needs three of them, for no networks lack two folds.
    """
    alone = [Way(one.name, (one,)) for one in candidates]
    by_stream = streams_among(candidates)
    candidates = [one for one in candidates if one not in by_stream]
    if len(by_stream) > 1:
        alone.append(Way(OVER_STREAMS, by_stream))
        alone += [Way(f"{OVER_STREAMS} and {one.name}", (*by_stream, one)) for one in candidates[:1]]
    able = [one for one in candidates if not one.seen and n_folds > 2 and len(candidates) > 1]
    by_folds = [Way(f"{one.name}, average over folds", (one,), True) for one in able]
    pairs = [(a, b) for at, a in enumerate(candidates) for b in candidates[at + 1 :]]
    together = [*pairs, *([tuple(candidates)] if len(candidates) > 2 else [])]
    return [
        *alone,
        *by_folds,
        *(Way(f"average of {' and '.join(one.name for one in some)}", some) for some in together),
    ]


def streams_among(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The candidates that see one stream of several."""
    return tuple(one for one in candidates if len(one.streams) == 1)


def ways_again(ways: Sequence[Way], mAP: Mapping[str, float]) -> list[Way]:
    """What models by other seeds can add: the best way by two seeds, or of averages over streams the best parts.

    Those are the stream that has most alone, and the model that sees all streams; the other streams keep one seed each.
    mAP: of each way, by name.
    """
    best = best_of(ways, mAP)
    singles = [way for way in ways if len(way.candidates) == len(streams_among(way.candidates)) == 1]
    over = tuple(one for way in singles for one in way.candidates)
    if len(over) < 2:
        return [best.twice]
    stream = max(singles, key=lambda way: mAP[way.name]).candidates[0]
    averages = [way for way in ways if {*over} <= {*way.candidates}]
    again = [way.with_again([one for one in way.candidates if one not in over or one == stream]) for way in averages]
    return again if best in averages else [best.twice, *again]


def measured_runs(ways: Iterable[Way], folds: Iterable[int]) -> list[Run]:
    """The models that the comparison of ways needs."""
    folds = list(folds)
    return sorted({run for way in ways for fold in folds for run in way.runs(frozenset({fold}), folds)})


def best_of(ways: Sequence[Way], mAP: Mapping[str, float]) -> Way:
    """The way that is taken: of those no worse than the best by more than AS_GOOD the one of most models.

    An average of models that each lack videos is taken only where it is better than all others by more than that.
    mAP: of each way, by name.
    """
    whole = [way for way in ways if not way.by_folds]
    enough = max(mAP[way.name] for way in whole) - AS_GOOD
    taken = max((way for way in whole if mAP[way.name] >= enough), key=lambda way: (len(way.candidates), mAP[way.name]))
    by_folds = [way for way in ways if way.by_folds and mAP[way.name] > enough + 2 * AS_GOOD]
    return max(by_folds, key=lambda way: mAP[way.name], default=taken)


def share_of(run: Run, n_folds: int) -> float:
    """The share of the videos that a run learns from."""
    return 1 - len(run.held) / n_folds if n_folds else 1.0
