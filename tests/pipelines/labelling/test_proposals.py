"""Proposals of a model: how they are found, replaced and decided, and the process that searches for them."""

import json
import shutil
import time

import numpy as np
import pytest

from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.labelling.document import from_document, to_document
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import accept, find_candidates, find_open, is_labelled, propose, reject
from lstr.pipelines.labelling.search import HASH_DIGITS, Proposer, check_model
from lstr.pipelines.labelling.values import NOTHING, About, Action, Change, Label, Proposal, Search
from lstr.timeline import Thresholds, Timeline, segments_in
from tests.support.labelling import action, new_id, put
from tests.support.waiting import wait_until


def offer(project, *spans: tuple, model: str = "one", video: str = "a"):
    """Propose spans (start, end, action) of a model; actions are kicks if not given."""
    candidates = [Proposal(*(label or ("kick",)), start, end, 0.6, 0.5, "") for start, end, *label in spans]
    return project.propose(video, lambda state, history: propose(state, history, video, model, candidates, 20.0))


def decide(project, decision, start: float, label_key: str, *label):
    """Decide about the open proposal that starts at a time."""
    proposals = project.state.proposals["a"].items()
    key = next(key for key, p in proposals if p.start == start and p.state == "open")
    return project.change(new_id(), lambda state: decision(state, "a", key, label_key, *label))


def proposals_of(project) -> list[tuple]:
    """Return (action, start, end, state) of the proposals, sorted."""
    names = {key: action.name for key, action in project.state.actions.items()}
    return sorted((names[p.action], p.start, p.end, p.state) for p in project.state.proposals["a"].values())


def labels_of(project) -> list[tuple]:
    names = {key: action.name for key, action in project.state.actions.items()} | {NOTHING: NOTHING}
    labels = project.state.labels["a"].values()
    return sorted((names[label.action], label.start, label.end) for label in labels)


def test_the_first_proposal_of_a_class_adds_its_action(project):
    put(project, Action("hug", "x", 0), key="h")
    assert offer(project, (1, 2), (19.75, 20.25, "hug")).deed == "propose"
    assert [(action.name, action.key) for _, action in project.state.ordered()] == [("hug", "x"), ("kick", "i")]
    assert proposals_of(project) == [("hug", 19.75, 20.0, "open"), ("kick", 1, 2, "open")], "ends with the video"
    assert offer(project, (1, 2), (19.75, 20.25, "hug")) is None, "without changes"
    assert offer(project, (30, 31, "jump")).changes and len(project.state.actions) == 2


def test_classes_of_renamed_and_removed_actions(project):
    offer(project, (1, 2), (3, 4, "hug"))
    ids = {action.name: key for key, action in project.state.actions.items()}
    for name in ("Tritt", "Fußtritt"):
        put(project, Action(name, "x", 0), key=ids["kick"])
    project.change(new_id(), [Change("action", "", ids["hug"], project.state.actions[ids["hug"]], None)])
    offer(project, (5, 6), (7, 8, "hug"), model="two")
    assert [action.name for action in project.state.actions.values()] == ["Fußtritt"]
    assert [(p.start, p.action) for _, _, p in find_open(project.state, ["a"])] == [(5, ids["kick"])]


@pytest.mark.parametrize(
    ("label", "labelled"),
    [
        (("kick", 1.0, 3.0), True),
        (("kick", 0.0, 2.0), True),  # half of the proposal
        (("kick", 0.0, 1.9), False),
        (("kick", 2.6, 3.2), True),  # half of the label
        (("kick", 2.6, 3.5), False),
        (("kick", 1.4, 1.6), True),  # inside the proposal
        ((NOTHING, 0.0, 2.0), True),
        ((NOTHING, 1.4, 1.6), False),  # the rest of the proposal is unlabelled
        (("hug", 1.0, 3.0), False),  # actions may overlap
        (("kick", 1.5, None), False),  # is being labelled
    ],
)
def test_labelled_actions_are_not_proposed(label, labelled):
    assert is_labelled("kick", 1.0, 3.0, [Label(*label)]) is labelled
    assert is_labelled("kick", 1.0, 3.0, [Label("hug", 0, 9), Label(*label)]) is labelled
    # several labels together cover a proposal
    halves = [Label("kick", 0.0, 1.5), Label(NOTHING, 2.5, 3.0), Label("kick", 0.2, 1.5)]
    assert is_labelled("kick", 1.0, 3.0, halves) and not is_labelled("kick", 1.0, 3.01, halves)


