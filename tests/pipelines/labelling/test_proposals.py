"""Proposals: made, replaced, accepted, corrected, rejected, undone and resumed."""

import json

import numpy as np
import pytest

from lstr.labels.label_set import read_labels
from lstr.pipelines.labelling.document import from_document, to_document
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import (
    Candidate,
    accept,
    find_candidates,
    find_open,
    is_labelled,
    propose,
    reject,
)
from lstr.pipelines.labelling.values import NOTHING, About, Action, Change, Label, Search
from lstr.timeline import Thresholds, Timeline, segments_in
from tests.support.labelling import action, new_id, put

A = "fall-01"


@pytest.fixture
def project(tmp_path):
    with Project(tmp_path / "labels.json", durations={A: 20.0}) as opened:
        yield opened


def candidate(start: float, end: float, label: str = "kick", peak: float = 0.6) -> Candidate:
    return Candidate(label, start, end, peak, 0.5)


def search(project, *candidates, model: str = "one", video: str = A):
    return project.propose(video, lambda state, history: propose(state, history, video, model, candidates, 20.0))


def decide(project, decision, key, label_key, label=None):
    more = (label,) if label else ()
    return project.change(new_id(), lambda state: decision(state, A, key, label_key, *more))


def held(project) -> list[tuple]:
    """(action, start, end, state) of the proposals, by time."""
    names = {key: one.name for key, one in project.state.actions.items()}
    found = project.state.proposals.get(A, {}).values()
    return sorted((names[one.action], one.start, one.end, one.state) for one in found)


def key_at(project, start: float) -> str:
    return next(key for key, one in project.state.proposals[A].items() if one.start == start and one.state == "open")


def labels(project) -> list[tuple]:
    names = {key: one.name for key, one in project.state.actions.items()} | {NOTHING: NOTHING}
    return sorted((names[one.action], one.start, one.end) for one in project.state.labels.get(A, {}).values())


def test_a_class_that_the_project_lacks_becomes_an_action_with_its_first_proposal(project):
    put(project, Action("hug", "x", 0), key="h")
    assert search(project, candidate(1, 2), candidate(19.75, 20.25, "hug")).deed == "propose"
    assert [(one.name, one.key) for _, one in project.state.ordered()] == [("hug", "x"), ("kick", "i")]
    assert held(project) == [("hug", 19.75, 20.0, "open"), ("kick", 1, 2, "open")], "none ends after its video"
    assert search(project, candidate(1, 2), candidate(19.75, 20.25, "hug")) is None, "nothing has changed"
    assert search(project, candidate(30, 31, "jump")).changes and len(project.state.actions) == 2


def test_an_action_keeps_its_class_under_another_name_and_stays_away_once_removed(project):
    search(project, candidate(1, 2), candidate(3, 4, "hug"))
    kick, hug = (
        next(key for key, one in project.state.actions.items() if one.name == name) for name in ("kick", "hug")
    )
    for name in ("Tritt", "Fußtritt"):
        put(project, Action(name, "x", 0), key=kick)
    project.change(new_id(), [Change("action", "", hug, project.state.actions[hug], None)])
    search(project, candidate(5, 6), candidate(7, 8, "hug"), model="two")
    assert [one.name for one in project.state.actions.values()] == ["Fußtritt"]
    assert [(placed.proposal.start, placed.proposal.action) for placed in find_open(project.state, [A])] == [(5, kick)]


@pytest.mark.parametrize(
    ("label", "known"),
    [
        (("kick", 1.0, 3.0), True),
        (("kick", 0.0, 2.0), True),  # half of the stretch
        (("kick", 0.0, 1.9), False),
        (("kick", 2.6, 3.2), True),  # half of the label
        (("kick", 2.6, 3.5), False),
        (("kick", 1.4, 1.6), True),  # inside it
        ((NOTHING, 0.0, 2.0), True),
        ((NOTHING, 1.4, 1.6), False),  # says nothing of the rest
        (("hug", 1.0, 3.0), False),  # actions may overlap
        (("kick", 1.5, None), False),  # is being labelled
    ],
)
def test_what_a_person_has_labelled_is_not_proposed_again(label, known):
    assert is_labelled("kick", 1.0, 3.0, [Label(*label)]) is known
    assert is_labelled("kick", 1.0, 3.0, [Label("hug", 0, 9), Label(*label)]) is known
    # labels together answer a proposal
    halves = [Label("kick", 0.0, 1.5), Label(NOTHING, 2.5, 3.0), Label("kick", 0.2, 1.5)]
    assert is_labelled("kick", 1.0, 3.0, halves) and not is_labelled("kick", 1.0, 3.01, halves)


def test_rejecting_says_that_nothing_happens_where_nothing_else_is(project):
    hug = action(project, "hug")
    put(project, Label(hug, 2.0, 2.5), A, "x")
    search(project, candidate(1, 4), candidate(3.5, 5, "hug"))
    decide(project, reject, key_at(project, 1), "first")
    assert labels(project) == [("hug", 2, 2.5), (NOTHING, 1, 2), (NOTHING, 2.5, 3.5)], "3.5 to 4 is not decided yet"
    decide(project, reject, key_at(project, 3.5), "second")
    assert labels(project)[-1] == (NOTHING, 3.5, 5)
    project.turn(new_id(), A, "undo")
    project.turn(new_id(), A, "undo")
    assert labels(project) == [("hug", 2, 2.5)] and [state for *_, state in held(project)] == ["open", "open"]
    decide(project, accept, key_at(project, 3.5), "third")
    decide(project, reject, key_at(project, 1), "fourth")
    assert labels(project)[2:] == [(NOTHING, 1, 2), (NOTHING, 2.5, 3.5)], "nor does it say so where a label is"
    put(project, Label(hug, 10, None), A, "open")
    search(project, candidate(9.5, 12), model="two")
    decide(project, reject, key_at(project, 9.5), "fifth")
    assert (NOTHING, 9.5, 10) in labels(project), "what is being labelled is not said to be nothing"


