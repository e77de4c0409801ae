"""The file of a labels project, and which of its time is unlabelled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.chunk import CLOCK
from lstr.errors import LabelsError, RequestError
from lstr.labels.label_set import labels_of, read_activitynet, targets
from lstr.pipelines.labelling.document import find_unlabelled, from_document, to_document
from lstr.pipelines.labelling.values import NOTHING, About, Action, Label, State, Subject, change_of


def state_of(*labels: Label, complete: bool = False) -> State:
    state = State(actions={"f": Action("fall", "f", 0), "w": Action("walk", "w", 1)}, subjects={"Anna": Subject()})
    state.labels["a"] = {str(at): label for at, label in enumerate(labels)}
    state.abouts["a"] = About(complete)
    return state


def targets_of(state: State) -> dict[str, list[int]]:
    """Return the training targets of a video of 16 chunks, by class."""
    document = to_document(state, {"a": 4.0}, {})
    labels = labels_of(*read_activitynet(document, "labels.json"), "labels.json")
    rows = targets(labels.videos["a"], labels.classes, 16)
    return dict(zip(labels.classes, rows.T.tolist(), strict=True))


def test_training_targets():
    """Unlabelled time is ambiguous, also after the start of an open label; empty time is background."""
    by_class = targets_of(state_of(Label("f", 0.6, 1.1), Label(NOTHING, 1.1, 2.6)))
    assert by_class["fall"] == [0, 0, 1, 1, 1] + [0] * 11
    assert by_class["Background"] == [0] * 5 + [1] * 5 + [0] * 6, "excludes a chunk that is half unlabelled"
    assert by_class["Ambiguous"] == [1, 1] + [0] * 8 + [1] * 6, "excludes chunks with an action"
    by_class = targets_of(state_of(Label("f", 0.5, 1.0), complete=True))
    assert by_class["Background"] == [1, 1, 0, 0] + [1] * 12 and "Ambiguous" not in by_class
    by_class = targets_of(state_of(Label("f", 2.0, None), complete=True))
    assert by_class["Ambiguous"] == [0] * 8 + [1] * 8 and not any(by_class["fall"])


times = st.integers(0, 160).map(lambda ticks: ticks / 40)
labels = st.lists(
    st.tuples(st.sampled_from(["f", "w", NOTHING]), times, times).filter(lambda label: label[1] < label[2]), max_size=6
)


@settings(max_examples=50)
@given(labels, st.booleans())
def test_unlabelled_time_equals_a_count_of_ticks(spans, complete):
    """A second implementation on a grid of 40 ticks a second."""
    ambiguous = np.zeros(16, bool)
    for start, end in find_unlabelled([Label(*span) for span in spans], complete, 4.0):
        assert (start * 4).is_integer() and start < end <= 4
        ambiguous[CLOCK.first(start) : CLOCK.end(end)] = True
    is_labelled, has_action = np.zeros((2, 160), bool)
    for action, start, end in spans:
        ticks = slice(round(start * 40), round(end * 40))
        is_labelled[ticks] = True
        has_action[ticks] |= action != NOTHING
    chunks = ~has_action.reshape(16, 10).any(1) & ~is_labelled.reshape(16, 10).all(1)
    np.testing.assert_array_equal(ambiguous, chunks & (not complete))


def test_a_damaged_file_is_refused():
    document = to_document(state_of(Label("f", 1.0, 2.0)), {"a": 4.0}, {})
    document["lstr"]["actions"] = [{"name": "fall"}]
    with pytest.raises(LabelsError, match="labels.json"):
        from_document(document, "labels.json")


PROPOSAL = {"action": "kick", "start": 3, "end": 4, "peak": 0.5, "threshold": 0.5, "model": "m"}


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {"kind": "file", "key": "/etc/passwd"},
        {"kind": "label", "key": "x", "after": {"action": "f", "start": 1}},
        {"kind": "label", "video": "a", "key": "x", "after": {"action": "f", "start": 2, "end": 2}},
        {"kind": "label", "video": "a", "key": "x", "after": {"action": "f", "start": 1, "comment": "\ud800"}},
        {"kind": "proposal", "video": "a", "key": "p", "after": PROPOSAL | {"end": 2}},
        {"kind": "proposal", "video": "a", "key": "p", "after": PROPOSAL | {"state": "perhaps"}},
        {"kind": "about", "video": "a", "after": {"complete": "yes"}},
        {"kind": "action", "key": "x", "after": {"name": "Background"}},
        {"kind": "action", "key": "x", "after": {"name": "fall", "key": "j"}},
        {"kind": "action", "key": "x", "after": {"name": "fall", "key": "ab"}},
    ],
)
def test_invalid_changes_are_refused(entry):
    with pytest.raises(RequestError):
        change_of(entry)
