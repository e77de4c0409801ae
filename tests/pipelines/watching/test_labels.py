"""Judged events as labels of their clips."""

import json
from dataclasses import replace
from datetime import timedelta

from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.watching.history import EventFilter
from lstr.pipelines.watching.labels import export_labels
from tests.support.watching import START, event_of

SECONDS = 10.0


def add(history, clips, start, end, verdict, action="fall", source="hall", clip=True) -> str:
    """Store an event between two seconds after START, with a clip that begins two seconds before it; return its id."""
    event = event_of(source, action, START + timedelta(seconds=start))
    history.begin(event, [], event.start)
    history.update(replace(event, end=START + timedelta(seconds=end)), event.start)
    history.judge(event.id, verdict)
    if clip:
        clips.mkdir(exist_ok=True)
        (clips / f"{event.id}.mp4").touch()
        values = {"start": (event.start - timedelta(seconds=2)).isoformat(), "seconds": SECONDS}
        (clips / f"{event.id}.json").write_text(json.dumps(values))
    return event.id


def segments(labels, event_id) -> list[tuple]:
    return sorted((s.start, s.end, s.label) for s in labels.videos[event_id].segments)


def test_right_events_are_actions_and_wrong_ones_background(history, tmp_path):
    clips = tmp_path / "clips"
    right = add(history, clips, 0, 4.25, "right")
    wrong = add(history, clips, 100, 103, "wrong")
    long = add(history, clips, 200, 300, "right", "wave")
    add(history, clips, 400, 401, "")
    add(history, clips, 500, 501, "right", clip=False)
    assert export_labels(history, clips, tmp_path / "labels.json") == (2, 1, 1)
    labels = read_label_file(tmp_path / "labels.json")
    assert labels.classes == ("Background", "fall", "wave") and {*labels.videos} == {right, wrong, long}
    assert segments(labels, right) == [(2, 6.25, "fall")] and segments(labels, wrong) == []
    assert segments(labels, long) == [(2, 10, "wave")], "it lasts longer than its clip"
    assert {video.duration for video in labels.videos.values()} == {SECONDS} and not labels.has_subsets
    assert export_labels(history, clips, tmp_path / "waves.json", EventFilter(action="wave")) == (1, 0, 0)


def test_events_without_a_verdict_are_ambiguous(history, tmp_path):
    clips = tmp_path / "clips"
    fall = add(history, clips, 0, 2, "right")
    wave = add(history, clips, 4, 6, "right", "wave")
    add(history, clips, -1, 7, "", "wave")
    add(history, clips, 0, 3, "wrong", "jump", clip=False)
    add(history, clips, 0, 8, "", "wave", "yard")
    export_labels(history, clips, tmp_path / "labels.json")
    labels = read_label_file(tmp_path / "labels.json")
    expected = [(1, 2, "Ambiguous"), (2, 4, "fall"), (4, 6, "Ambiguous"), (6, 8, "wave"), (8, 9, "Ambiguous")]
    assert segments(labels, fall) == expected
    assert {(2, 4, "wave"), (4, 5, "Ambiguous")} <= {*segments(labels, wave)}
