"""A source while it runs without a timeline, as for weeks."""

import tempfile
from functools import partial

import pytest

from lstr.pipelines.detection.decision import Decision, Ended
from lstr.pipelines.detection.options import NO_TIMELINE, Limits, OutputOptions
from lstr.pipelines.detection.session import Session
from tests.pipelines.detection.test_session import Kept, camera, stored
from tests.support.detections import dated_file, opened
from tests.support.means import Means, tiny_checkpoint


@pytest.fixture
def loaded(tmp_path):
    return tiny_checkpoint(tmp_path / "c.pt", ("Background", "kick", "wave"))


@pytest.fixture
def networks(loaded):
    return opened(loaded, (Means(), None))


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """The system's folder for temporary files is none: what is kept until the end has no place."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))


def test_nothing_is_kept_of_a_source_without_a_timeline(loaded, networks):
    """All events and gaps of it were in a file without a name, which was read whole into memory at its end."""
    into = {}
    limits, sinks = Limits(max_chunks=20), [partial(Kept, into)]
    with Session(loaded, networks, 2, output=NO_TIMELINE, sinks=sinks, limits=limits) as session:
        session.add(camera())
        session.add(stored("a", 20))
        events = list(session.events())
    ended = {event.id: event for event in events if isinstance(event, Ended)}
    assert ended.keys() == {"camera", "a"} and all(not one.timeline and one.page is None for one in ended.values())
    for name, one in ended.items():
        assert len(into[name]) == 22 and [e.event for e in into[name][-1].events] == [e.event for e in one.events]
    assert sum(len(event.events) for event in events if isinstance(event, Decision))


def test_lines_are_written_without_a_timeline(loaded, networks, tmp_path):
    output = OutputOptions(tmp_path / "out", ("json", "jsonl"), timeline=False)
    with Session(loaded, networks, output=output, limits=Limits(max_chunks=20)) as session:
        session.add(camera())
        assert any(isinstance(event, Ended) for event in session.events())
    assert dated_file(tmp_path / "out", "camera", ".jsonl").read_text().count("\n") >= 20
    assert not [*(tmp_path / "out").glob("*.json")]
