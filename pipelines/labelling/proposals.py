"""Proposals: detections and near misses of a model, which of them still wait, and what a decision changes.

Nothing of it needs the page; a simulation of corrections decides by the same functions.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CHUNK_SECONDS, FEATURES_PER_SECOND
from lstr.errors import RequestError
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import is_name
from lstr.pipelines.evaluation.thresholds_by_chunks import curves_of, detect_spans
from lstr.pipelines.labelling.document import free_key, joined
from lstr.pipelines.labelling.journal import History
from lstr.pipelines.labelling.values import LONGEST_NAME, NOTHING, About, Action, Change, Label, Proposal, Search, State
from lstr.timeline import DEFAULT, Thresholds

# A peak is a near miss from this share of its class's `on` up.
NEAR = 0.5


@dataclass(frozen=True)
class Candidate:
    """A stretch, in seconds, that may be an action; `peak` is the highest score in it, `threshold` its class's `on`."""

    label: str
    start: float
    end: float
    peak: float
    threshold: float


def candidates_of(
    scores: NDArray[np.floating], classes: Sequence[str], thresholds: Thresholds | Mapping[str, Thresholds]
) -> list[Candidate]:
    """The detections by these thresholds, then near misses of each class, from scores (L, C), one row a chunk.

    A near miss is a stretch between detections that the same rules find with half the thresholds. What only follows or
    precedes a detection, its own rise or fall, is none.
    """
    found: list[Candidate] = []
    for column, label in enumerate(classes):
        if label in (BACKGROUND, AMBIGUOUS) or not len(scores):
            continue
        rules = thresholds if isinstance(thresholds, Thresholds) else thresholds.get(label, DEFAULT)
        curve = _curve(scores, classes, column, rules)
        detected = _chunks(detect_spans(curve, rules))
        spans = [*detected, *_near_misses(curve, rules, detected)]
        found += [
            Candidate(label, a * CHUNK_SECONDS, b * CHUNK_SECONDS, float(np.clip(curve[a:b].max(), 0, 1)), rules.on)
            for a, b in spans
        ]
    return found


def _curve(scores: NDArray[np.floating], classes: Sequence[str], column: int, rules: Thresholds) -> NDArray[np.float64]:
    """The scores of a class; with `highest` -1 where another action scores higher."""
    actions = [at for at, label in enumerate(classes) if label not in (BACKGROUND, AMBIGUOUS)]
    return np.asarray(curves_of(scores, actions, rules.highest)[:, actions.index(column)], np.float64)


