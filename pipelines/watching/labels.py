"""Verdicts on events as labels of their clips, a set that `lstr learn` takes."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from lstr.errors import LabelsError
from lstr.files.content import write_json
from lstr.labels.label_set import AMBIGUOUS, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.watching.clips import ABOUT, CLIP, find_file
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import EventFilter, History

ALL = EventFilter()


def export_labels(history: History, clips: Path, output: Path, wanted: EventFilter = ALL) -> tuple[int, int, int]:
    """Write the events with a verdict as labels of the clips in a folder, for `lstr learn CLIPS OUTPUT`.

    A right event is its action in its clip, a wrong one is background. Other events of the same source without a
    verdict are ambiguous in the clips that show them.

    Returns:
        The number of right and of wrong events in the file, and of skipped events, because their clips were deleted.

    Raises:
        LabelsError: No right event has a clip.
        OutputError: The file cannot be written.
    """
    judged = [event for event in history.events(wanted) if event.verdict]
    spans: dict[WatchedEvent, tuple[datetime, float]] = {}
    for event in judged:
        path = find_file(clips, event.id, ABOUT)
        if path and find_file(clips, event.id, CLIP):
            with suppress(OSError, KeyError, TypeError, ValueError):  # a damaged file
                about = json.loads(path.read_text(encoding="utf-8"))
                start, seconds = datetime.fromisoformat(about["start"]), float(about["seconds"])
                if start.tzinfo and seconds > 0:
                    spans[event] = start, seconds
    right = sum(event.verdict == "right" for event in spans)
    if not right:
        raise LabelsError(
            "No event with a clip is marked as right, so there is nothing to learn.",
            "mark right and wrong events on the page.",
        )
    videos = {}
    for event, (start, seconds) in sorted(spans.items(), key=lambda item: item[0].id):
        events = history.events(EventFilter(source=event.source))
        videos[event.id] = VideoLabels("", seconds, tuple(_segments(start, seconds, events)))
    write_json(output, to_activitynet(AnnotationSet(videos), results=False))
    return right, len(spans) - right, len(judged) - len(spans)


def _segments(start: datetime, seconds: float, events: list[WatchedEvent]) -> Iterator[Segment]:
    """Yield what a clip shows, by the events of its source."""
    right: list[Segment] = []
    unknown: list[tuple[float, float]] = []
    for event in events:
        begin = round(max(0.0, (event.start - start).total_seconds()), 3)
        end = seconds if event.end is None else (event.end - start).total_seconds()
        end = round(min(seconds, end), 3)
        if end > begin and event.verdict == "right":
            right.append(Segment(begin, end, event.action))
        elif end > begin and not event.verdict:
            unknown.append((begin, end))
    yield from right
    right.sort(key=lambda segment: segment.start)
    for begin, end in unknown:  # ambiguous where no right event is
        for segment in right:
            if begin < segment.start < end:
                yield Segment(begin, segment.start, AMBIGUOUS)
            if segment.start < end and segment.end > begin:
                begin = segment.end
        if begin < end:
            yield Segment(begin, end, AMBIGUOUS)