def test_an_open_proposal_teaches_nothing_and_a_rejected_one_that_nothing_happens(project):
    search(project, candidate(1, 3), candidate(5, 6))
    put(project, About(comment="looked at"), A)
    project.settle()
    assert [(s.label, s.start, s.end) for s in read_labels(project.path).videos[A].segments] == [("Ambiguous", 0, 20)]
    decide(project, reject, key_at(project, 5), "label-key")
    project.settle()
    segments = [(s.label, s.start, s.end) for s in read_labels(project.path).videos[A].segments]
    assert segments == [("Background", 5, 6), ("Ambiguous", 0, 5), ("Ambiguous", 6, 20)]


def test_a_decision_outlives_its_model_and_open_ones_do_not(project):
    search(project, candidate(1, 3), candidate(5, 6), candidate(8, 9))
    decide(project, accept, key_at(project, 1), "first")
    decide(project, reject, key_at(project, 5), "second")
    put(project, None, A, "second-0")
    search(project, candidate(1.1, 3), candidate(5, 6.2), candidate(8, 9))
    assert len(held(project)) == 3, "the same model does not come back with what was decided"
    search(project, candidate(5, 6), candidate(12, 13), model="two")
    states = {(start, state) for _, start, _, state in held(project)}
    assert states == {(1, "accepted"), (5, "rejected"), (5, "open"), (12, "open")}
    assert project.state.searches == {A: Search("two")}


def test_proposals_come_back_from_journal_and_file(project, tmp_path):
    search(project, candidate(1, 3, peak=0.31), candidate(5, 6, "hug"), candidate(8, 9))
    decide(project, accept, key_at(project, 1), "first", Label(next(iter(project.state.actions)), 1.5, 3))
    decide(project, reject, key_at(project, 5), "second")
    search(project, model="one", video="empty")
    document = to_document(project.state, project.durations, {})
    assert from_document(json.loads(json.dumps(document)), "file")[0] == project.state
    state = project.state.copy()
    project.close()
    with Project(project.path) as again:
        assert again.state == state
        again.turn(new_id(), A, "undo")
        assert ("hug", 5, 6, "open") in held(again)
    project.journal.path.unlink()
    with Project(project.path) as alone:
        assert alone.state.searches == state.searches and len(alone.state.proposals[A]) == 3


CLASSES = ("Background", "kick", "hug", "Ambiguous")


@pytest.mark.parametrize(
    ("rules", "kick", "hug", "found"),
    [
        (
            {"kick": Thresholds(0.6, 0.4), "hug": Thresholds(0.2, 0.1)},
            [0, 0.7, 0.5, 0.1, 0, 0.35, 0.31, 0, 0.2],
            [0, 0, 0, 0.15, 0.05, 0, 0, 0.3],
            [("kick", 1, 3, 0.7), ("kick", 5, 7, 0.35), ("hug", 7, 8, 0.3), ("hug", 3, 4, 0.15)],
        ),
        # the rise and fall of a detection are not near misses, but another bump right behind it is one
        (Thresholds(0.6, 0.5), [0.31, 0.4, 0.9, 0.45, 0.35, 0], [], [("kick", 2, 3, 0.9)]),
        (Thresholds(0.6, 0.5), [0.9, 0.35, 0.45, 0.31, 0], [], [("kick", 0, 1, 0.9), ("kick", 1, 4, 0.45)]),
        # of actions that never happen together only the highest is proposed
        (
            Thresholds(0.5, 0.4, highest=True),
            [0.5, 0.5, 0.3, 0.3],
            [0.4, 0.4, 0.4, 0.4],
            [("kick", 0, 2, 0.5), ("hug", 2, 4, 0.4)],
        ),
        (Thresholds(), [], [], []),
        (Thresholds(), [0] * 20, [], []),
    ],
)
def test_detections_and_near_misses(rules, kick, hug, found):
    scores = np.zeros((len(kick), 4))
    scores[:, 1], scores[: len(hug), 2], scores[:, 0] = kick, hug, 1 - np.array(kick)
    candidates = find_candidates(scores, CLASSES, rules)
    assert [(one.label, one.start * 4, one.end * 4, one.peak) for one in candidates] == found
    assert all(one.threshold == (rules[one.label] if isinstance(rules, dict) else rules).on for one in candidates)


@pytest.mark.parametrize("seed", range(2))
def test_detections_are_those_of_the_timeline_and_near_misses_lie_beside(seed):
    rng = np.random.default_rng(seed)
    scores = np.clip(np.cumsum(rng.normal(0, 0.15, (400, 4)), axis=0) % 1.6, 0, 1)
    rules = Thresholds(0.7, 0.5, min_length=0.5, merge_gap=0.25, highest=bool(seed % 2))
    timeline = Timeline(CLASSES, rules)
    events = [event for at, row in enumerate(scores) for event in timeline.push((at + 1) / 4, row)]
    detected = {(one.label, one.start, one.end) for one in segments_in([*events, *timeline.finish(100)])}
    found = find_candidates(scores, CLASSES, rules)
    assert detected and detected <= {(one.label, one.start, one.end) for one in found}
    near = [one for one in found if (one.label, one.start, one.end) not in detected]
    assert near and all(0.35 <= one.peak for one in near)
    for label in ("kick", "hug"):
        in_order = sorted((one.start, one.end) for one in found if one.label == label)
        assert all(end <= start for (_, end), (start, _) in zip(in_order, in_order[1:], strict=False))