def _near_misses(
    curve: NDArray[np.float64], rules: Thresholds, detected: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    on = rules.on * NEAR  # which scores reach so early that nothing is backdated
    low = replace(rules, on=on, off=min(rules.off, on), backdate=0.0)
    if not low.on:
        return
    outside = curve.copy()
    for a, b in detected:
        outside[a:b] = -1.0
    edges = {edge for span in detected for edge in span}
    for a, b in _chunks(detect_spans(outside, low)):
        peak = a + int(outside[a:b].argmax())
        if not (a in edges and peak == a) and not (b in edges and peak == b - 1):
            yield a, b


def _chunks(spans: NDArray[np.floating]) -> list[tuple[int, int]]:
    return [(round(start * FEATURES_PER_SECOND), round(end * FEATURES_PER_SECOND)) for start, end in spans.tolist()]


# Two stretches of an action are one occurrence where they share so much of the shorter one.
SAME = 0.5
Span = tuple[float, float]
Decision = Callable[[State, Mapping[str, float]], list[Change]]


class Placed(NamedTuple):
    """A proposal, the id of its video and its own."""

    video: str
    key: str
    proposal: Proposal

    @property
    def time(self) -> tuple[str, float, float, str]:
        """Its place among all: video by video, from beginning to end."""
        return self.video, self.proposal.start, self.proposal.end, self.key

    @property
    def doubt(self) -> tuple[float, tuple[str, float, float, str]]:
        """The distance of its peak from its threshold, on whichever side of it, then its time."""
        return abs(self.proposal.peak - self.proposal.threshold), self.time


# By their names on the page, the first one unless another is chosen: what proposals are sorted by.
ORDERS: dict[str, Callable[[Placed], Any]] = {"least sure": lambda one: one.doubt, "in time": lambda one: one.time}


def is_known(action: str, start: float, end: float, labels: Iterable[Label]) -> bool:
    """Whether a person has said already what a stretch is: labels of a video hold the action in it, or nothing.

    They do where they cover half of it, as this action or as a stretch in which nothing happens, and where half of a
    label of the action lies in it: the same occurrence with other edges. Labels of other actions say nothing of it.
    """
    covered = []
    for label in labels:
        if label.end is None or label.action not in (action, NOTHING):
            continue
        common = (max(start, label.start), min(end, label.end))
        if common[1] <= common[0]:
            continue
        if label.action == action and common[1] - common[0] >= SAME * (label.end - label.start):
            return True
        covered.append(common)
    return sum(b - a for a, b in joined(covered)) >= SAME * (end - start)


class _Labels:
    """The labels of one video, for many questions of `is_known`."""

    def __init__(self, labels: Iterable[Label]):
        self._by_action: dict[str, list[Label]] = {}
        for label in sorted(labels, key=lambda label: label.start):
            self._by_action.setdefault(label.action, []).append(label)
        self._longest = {
            action: max((label.end or label.start) - label.start for label in held)
            for action, held in self._by_action.items()
        }

    def know(self, action: str, start: float, end: float) -> bool:
        return is_known(action, start, end, [*self._near(action, start, end), *self._near(NOTHING, start, end)])

    def _near(self, action: str, start: float, end: float) -> list[Label]:
        """Labels of an action, all that reach into a stretch among them."""
        held = self._by_action.get(action, [])
        first = bisect_left(held, start - self._longest.get(action, 0.0), key=lambda label: label.start)
        return held[first : bisect_left(held, end, key=lambda label: label.start)]


def waiting(state: State, videos: Iterable[str]) -> list[Placed]:
    """The open proposals of some videos that are worth a look: what labels have answered meanwhile does not wait."""
    found = []
    for video in videos:
        if state.abouts.get(video, About()).complete:
            continue
        labels = _Labels(state.labels.get(video, {}).values())
        for key, proposal in state.proposals.get(video, {}).items():
            is_open = proposal.state == "open" and proposal.action in state.actions
            if is_open and not labels.know(proposal.action, proposal.start, proposal.end):
                found.append(Placed(video, key, proposal))
    return found


def proposed(
    state: State, history: History, video: str, model: str, candidates: Sequence[Candidate], duration: float | None
) -> list[Change]:
    """The changes that let a model's candidates stand as the open proposals of a video, in place of earlier ones.

    model: the hash of its file. What was decided stays, and does not come again of the same model. A class that the
    project lacks becomes an action, but for one that a person has removed. [] where the video is complete.
    """
    if state.abouts.get(video, About()).complete:
        return []
    held = state.proposals.get(video, {})
    decided = [Label(p.action, p.start, p.end) for p in held.values() if p.state != "open" and p.model == model]
    labels = _Labels([*state.labels.get(video, {}).values(), *decided])
    ids, new = _ids_of(candidates, state, history)
    wanted: dict[str, Proposal] = {}
    for one in candidates:
        end = min(one.end, duration) if duration else one.end
        if one.label not in ids or end <= one.start:
            continue
        action = ids[one.label]
        if not labels.know(action, one.start, end):
            proposal = Proposal(action, one.start, end, round(one.peak, 4), one.threshold, model)
            wanted[_key(action, proposal)] = proposal
    used = {proposal.action for proposal in wanted.values()}
    changes = [change for change in new if change.key in used]
    gone = {key: p for key, p in held.items() if p.state == "open" and wanted.get(key) != p}
    changes += [Change("proposal", video, key, p, None) for key, p in gone.items() if key not in wanted]
    changes += [Change("proposal", video, key, held.get(key), p) for key, p in wanted.items() if held.get(key) != p]
    if state.searches.get(video) != Search(model):
        changes.append(Change("search", video, "", state.searches.get(video), Search(model)))
    return changes


def accepted(video: str, key: str, label_key: str, label: Label | None = None) -> Decision:
    """The decision that a proposal is an action: a label like it, or the corrected one, its id `label_key`."""

    def decide(state: State, durations: Mapping[str, float]) -> list[Change]:
        proposal = _open(state, video, key)
        made = label or Label(proposal.action, proposal.start, proposal.end)
        if made.end is None or made.action == NOTHING:
            raise RequestError("That is no action from here to there.", "reject the proposal instead.")
        found = Label(proposal.action, proposal.start, proposal.end)
        is_same = (made.action, made.start, made.end) == (found.action, found.start, found.end)
        after = replace(proposal, state="accepted" if is_same else "corrected")
        return [Change("label", video, label_key, None, made), Change("proposal", video, key, proposal, after)]

    return decide


def rejected(video: str, key: str, label_key: str) -> Decision:
    """The decision that nothing happens where a proposal is, as far as it has looked at that.

    Of its stretch stays out what a label covers, and what another open proposal does: of that nothing is decided yet.
    The other parts become stretches in which nothing happens, their ids beginning with `label_key`.
    """

    def decide(state: State, durations: Mapping[str, float]) -> list[Change]:
        proposal = _open(state, video, key)
        labels = state.labels.get(video, {}).values()
        others = [
            other
            for name, other in state.proposals[video].items()
            if name != key and other.state == "open" and other.action in state.actions
        ]
        covers = [(label.start, max(label.start, proposal.end) if label.end is None else label.end) for label in labels]
        rest = _without((proposal.start, proposal.end), [*covers, *((other.start, other.end) for other in others)])
        return [
            *(Change("label", video, f"{label_key}-{n}", None, Label(NOTHING, a, b)) for n, (a, b) in enumerate(rest)),
            Change("proposal", video, key, proposal, replace(proposal, state="rejected")),
        ]

    return decide


def _open(state: State, video: str, key: str) -> Proposal:
    proposal = state.proposals.get(video, {}).get(key)
    if proposal is None or proposal.state != "open":
        raise RequestError("That has been decided already, or is proposed no more.", "go on with the next one.")
    return proposal


def _ids_of(candidates: Iterable[Candidate], state: State, history: History) -> tuple[dict[str, str], list[Change]]:
    """The id of each class's action by the class's name, and the changes that add those which the project lacks."""
    ids = {action.name: key for key, action in state.actions.items()}
    # a class keeps its action when a person gives that another name, and stays away when a person removes it
    former = {action.name: key for key, action in history.former.items() if action.name not in ids}
    ids |= {name: key for name, key in former.items() if key in state.actions}
    taken, new = [action.key for action in state.actions.values()], []
    place = max((action.place for action in state.actions.values()), default=-1)
    for name in dict.fromkeys(one.label for one in candidates):
        if name in ids or name in former or len(name) > LONGEST_NAME or not is_name(name):
            continue
        ids[name] = f"m{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        if ids[name] in state.actions:  # which has had two other names since
            continue
        place += 1
        action = Action(name, free_key(name, taken), place)
        taken.append(action.key)
        new.append(Change("action", "", ids[name], None, action))
    return ids, new


def _key(action: str, proposal: Proposal) -> str:
    """The id of a proposal, the same whenever its model proposes it."""
    text = f"{proposal.model}\n{action}\n{proposal.start:.3f}\n{proposal.end:.3f}"
    return f"p{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _without(span: Span, covers: Iterable[Span]) -> list[Span]:
    """The parts of a stretch that nothing covers."""
    rest, reached = [], span[0]
    for start, end in joined(covers):
        if start >= span[1]:
            break
        if start > reached:
            rest.append((reached, start))
        reached = max(reached, end)
    return [*rest, (reached, span[1])] if reached < span[1] else rest
