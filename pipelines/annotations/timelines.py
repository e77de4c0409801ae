"""Outputs of `lstr detect`: timelines, event lines and scores, and images, pages and videos of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lstr.errors import LabelsError
from lstr.extractors.video.inputs import LANES_SUFFIX
from lstr.files.atomic import replacing
from lstr.files.content import write_json
from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, Detection, File, Format
from lstr.timeline import FORMAT

# Modules of lstr.pipelines.pages are imported in methods, because they load the video stack.


class TimelineJson(Format):
    """The timeline of a video."""

    name, suffix = "json", ".json"

    def recognises(self, file: File) -> bool:
        return file.ending == ".json" and isinstance(file.json, dict) and file.json.get("format") == FORMAT

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        timeline = file.json
        try:
            segments = tuple(map(Segment.from_dict, timeline["segments"]))
            video = VideoLabels(timeline.get("subset"), timeline["duration"], segments, timeline["source"])
            return AnnotationSet({video_id: video}, tuple(timeline["classes"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise LabelsError(f"The timeline is damaged ({error!r}).", "run `lstr detect` again.") from error

    def write_detection(self, path: Path, detection: Detection) -> None:
        write_json(path, detection.timeline)


class EventLines(Format):
    """The events of a run, one per line, which it writes as soon as they are decided."""

    name, suffix = "jsonl", ".jsonl"

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        """Read events; an action without an end lasts until the last line, and an incomplete last line is ignored."""
        lines = file.text.split("\n")
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
                    f"Line {number} is not an event of `lstr detect` ({error!r}).", "use an ID.jsonl of a run."
                ) from error
        for label, entry in active.items():
            segments.append(Segment(entry["start"], max(time, entry["start"]), label, entry.get("score")))
        return AnnotationSet({video_id: VideoLabels(segments=tuple(segments))})


class Scores(Format):
    """All scores of a detection: float32 (chunks, classes)."""

    name, suffix = "npy", ".scores.npy"

    def write_detection(self, path: Path, detection: Detection) -> None:
        assert detection.scores is not None
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, np.asarray(detection.scores, np.float32))


class Png(Format):
    """A PNG image of the lanes."""

    name, suffix = "png", ".png"

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.pages.figure import write_figure

        write_figure(path, detection.timeline, detection.scores, detection.truth)


class Svg(Png):
    """An SVG image of the lanes."""

    name, suffix = "svg", ".svg"


class Page(Format):
    """An HTML page with the video and its lanes."""

    name, suffix = "html", ".html"

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.pages.page import write_report

        assert detection.scores is not None
        write_report(
            path,
            {"id": detection.id, **detection.timeline},
            detection.scores,
            video=detection.video,
            truth=detection.truth,
            events=list(detection.events),
            recipe=detection.recipe,
            origins=detection.origins,
            index=detection.index,
            embed=detection.embed,
            people=detection.people,
        )


class Mp4(Format):
    """A video with its lanes drawn below it; its suffix keeps it from replacing the original video."""

    name, suffix, needs_video = "mp4", LANES_SUFFIX, True

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.pages.overlay import write_overlay

        assert detection.video is not None
        classes = detection.timeline["classes"]
        write_overlay(path, detection.video, classes, detection.events, detection.scores, detection.people)
