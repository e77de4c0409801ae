"""A source that is decided only while its gate is open: by the same decisions as one that begins there."""

from functools import partial

import numpy as np
import pytest

from lstr.extractors.video.gaps import RESTING
from lstr.extractors.video.live_reader import LiveOptions
from lstr.extractors.video.packet_gate import Gate
from lstr.pipelines.detection.events import Decided, Ended
from lstr.pipelines.detection.files import OutputOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.sink import Sink
from lstr.pipelines.detection.sources import Limits
from lstr.timeline import Thresholds
from tests.extractors.video.test_packet_gate import film, stdin, while_in
from tests.support.detections import dated_file, opened
from tests.support.means import Means, tiny_checkpoint
from tests.support.served import piped

CLASSES = ("Background", "kick", "wave", "dive")
ALWAYS_ON = Thresholds(0.0, 0.0)
OPEN, LATER, FIRST = range(30), range(125, 10**6), 16
"""Packets while it is open; chunk FIRST begins with the key frame before the later ones."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("gated") / "c.pt", CLASSES)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> bytes:
    return film(tmp_path_factory.mktemp("film") / "plain.ts")


class Noting(Sink):
    """What it was handed, in order: chunks, and labels of the events that a rest has ended."""

    def __init__(self, into: list):
        self._into = into

    def take(self, decision):
        self._into.append(decision.chunk)

    def rest(self, events):
        self._into.append([(event.event, event.label, event.still_on, event.at is not None) for event in events])


def decisions(loaded, data: bytes, **more) -> tuple[dict, list]:
    """Decisions by chunk, and what the session told."""
    networks, live = opened(loaded, (Means(), None)), LiveOptions(on_lag="wait")
    with piped(data) as file, Session(loaded, networks, live=live, thresholds=ALWAYS_ON, **more) as session:
        session.add(stdin(file))
        events = list(session.events())
    return {event.decision.chunk: event.decision for event in events if isinstance(event, Decided)}, events


def test_decisions_after_it_opens_are_those_of_a_source_that_begins_there(loaded, data):
    """To the last bit: what it decided before is forgotten; one that was never closed remembers more."""
    gated, _ = decisions(loaded, data, gates=lambda name: Gate(while_in(OPEN, LATER), 0.0, 2**24))
    anew, _ = decisions(loaded, data, limits=Limits(start=FIRST / 4))
    whole, _ = decisions(loaded, data)
    assert [*gated] == [*range(4), *range(FIRST, 32)] and [*anew] == [*range(FIRST, 32)]
    for chunk, decision in gated.items():
        expected = whole[chunk] if chunk < FIRST else anew[chunk]
        assert np.array_equal(decision.scores, expected.scores) and decision.time == expected.time
    assert not np.array_equal(gated[FIRST].scores, whole[FIRST].scores), "else its memory would not matter"
    (gap,) = gated[FIRST].gaps
    assert (gap.first, gap.end, gap.reason) == (4, FIRST, RESTING)


def test_what_is_on_ends_as_it_closes_and_begins_anew(loaded, data, tmp_path):
    into: list = []
    output = OutputOptions(tmp_path, ("json", "jsonl"))
    gates = {"stdin": Gate(while_in(OPEN, LATER), 0.0, 2**24)}
    gated, events = decisions(loaded, data, gates=gates.get, sinks=[partial(Noting, into)], output=output)
    actions = sorted(CLASSES[1:])
    place = into.index([("ended", label, True, True) for label in CLASSES[1:]])
    assert into[:place] == [0, 1, 2, 3] and into[place + 1] == FIRST, "before it is decided again"
    started = {chunk: [e.label for e in d.events if e.event == "started"] for chunk, d in gated.items()}
    assert sorted(started[0]) == sorted(started[FIRST]) == actions
    (ended,) = [event for event in events if isinstance(event, Ended)]
    segments = [s for s in ended.timeline["segments"] if s["label"] == "kick"]
    assert [(segment["start"], segment["end"]) for segment in segments] == [(0.0, 1.0), (FIRST / 4, 8.0)]
    assert dated_file(tmp_path, "stdin", ".jsonl").read_text().count('"ended"') == 2 * len(actions)
