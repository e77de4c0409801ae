"""What `lstr detect` writes: timelines, event lines and scores, and the images, page and video that show them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lstr.chunk import CHUNK_SECONDS, CLOCK
from lstr.errors import LabelsError, MissingPathError
from lstr.extractors.video.inputs import LANES_SUFFIX
from lstr.files.atomic import replacing
from lstr.files.content import write_json
from lstr.labels.label_set import BACKGROUND
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, Detection, File, Format
from lstr.timeline import FORMAT

# Modules of lstr.pipelines.pages are imported by the formats that draw with them, because they load a video stack.


class TimelineJson(Format):
    """The timeline of a video."""

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
    """The lines of a run, which it writes as they are decided."""

    name, suffix = "jsonl", ".jsonl"

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return AnnotationSet({video_id: from_jsonl(file.text)})


class Scores(Format):
    """Every score of a detection: float32 (chunks, classes)."""

    name, suffix = "npy", ".scores.npy"
    reads, detects = False, True

    def write_detection(self, path: Path, detection: Detection) -> None:
        assert detection.scores is not None
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, np.asarray(detection.scores, np.float32))


class Picture(Format):
    """One file per video that people look at; annotations are drawn as a detection without scores."""

    reads, writes, detects = False, True, True

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        files = []
        for path, alone in self.each_file(annotated, output):
            video_id, video = alone.first
            media = Path(video.media) if video.media and Path(video.media).is_file() else None
            timeline = to_timeline(video_id, video, alone.classes)
            self.write_detection(path, Detection(video_id, timeline, None, (), media))
            files.append(path)
        return files


class Png(Picture):
    """An image."""

    name, suffix = "png", ".png"
    paints_text = True

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.pages.figure import write_figure

        write_figure(path, detection.timeline, detection.scores, detection.truth)


class Svg(Png):
    """An image of lines and text."""

    name, suffix = "svg", ".svg"
    paints_text = False


class Page(Picture):
    """A page with the video and its lanes."""

    name, suffix = "html", ".html"

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.pages.timeline_page import write_report

        page, scores, truth = {"id": detection.id, **detection.timeline}, detection.scores, detection.truth
        if scores is None:
            scores = np.full((page["chunks"], len(page["classes"])), np.nan)
            # segments that a person labelled have no score, so they are the page's truth
            truth = [Segment.from_dict(s) for s in page["segments"] if "score" not in s] or None
            page["segments"] = [s for s in page["segments"] if "score" in s]
        write_report(
            path,
            page,
            scores,
            video=detection.video,
            truth=truth,
            events=list(detection.events),
            recipe=detection.recipe,
            origins=detection.origins,
            index=detection.index,
            embed=detection.embed,
        )


class Mp4(Picture):
    """The video above its lanes, under a name that is never the video's own."""

    name, suffix = "mp4", LANES_SUFFIX
    paints_text = True

    def is_due(self, detection: Detection) -> bool:
        return detection.video is not None

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.pages.overlay import write_overlay

        timeline = detection.timeline
        if detection.video is None:
            named = timeline["source"] if timeline["source"] != detection.id else "its file is unknown"
            raise MissingPathError(
                f"The video of {detection.id!r} ({named}) is not there.", "name its file or folder with --video."
            )
        events = detection.events
        if detection.scores is None:
            events = to_events(detection.annotated.first[1])
        write_overlay(path, detection.video, timeline["classes"], events, detection.scores)


def to_timeline(video_id: str, video: AnnotatedVideo, classes: Sequence[str]) -> dict[str, Any]:
    """Return the timeline of segments that no run decided."""
    return {
        "format": FORMAT,
        "source": video.media or video_id,
        **({} if video.subset is None else {"subset": video.subset}),
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
    """Return the segments and the classes of a timeline. Raises LabelsError."""
    try:
        segments = tuple(map(Segment.from_dict, timeline["segments"]))
        video = AnnotatedVideo(segments, timeline.get("subset"), timeline["duration"], timeline["source"])
        return video, tuple(timeline["classes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise LabelsError(f"The timeline is damaged ({error!r}).", "run `lstr detect` again.") from error


def to_events(video: AnnotatedVideo) -> list[dict[str, Any]]:
    """Return the `started` and `ended` events of a live run, in order of time."""
    events: list[tuple[tuple[float, int, int], dict[str, Any]]] = []
    for i, s in enumerate(video.segments):
        score = {} if s.score is None else {"score": s.score}
        started = {"event": "started", "label": s.label, "time": s.start, "start": s.start, **score}
        ended = {**started, "event": "ended", "time": s.end, "end": s.end}
        # at one moment actions end before others start, except an action that lasts no time
        events += [((s.start, 1, i), started), ((s.end, 0 if s.end > s.start else 2, i), ended)]
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


def from_jsonl(text: str) -> AnnotatedVideo:
    """Return the actions that the lines of a run report; one without an end lasts until the last line.

    A last line that a kill cut short is ignored. Raises LabelsError.
    """
    lines = text.split("\n")
    segments: list[Segment] = []
    active: dict[str, dict[str, Any]] = {}
    time = 0.0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            time = max(time, float(entry["time"]))
            if entry.get("event") == "ended":
                segments.append(Segment.from_dict(entry))
                active.pop(entry["label"], None)
            elif entry.get("event") == "started":
                active[entry["label"]] = entry
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines):
                break
            raise LabelsError(
                f"Line {number} is not a line of `lstr detect` ({error!r}).", "give an ID.jsonl it wrote."
            ) from error
    for label, entry in active.items():
        segments.append(Segment(entry["start"], max(time, entry["start"]), label, entry.get("score")))
    return AnnotatedVideo(tuple(segments))
