"""Our own JSON: the timeline of a video, and the event lines of a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lstr.chunk import CHUNK_SECONDS, CLOCK
from lstr.errors import LabelsError
from lstr.files.content import write_json
from lstr.labels.label_set import BACKGROUND
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, Detection, File, Format
from lstr.timeline import FORMAT


class TimelineJson(Format):
    """Our timeline."""

    name, suffix = "json", ".json"
    detects = True

    def recognises(self, file: File) -> bool:
        return file.ending == ".json" and isinstance(file.json, dict) and file.json.get("format") == FORMAT

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        video, classes = from_timeline(file.json)
        return AnnotationSet({video_id: video}, classes)

    def write_detection(self, path: Path, detection: Detection) -> None:
        write_json(path, detection.timeline)


class EventLines(Format):
    """The lines of a run."""

    name, suffix = "jsonl", ".jsonl"
    detects = True

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return AnnotationSet({video_id: from_jsonl(file.text)})

    def is_due(self, detection: Detection) -> bool:
        """Never: its lines are written as they are decided."""
        return False


def to_text(value: Any) -> str:
    """JSON as all our files have it."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def to_timeline(video_id: str, video: AnnotatedVideo, classes: Sequence[str]) -> dict[str, Any]:
    """A timeline file of segments that no run of ours decided."""
    return {
        "format": FORMAT,
        "source": video.media or video_id,
        **video.known("subset"),
        "duration": video.duration,
        "checkpoint": None,
        "recipe": None,
        "classes": [BACKGROUND, *classes],
        "seconds_per_chunk": CHUNK_SECONDS,
        "chunks": CLOCK.end(video.end),
        "segments": [segment.to_dict() for segment in video.segments],
        "gaps": [],
    }


def from_timeline(timeline: Mapping[str, Any]) -> tuple[AnnotatedVideo, tuple[str, ...]]:
    """A timeline file's segments, and its classes. Raises LabelsError."""
    try:
        segments = tuple(map(Segment.from_dict, timeline["segments"]))
        video = AnnotatedVideo(segments, timeline.get("subset"), timeline["duration"], timeline["source"])
        return video, tuple(timeline["classes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise LabelsError(f"The timeline is damaged ({error!r}).", "run `lstr detect` again.") from error


def to_events(video: AnnotatedVideo) -> list[dict[str, Any]]:
    """The `started` and `ended` events of a live run, in order of time."""
    events: list[tuple[tuple[float, int, int], dict[str, Any]]] = []
    for i, a in enumerate(video.segments):
        score = {} if a.score is None else {"score": a.score}
        started = {"event": "started", "label": a.label, "time": a.start, "start": a.start, **score}
        ended = {**started, "event": "ended", "time": a.end, "end": a.end}
        # what ends at a moment does so before what starts then, but for what lasts no time
        events += [((a.start, 1, i), started), ((a.end, 0 if a.end > a.start else 2, i), ended)]
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


def from_jsonl(text: str) -> AnnotatedVideo:
    """The actions that the lines of a run report; one that no line ends lasts until the last. Raises LabelsError.

    A last line that was cut short, by a kill, is left out.
    """
    lines = text.split("\n")
    segments: list[Segment] = []
    under_way: dict[str, dict[str, Any]] = {}
    time = 0.0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            time = max(time, float(entry["time"]))
            if entry.get("event") == "ended":
                segments.append(Segment.from_dict(entry))
                under_way.pop(entry["label"], None)
            elif entry.get("event") == "started":
                under_way[entry["label"]] = entry
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines):
                break
            raise LabelsError(
                f"Line {number} is no line of `lstr detect` ({error!r}).", "give an ID.jsonl it wrote."
            ) from error
    for label, entry in under_way.items():
        segments.append(Segment(entry["start"], max(time, entry["start"]), label, entry.get("score")))
    return AnnotatedVideo(tuple(segments))