def test_a_rejected_proposal_is_background_except_where_something_else_is(project):
    hug = action(project, "hug")
    put(project, Label(hug, 2.0, 2.5), "a", "x")
    offer(project, (1, 4), (3.5, 5, "hug"))
    decide(project, reject, 1, "first")
    assert labels_of(project) == [("hug", 2, 2.5), (NOTHING, 1, 2), (NOTHING, 2.5, 3.5)], "3.5 to 4 is undecided"
    decide(project, reject, 3.5, "second")
    assert labels_of(project)[-1] == (NOTHING, 3.5, 5)
    for _ in range(2):
        project.turn(new_id(), "a", "undo")
    assert labels_of(project) == [("hug", 2, 2.5)] and {state for *_, state in proposals_of(project)} == {"open"}
    decide(project, accept, 3.5, "third")
    decide(project, reject, 1, "fourth")
    assert labels_of(project)[2:] == [(NOTHING, 1, 2), (NOTHING, 2.5, 3.5)]
    put(project, Label(hug, 10, None), "a", "open")
    offer(project, (9.5, 12), model="two")
    decide(project, reject, 9.5, "fifth")
    assert (NOTHING, 9.5, 10) in labels_of(project), "excludes a label without an end"


def test_training_uses_rejected_but_not_open_proposals(project):
    offer(project, (1, 3), (5, 6))
    put(project, About(comment="looked at"), "a")

    def segments() -> list[tuple]:
        project.settle()
        return [(s.label, s.start, s.end) for s in read_label_file(project.path).videos["a"].segments]

    assert segments() == [("Ambiguous", 0, 20)]
    decide(project, reject, 5, "label-key")
    assert segments() == [("Background", 5, 6), ("Ambiguous", 0, 5), ("Ambiguous", 6, 20)]


def test_a_new_model_replaces_open_proposals_and_keeps_decisions(project):
    offer(project, (1, 3), (5, 6), (8, 9))
    decide(project, accept, 1, "first")
    decide(project, reject, 5, "second")
    put(project, None, "a", "second-0")
    offer(project, (1.1, 3), (5, 6.2), (8, 9))
    assert len(proposals_of(project)) == 3, "the same model does not repeat decided proposals"
    offer(project, (5, 6), (12, 13), model="two")
    states = {(start, state) for _, start, _, state in proposals_of(project)}
    assert states == {(1, "accepted"), (5, "rejected"), (5, "open"), (12, "open")}
    assert project.state.searches == {"a": Search("two")}


def test_proposals_are_restored_from_journal_and_file(project):
    offer(project, (1, 3), (5, 6, "hug"), (8, 9))
    decide(project, accept, 1, "first", Label(next(iter(project.state.actions)), 1.5, 3))
    decide(project, reject, 5, "second")
    offer(project, video="empty")
    document = to_document(project.state, project.durations, {})
    assert from_document(json.loads(json.dumps(document)), "file")[0] == project.state
    state = project.state.copy()
    project.close()
    with Project(project.path) as reopened:
        assert reopened.state == state
        reopened.turn(new_id(), "a", "undo")
        assert ("hug", 5, 6, "open") in proposals_of(reopened)
    project.journal.path.unlink()
    with Project(project.path) as from_file:
        assert from_file.state.searches == state.searches and len(from_file.state.proposals["a"]) == 3


CLASSES = ("Background", "kick", "hug", "Ambiguous")


@pytest.mark.parametrize(
    ("rules", "kick", "hug", "expected"),
    [
        (
            {"kick": Thresholds(0.6, 0.4), "hug": Thresholds(0.2, 0.1)},
            [0, 0.7, 0.5, 0.1, 0, 0.35, 0.31, 0, 0.2],
            [0, 0, 0, 0.15, 0.05, 0, 0, 0.3],
            [("kick", 1, 3, 0.7), ("kick", 5, 7, 0.35), ("hug", 7, 8, 0.3), ("hug", 3, 4, 0.15)],
        ),
        # the rise and fall of a detection are not near misses, but another peak right behind it is one
        (Thresholds(0.6, 0.5), [0.31, 0.4, 0.9, 0.45, 0.35, 0], [], [("kick", 2, 3, 0.9)]),
        (Thresholds(0.6, 0.5), [0.9, 0.35, 0.45, 0.31, 0], [], [("kick", 0, 1, 0.9), ("kick", 1, 4, 0.45)]),
        # of actions that never overlap only the highest is proposed
        (
            Thresholds(0.5, 0.4, highest=True),
            [0.5, 0.5, 0.3, 0.3],
            [0.4] * 4,
            [("kick", 0, 2, 0.5), ("hug", 2, 4, 0.4)],
        ),
        (Thresholds(), [], [], []),
    ],
)
def test_detections_and_near_misses(rules, kick, hug, expected):
    scores = np.zeros((len(kick), 4))
    scores[:, 1], scores[: len(hug), 2], scores[:, 0] = kick, hug, 1 - np.array(kick)
    candidates = find_candidates(scores, CLASSES, rules)
    assert [(c.action, c.start * 4, c.end * 4, c.peak) for c in candidates] == expected
    assert all(c.threshold == (rules[c.action] if isinstance(rules, dict) else rules).on for c in candidates)


