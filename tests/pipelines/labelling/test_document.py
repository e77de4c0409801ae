"""The file of a labels project: what is unlabelled, and that other commands take the file as it is."""

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


def targets_of(state: State, seconds: float = 4.0):
    """(chunks, classes) by name, as training sees them."""
    document = to_document(state, {"a": seconds}, {})
    labels = labels_of(*read_activitynet(document, "it"), "it")
    rows = targets(labels.videos["a"], labels.classes, int(seconds * 4))
    return dict(zip(labels.classes, rows.T.tolist(), strict=True))


def test_what_training_sees():
    """Unlabelled time is ambiguous, and so is what follows the start of an open label; empty time is background."""
    shown = targets_of(state_of(Label("f", 0.6, 1.1), Label(NOTHING, 1.1, 2.6)))
    assert shown["fall"] == [0, 0, 1, 1, 1] + [0] * 11
    assert shown["Background"] == [0] * 5 + [1] * 5 + [0] * 6, "a chunk that is half unknown is not background"
    assert shown["Ambiguous"] == [1, 1] + [0] * 8 + [1] * 6, "nor is a chunk with an action in it ambiguous"
    shown = targets_of(state_of(Label("f", 0.5, 1.0), complete=True))
    assert shown["Background"] == [1, 1, 0, 0] + [1] * 12 and "Ambiguous" not in shown
    shown = targets_of(state_of(Label("f", 2.0, None), complete=True))
    assert shown["Ambiguous"] == [0] * 8 + [1] * 8 and not any(shown["fall"])


times = st.integers(0, 160).map(lambda ticks: ticks / 40)
labels = st.lists(
    st.tuples(st.sampled_from(["f", "w", NOTHING]), times, times).filter(lambda label: label[1] < label[2]), max_size=6
)


@settings(max_examples=50)
@given(labels, st.booleans())
def test_no_chunk_is_background_that_nobody_called_so(spans, complete):
    """A grid of hundredths of a second beside the arithmetic of stretches."""
    marks = [Label(*span) for span in spans]
    ambiguous = np.zeros(16, bool)
    for start, end in find_unlabelled(marks, complete, 4.0):
        assert (start * 4).is_integer() and start < end <= 4
        ambiguous[CLOCK.first(start) : CLOCK.end(end)] = True
    for chunk in range(16):
        moments = np.arange(chunk * 10, chunk * 10 + 10)  # fortieths of a second
        is_shown = any(label.action != NOTHING and set(moments) & _moments(label) for label in marks)
        is_covered = all(any(moment in _moments(label) for label in marks) for moment in moments)
        assert ambiguous[chunk] == (not complete and not is_shown and not is_covered)


def _moments(label: Label) -> set[int]:
    return set(range(round(label.start * 40), round(label.end * 40)))


def test_a_file_that_is_not_sound():
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
def test_what_is_no_change_is_refused(entry):
    with pytest.raises(RequestError):
        change_of(entry)
