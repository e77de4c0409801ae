"""Proposals: detections and near misses of a model, which of them are still open, and what a decision changes.

It needs neither the page nor torch; `search.py` runs the model.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CHUNK_SECONDS, FEATURES_PER_SECOND
from lstr.errors import RequestError
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import is_name
from lstr.pipelines.evaluation.thresholds import curves_of, detect_spans
from lstr.pipelines.labelling.document import free_key, join_spans
from lstr.pipelines.labelling.values import (
    MAX_NAME,
    NOTHING,
    About,
    Action,
    Change,
    Changes,
    History,
    Label,
    Proposal,
    Search,
    State,
)
from lstr.timeline import DEFAULT, Thresholds

# The peak of a near miss reaches at least this share of its class's start threshold.
NEAR_MISS = 0.5
# Two stretches of an action are one occurrence if they share this much of the shorter one.
SAME_OCCURRENCE = 0.5


def find_candidates(
    scores: NDArray[np.floating], classes: Sequence[str], thresholds: Thresholds | Mapping[str, Thresholds]
) -> list[Proposal]:
    """Return the detections and then the near misses of each class; their action is the name of the class.

    A near miss is a stretch between detections that the same rules find with half of the thresholds. What only leads to
    a detection or follows it, its own rise or fall, is not one.

    Args:
        scores: Probabilities (L, C), a row per chunk.
        classes: The C class names.
        thresholds: One rule, or rules by class.
    """

    def chunks(curve: NDArray[np.float64], rules: Thresholds) -> list[tuple[int, int]]:
        spans = detect_spans(curve, rules).tolist()
        return [(round(start * FEATURES_PER_SECOND), round(end * FEATURES_PER_SECOND)) for start, end in spans]

    found: list[Proposal] = []
    actions = [at for at, label in enumerate(classes) if label not in (BACKGROUND, AMBIGUOUS)]
    for column, label in enumerate([classes[at] for at in actions] if len(scores) else []):
        rules = thresholds if isinstance(thresholds, Thresholds) else thresholds.get(label, DEFAULT)
        # with `highest` the curve is -1 where another action scores higher
        curve = np.asarray(curves_of(scores, actions, rules.highest)[:, column], np.float64)
        spans = chunks(curve, rules)
        edges = {edge for span in spans for edge in span}
        rest = curve.copy()
        for a, b in spans:
            rest[a:b] = -1.0
        near = rules.on * NEAR_MISS
        # scores reach half of the threshold so early that the start needs no backdating
        low = replace(rules, on=near, off=min(rules.off, near), backdate=0.0)
        for a, b in chunks(rest, low) if near else []:
            peak = a + int(rest[a:b].argmax())
            if not (a in edges and peak == a) and not (b in edges and peak == b - 1):
                spans.append((a, b))
        for a, b in spans:
            highest = float(np.clip(curve[a:b].max(), 0, 1))
            found.append(Proposal(label, a * CHUNK_SECONDS, b * CHUNK_SECONDS, highest, rules.on, ""))
    return found


# An open proposal: the id of its video, its own, and what it proposes
Open = tuple[str, str, Proposal]


# What proposals are sorted by, and then by time, by their names on the page; the first is the default.
ORDERS: dict[str, Callable[[Proposal], float]] = {
    "least sure": lambda proposal: abs(proposal.peak - proposal.threshold),
    "in time": lambda proposal: 0.0,
}


def is_labelled(action: str, start: float, end: float, labels: Iterable[Label]) -> bool:
    """Return whether the labels of a video already answer a proposed stretch.

    They do if labels of the action and empty stretches cover half of it, or if half of one label of the action is
    inside it: the same occurrence with other edges. Labels of other actions do not count.
    """
    covered = []
    for label in labels:
        if label.end is None or label.action not in (action, NOTHING):
            continue
        common = (max(start, label.start), min(end, label.end))
        if common[1] <= common[0]:
            continue
        if label.action == action and common[1] - common[0] >= SAME_OCCURRENCE * (label.end - label.start):
            return True
        covered.append(common)
    return sum(b - a for a, b in join_spans(covered)) >= SAME_OCCURRENCE * (end - start)


def find_open(state: State, videos: Iterable[str]) -> list[Open]:
    """Return the open proposals of some videos in time, except where labels made later answer a proposal."""
    found = []
    for video in videos:
        if state.abouts.get(video, About()).complete:
            continue
        labels = _by_action(state.labels.get(video, {}).values())
        for key, p in state.proposals.get(video, {}).items():
            if p.state == "open" and p.action in state.actions:
                if not is_labelled(p.action, p.start, p.end, labels[p.action] + labels[NOTHING]):
                    found.append((video, key, p))
    return sorted(found, key=lambda one: (one[0], one[2].start, one[2].end, one[1]))


def _by_action(labels: Iterable[Label]) -> defaultdict[str, list[Label]]:
    groups: defaultdict[str, list[Label]] = defaultdict(list)
    for label in labels:
        groups[label.action].append(label)
    return groups


def propose(
    state: State, history: History, video: str, model: str, candidates: Sequence[Proposal], duration: float | None
) -> Changes:
    """Return the changes that make the candidates of a model the open proposals of a video, instead of earlier ones.

    Decisions stay, and the same model does not propose again what was decided. A class that the project lacks becomes
    an action, unless a person has removed it. Empty if the video is complete.

    Args:
        state: The values of the project.
        history: Its history, which knows removed actions.
        video: The id of the video.
        model: Hash of the model file.
        candidates: What the model found, as of `find_candidates`.
        duration: Seconds of the video, if known.
    """
    if state.abouts.get(video, About()).complete:
        return []
    held = state.proposals.get(video, {})
    decided = [Label(p.action, p.start, p.end) for p in held.values() if p.state != "open" and p.model == model]
    labels = _by_action([*state.labels.get(video, {}).values(), *decided])
    # a class keeps its action if a person renames it, and is not added again if a person removes it
    ids = {action.name: key for key, action in state.actions.items()}
    former = {action.name: key for key, action in history.former.items() if action.name not in ids}
    ids |= {name: key for name, key in former.items() if key in state.actions}
    taken = [action.key for action in state.actions.values()]
    place = max((action.place for action in state.actions.values()), default=-1)
    new_actions: list[Change[Any]] = []
    for name in dict.fromkeys(one.action for one in candidates):
        if name in ids or name in former or len(name) > MAX_NAME or not is_name(name):
            continue
        ids[name] = f"m{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        if ids[name] not in state.actions:  # it may have been renamed twice
            place += 1
            taken.append(free_key(name, taken))
            new_actions.append(Change("action", "", ids[name], None, Action(name, taken[-1], place)))
    wanted: dict[str, Proposal] = {}
    for one in candidates:
        end = min(one.end, duration) if duration else one.end
        action = ids.get(one.action)
        if action is None or end <= one.start:
            continue
        if not is_labelled(action, one.start, end, labels[action] + labels[NOTHING]):
            # the same id whenever the model proposes it
            text = f"{model}\n{action}\n{one.start:.3f}\n{end:.3f}"
            key = f"p{hashlib.sha256(text.encode()).hexdigest()[:12]}"
            wanted[key] = Proposal(action, one.start, end, round(one.peak, 4), one.threshold, model)
    used = {proposal.action for proposal in wanted.values()}
    changes = [change for change in new_actions if change.key in used]
    gone = [key for key, p in held.items() if p.state == "open" and key not in wanted]
    changes += [Change("proposal", video, key, held[key], None) for key in gone]
    changes += [Change("proposal", video, key, held.get(key), p) for key, p in wanted.items() if held.get(key) != p]
    if state.searches.get(video) != Search(model):
        changes.append(Change("search", video, "", state.searches.get(video), Search(model)))
    return changes


def accept(state: State, video: str, key: str, label_key: str, label: Label | None = None) -> Changes:
    """Return the changes of accepting a proposal: a label like it, or a corrected one. Raises RequestError."""
    proposal = _open_proposal(state, video, key)
    made = label or Label(proposal.action, proposal.start, proposal.end)
    if made.end is None or made.action == NOTHING:
        hint = "choose an action, or reject the proposal."
        raise RequestError("The label needs an action with a start and an end.", hint)
    is_same = (made.action, made.start, made.end) == (proposal.action, proposal.start, proposal.end)
    after = msgspec.structs.replace(proposal, state="accepted" if is_same else "corrected")
    return [Change("label", video, label_key, None, made), Change("proposal", video, key, proposal, after)]


def reject(state: State, video: str, key: str, label_key: str) -> Changes:
    """Return the changes of rejecting a proposal: nothing happens where it is. Raises RequestError.

    The empty stretches exclude labels and other open proposals, which this decision is not about. Their ids start with
    `label_key`.
    """
    proposal = _open_proposal(state, video, key)
    labels, others = state.labels.get(video, {}), [p for name, p in state.proposals[video].items() if name != key]
    covers = [(made.start, max(made.start, proposal.end) if made.end is None else made.end) for made in labels.values()]
    covers += [(p.start, p.end) for p in others if p.state == "open" and p.action in state.actions]
    empty, reached = [], proposal.start
    for start, end in [*join_spans(covers), (proposal.end, proposal.end)]:
        if reached < min(start, proposal.end):
            empty.append(Label(NOTHING, reached, min(start, proposal.end)))
        reached = max(reached, end)
    changes: list[Change[Any]] = [
        Change("label", video, f"{label_key}-{at}", None, label) for at, label in enumerate(empty)
    ]
    rejected = msgspec.structs.replace(proposal, state="rejected")
    return [*changes, Change("proposal", video, key, proposal, rejected)]


def _open_proposal(state: State, video: str, key: str) -> Proposal:
    proposal = state.proposals.get(video, {}).get(key)
    if proposal is None or proposal.state != "open":
        raise RequestError("The proposal is already decided, or no longer proposed.", "continue with the next one.")
    return proposal