@pytest.mark.parametrize("highest", [False, True])
def test_detections_equal_the_timeline_and_near_misses_do_not_overlap_them(highest):
    rng = np.random.default_rng(int(highest))
    scores = np.clip(np.cumsum(rng.normal(0, 0.15, (400, 4)), axis=0) % 1.6, 0, 1)
    rules = Thresholds(0.7, 0.5, min_length=0.5, merge_gap=0.25, highest=highest)
    timeline = Timeline(CLASSES, rules)
    events = [event for chunk, row in enumerate(scores) for event in timeline.push((chunk + 1) / 4, row)]
    detected = {(s.label, s.start, s.end) for s in segments_in([*events, *timeline.finish(100)])}
    peaks = {(c.action, c.start, c.end): c.peak for c in find_candidates(scores, CLASSES, rules)}
    assert detected and detected < peaks.keys()
    assert all(peaks[span] >= 0.35 for span in peaks.keys() - detected)
    for label in ("kick", "hug"):
        spans = sorted((start, end) for name, start, end in peaks if name == label)
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


@pytest.fixture
def proposer(small_set, tmp_path):
    videos = {path.stem: path for path in sorted(small_set.videos.iterdir())}
    (tmp_path / "bad.mp4").write_bytes(b"no video at all")
    with Project(tmp_path / "labels.json") as project:
        with Proposer(project, videos | {"bad": tmp_path / "bad.mp4"}) as opened:
            yield opened
        assert not opened.process or opened.process.process.poll() is not None, "its process has ended"


def begin(proposer, model):
    before = proposer.process
    proposer.begin(model)
    wait_until(lambda: proposer.process is not before)
    return proposer.process.process


def wait(proposer):
    wait_until(lambda: not proposer.status.is_running)
    return proposer.status


@pytest.mark.long
def test_a_new_model_ends_the_search_of_another(proposer, small_set, tmp_path):
    shutil.copy(small_set.checkpoint, tmp_path / "first.pt")
    process = begin(proposer, tmp_path / "first.pt")
    begin(proposer, small_set.checkpoint)
    assert process.poll() is not None and proposer.status.is_running
    assert (proposer.status.model, proposer.status.trouble) == (small_set.checkpoint.name, "")


@pytest.mark.long
def test_a_model_searches_videos_that_it_has_not_searched(proposer, small_set):
    first, *complete = list(proposer.videos)[:-1]
    for video in complete:
        put(proposer.project, About(complete=True), video)
    proposer.begin(small_set.checkpoint)
    status = wait(proposer)
    assert (status.model, status.trouble) == (small_set.checkpoint.name, "")
    assert (status.done, status.total) == (2, 2), "complete videos are not searched"
    assert [video for video, _ in status.failed] == ["bad"]
    (search,) = proposer.project.state.searches.values()
    assert len(search.model) == HASH_DIGITS and list(proposer.project.state.proposals) == [first]
    proposer.begin(small_set.checkpoint)
    wait_until(lambda: proposer.status.total == 1)  # only the unreadable video


@pytest.mark.long
def test_a_killed_process_is_reported_and_closing_ends_a_search_at_once(proposer, small_set):
    begin(proposer, small_set.checkpoint).kill()
    assert "SIGKILL" in wait(proposer).trouble
    process, began = begin(proposer, small_set.checkpoint), time.monotonic()
    proposer.__exit__()
    assert process.poll() is not None and time.monotonic() - began < 60
    assert not proposer.status.is_running and proposer.status.trouble == ""


@pytest.mark.long
def test_an_invalid_model_is_reported(proposer, tmp_path, small_set):
    shutil.copy(small_set.labels, tmp_path / "bad.pt")
    check_model(tmp_path / "bad.pt")
    proposer.begin(tmp_path / "bad.pt")
    assert "bad.pt" in wait(proposer).trouble
