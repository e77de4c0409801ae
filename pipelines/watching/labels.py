"""Verdicts on events as labels of their clips, a set that `lstr learn` takes."""

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from lstr.errors import LabelsError
from lstr.files.content import write_json
from lstr.labels.label_set import AMBIGUOUS, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.watching.clips import ABOUT, CLIP, find_file
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History


def export_labels(history: History, clips: Path, output: Path, **wanted: Any) -> tuple[int, int, int]:
    """Write the events with a verdict as labels of the clips in a folder, for `lstr learn CLIPS OUTPUT`.

    A right event is its action in its clip, a wrong one is background. Other events of the same source without a
    verdict are ambiguous in the clips that show them. `wanted` is as for `History.events`.

    Returns:
        The number of right and of wrong events in the file, and of skipped events, because their clips were deleted.

    Raises:
        LabelsError: No right event has a clip.
        OutputError: The file cannot be written.
    """
    if output.suffix.lower() != ".json":
        raise LabelsError(f"{output} is not a JSON file.", "name a file ending in .json.")
    judged = [event for event in history.events(**wanted) if event.verdict]
    spans: dict[WatchedEvent, tuple[datetime, float]] = {}
    for event in judged:
        path = find_file(clips, event.id, ABOUT)
        if path and find_file(clips, event.id, CLIP):
            with suppress(OSError, KeyError, TypeError, ValueError):  # a damaged file
                about = json.loads(path.read_text(encoding="utf-8"))
                start, seconds = datetime.fromisoformat(about["start"]), float(about["seconds"])
                if start.tzinfo and seconds > 0:
                    spans[event] = start, seconds
    n_right = sum(event.verdict == "right" for event in spans)
    if not n_right:
        hint = "mark right and wrong events on the page."
        raise LabelsError("No event with a clip is marked as right, so there is nothing to learn.", hint)
    videos = {}
    for event, (start, seconds) in sorted(spans.items(), key=lambda item: item[0].id):
        segments: list[Segment] = []  # what the clip shows, by the events of its source
        unknown: list[tuple[float, float]] = []
        for other in history.events(source=event.source):
            begin = round(max(0.0, (other.start - start).total_seconds()), 3)
            end = seconds if other.end is None else (other.end - start).total_seconds()
            end = round(min(seconds, end), 3)
            if end > begin and other.verdict == "right":
                segments.append(Segment(begin, end, other.action))
            elif end > begin and not other.verdict:
                unknown.append((begin, end))
        right = sorted(segments, key=lambda segment: segment.start)
        for begin, end in unknown:  # ambiguous where no right event is
            for segment in right:
                if begin < segment.start < end:
                    segments.append(Segment(begin, segment.start, AMBIGUOUS))
                if segment.start < end and segment.end > begin:
                    begin = segment.end
            if begin < end:
                segments.append(Segment(begin, end, AMBIGUOUS))
        videos[event.id] = VideoLabels("", seconds, tuple(segments))
    write_json(output, to_activitynet(AnnotationSet(videos), results=False))
    return n_right, len(spans) - n_right, len(judged) - len(spans)
