"""Judged events as labels: in the seconds of their clips, as the readers and `lstr learn` take them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import EventFilter
from lstr.pipelines.watching.labels import export_labels

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECONDS = 10.0


def add(history, clips, start, end, verdict, action="fall", source="hall", clip=True) -> str:
    """An event of those seconds after noon, whose clip begins two seconds before it; its id."""
    begin, over = (NOON + timedelta(seconds=second) for second in (start, end))
    event = WatchedEvent(new_id(begin), source, action, begin, begin, 0.7, 0.9, begin)
    history.begin(event, [], begin)
    history.update(replace(event, end=over), over)
    history.judge(event.id, verdict)
    if clip:
        path = clips / f"{event.id}.mp4"
        clips.mkdir(exist_ok=True)
        path.write_bytes(b"")
        about = {"start": (begin - timedelta(seconds=2)).isoformat(), "seconds": SECONDS}
        path.with_suffix(".json").write_text(json.dumps(about))
    return event.id


def segments(labels, event_id) -> list[tuple]:
    return [(s.label, s.start, s.end) for s in labels.videos[event_id].segments]


def test_right_is_the_action_and_wrong_is_nothing(history, tmp_path):
    clips = tmp_path / "clips"
    right = add(history, clips, 0, 4.25, "right")
    wrong = add(history, clips, 100, 103, "wrong")
    long = add(history, clips, 200, 300, "right", "wave")
    add(history, clips, 400, 401, "")
    add(history, clips, 500, 501, "right", clip=False)
    assert export_labels(history, clips, tmp_path / "labels.json") == (2, 1, 1)
    labels = read_label_file(tmp_path / "labels.json")
    assert labels.classes == ("Background", "fall", "wave") and {*labels.videos} == {right, wrong, long}
    assert segments(labels, right) == [("fall", 2, 6.25)] and segments(labels, wrong) == []
    assert segments(labels, long) == [("wave", 2, 10)], "it lasts longer than its clip"
    assert {video.duration for video in labels.videos.values()} == {SECONDS} and not labels.has_subsets
    some = EventFilter(action="wave")
    assert export_labels(history, clips, tmp_path / "some.json", some) == (1, 0, 0)


def test_what_nobody_has_judged_is_ambiguous(history, tmp_path):
    clips = tmp_path / "clips"
    event = add(history, clips, 0, 2, "right")
    other = add(history, clips, 4, 6, "right", "wave")
    add(history, clips, -1, 7, "", "wave")
    add(history, clips, 0, 3, "wrong", "jump", clip=False)
    add(history, clips, 0, 8, "", "wave", "yard")
    export_labels(history, clips, tmp_path / "labels.json")
    labels = read_label_file(tmp_path / "labels.json")
    mine = [("Ambiguous", 1, 2), ("fall", 2, 4), ("Ambiguous", 4, 6), ("wave", 6, 8), ("Ambiguous", 8, 9)]
    assert sorted(segments(labels, event), key=lambda segment: segment[1]) == mine
    assert ("wave", 2, 4) in segments(labels, other) and ("Ambiguous", 4, 5) in segments(labels, other)
