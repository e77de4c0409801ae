"""The history of a watching service: events, sentences about them, and labels of their clips."""

import json
import sqlite3
from dataclasses import replace
from datetime import timedelta

import pytest

from lstr.errors import HistoryError
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.watching.event import describe_rate, format_seconds
from lstr.pipelines.watching.history import VERSION, History, Notice
from lstr.pipelines.watching.labels import export_labels
from lstr.pipelines.watching.notifications import describe
from tests.support.watching import START, event_of, recent_event


def test_old_events_are_deleted_with_their_notices(history):
    old, active, new = (recent_event(ago) for ago in (200, 150, 4))
    for event in (old, active, new):
        history.begin(event, ["phone"])
    for event in (old, new):
        history.update(replace(event, end=event.start))
    assert not history.delete_old(999_999 * 86_400.0)  # before year 1
    assert [event.id for event in history.delete_old(100)] == [old.id]
    assert {event.id for event in history.events()} == {active.id, new.id}
    assert {notice.event.id for notice in history.pending("phone")} == {active.id, new.id}


def test_invalid_history_files(tmp_path, history):
    (tmp_path / "text").write_text("no database" * 200)
    history.close()
    connection = sqlite3.connect(history.path)
    connection.execute(f"PRAGMA user_version={VERSION + 1}")
    connection.close()
    for path in (tmp_path / "text", history.path):
        with pytest.raises(HistoryError, match=path.name):
            History(path)
    with pytest.raises(HistoryError):
        History(tmp_path / "missing", readonly=True)


@pytest.mark.parametrize("source", ["hall", "the yard", "cam2", "a\x1b[2Jb\nc"])
@pytest.mark.parametrize("end", [None, "action", "source"])
def test_sentences(source, end):
    event = event_of(source, seen=START + timedelta(seconds=8), false_alarms=1 / 24 / 9, still_active=end == "source")
    event = replace(event, end=event.seen if end else None)
    for phase in ("new", "end"):
        sentence = describe(Notice(1, event, "phone", phase), START + timedelta(days=1))
        assert all(part in sentence for part in ("fall", source[0], "2026-05-31 14:03:", "8 s"))
        assert sentence.isprintable() and ("9 days" in sentence or phase == "end")


def test_lengths_and_rates():
    lengths = {59.6: "1 min", 125: "2 min 5 s", 3661: "1 h 1 min", 183600: "2 days 3 h"}
    assert {seconds: format_seconds(seconds) for seconds in lengths} == lengths and "1 s" in format_seconds(0.2)
    for rate, text in {1.5: "2", 0.5: "12", 1 / 24: "a day", 1 / 24 / 92: "3 months", 1e-9: "year"}.items():
        assert text in describe_rate(rate)
    assert describe_rate(0) and not describe_rate(float("nan"))


SECONDS = 10.0


def add(history, start, end, verdict, action="fall", source="hall", clip=True) -> str:
    """Store an event between two seconds after START, with a clip that begins two seconds before it; return its id."""
    event = event_of(source, action, START + timedelta(seconds=start))
    history.begin(event, [])
    history.update(replace(event, end=START + timedelta(seconds=end)))
    history.judge(event.id, verdict)
    if clip:
        clips = history.path.parent / "clips"
        clips.mkdir(exist_ok=True)
        (clips / f"{event.id}.mp4").touch()
        values = {"start": (event.start - timedelta(seconds=2)).isoformat(), "seconds": SECONDS}
        (clips / f"{event.id}.json").write_text(json.dumps(values))
    return event.id


def segments(labels, event_id) -> list[tuple]:
    return sorted((s.start, s.end, s.label) for s in labels.videos[event_id].segments)


def test_right_events_are_actions_and_wrong_ones_background(history, tmp_path):
    right = add(history, 0, 4.25, "right")
    wrong = add(history, 100, 103, "wrong")
    long = add(history, 200, 300, "right", "wave")
    add(history, 400, 401, "")
    add(history, 500, 501, "right", clip=False)
    assert export_labels(history, tmp_path / "clips", tmp_path / "labels.json") == (2, 1, 1)
    labels = read_label_file(tmp_path / "labels.json")
    assert labels.classes == ("Background", "fall", "wave") and {*labels.videos} == {right, wrong, long}
    assert segments(labels, right) == [(2, 6.25, "fall")] and segments(labels, wrong) == []
    assert segments(labels, long) == [(2, 10, "wave")], "it lasts longer than its clip"
    assert {video.duration for video in labels.videos.values()} == {SECONDS} and not labels.has_subsets
    assert export_labels(history, tmp_path / "clips", tmp_path / "waves.json", action="wave") == (1, 0, 0)


def test_events_without_a_verdict_are_ambiguous(history, tmp_path):
    fall = add(history, 0, 2, "right")
    wave = add(history, 4, 6, "right", "wave")
    add(history, -1, 7, "", "wave")
    add(history, 0, 3, "wrong", "jump", clip=False)
    add(history, 0, 8, "", "wave", "yard")
    export_labels(history, tmp_path / "clips", tmp_path / "labels.json")
    labels = read_label_file(tmp_path / "labels.json")
    expected = [(1, 2, "Ambiguous"), (2, 4, "fall"), (4, 6, "Ambiguous"), (6, 8, "wave"), (8, 9, "Ambiguous")]
    assert segments(labels, fall) == expected
    assert {(2, 4, "wave"), (4, 5, "Ambiguous")} <= {*segments(labels, wave)}
