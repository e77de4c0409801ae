"""What a detection leaves behind: lines as they are made, and at the end a file a format, each whole or not there."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import av
import numpy as np

from extractors.errors import VideoError
from extractors.video.containers import open_container
from pipelines.annotations import tables
from pipelines.annotations import timeline_json as documents
from pipelines.annotations.annotation import AnnotationSet, from_segments
from pipelines.annotations.convert import PICTURES, SUFFIXES, render
from pipelines.files.atomic import replacing, unwritable, write_text
from pipelines.files.json_files import write_json
from pipelines.reports.figure import write_figure
from pipelines.reports.overlay import Lanes, write_overlay
from pipelines.reports.timeline_page import write_report

ENDINGS = SUFFIXES | {"npy": ".scores.npy"} | PICTURES
FORMATS = tuple(ENDINGS)
DEFAULT = ("json", "jsonl", "npy", "html")
"""What is written when nothing is asked for."""


def open_lines(path: Path) -> TextIO:
    """Open a text file for writing, folders made. Raises OutputError where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise unwritable(path.parent, error) from error


def write_lines(sinks: Sequence[TextIO], values: Sequence[Mapping]) -> None:
    """Put a JSON object a line into every sink, and out of this process at once."""
    for sink in sinks:
        sink.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
        sink.flush()


def write_outputs(
    output: Path,
    video_id: str,
    timeline: Mapping,
    scores: np.ndarray,
    events: Sequence[Mapping],
    formats: Collection[str],
    video: Path | None = None,
    truth: Sequence[Mapping] | None = None,
    page: Mapping | None = None,
) -> list[Path]:
    """Write a finished detection as ID and the format's ending into a folder; returns the files.

    scores (chunks, C); events as in the JSONL, which is not written here. `mp4` needs the `video` and is left out
    without one. `page` is more for `timeline_page.write_report`. Raises OutputError, and VideoError where the video
    cannot be read again, all else being written.
    """
    seconds = timeline["duration"]
    known = {"media": str(video)} if video else {}
    if video and "labelstudio" in formats:  # which counts in frames
        known["fps"] = frame_rate(video)
    annotated = from_segments(timeline["segments"], duration=seconds, **known)
    one = AnnotationSet({video_id: annotated}, tuple(timeline["classes"]))
    files, failed = [], None
    # the slowest first and the timeline last: who interrupts the writing finds no file that looks like a whole run
    for name in (name for name in reversed(FORMATS) if name in formats):
        path = output / f"{video_id}{ENDINGS[name]}"
        if name == "jsonl" or (name == "mp4" and video is None):
            continue
        files.append(path)
        if name == "mp4":
            try:
                write_overlay(path, video, Lanes(tuple(timeline["classes"]), events, scores))
            except VideoError as error:  # the rest of the run is sound
                failed = error
        elif name == "json":
            write_json(path, timeline)
        elif name == "npy":
            write_scores(path, scores)
        elif name == "html":
            write_report(path, timeline, scores, video=video, truth=truth, events=events, **(page or {}))
        elif name in ("png", "svg"):
            write_figure(path, timeline, scores, truth)
        elif name == "activitynet":
            write_text(path, documents.to_text(documents.to_activitynet(one, results=True)))
        elif name == "labelstudio":
            write_text(path, render(name, one))
            config = documents.to_labelstudio_config(one.classes, annotated.fps or documents.DEFAULT_FPS)
            write_text(output / f"{video_id}.labelstudio.xml", config)
        else:
            write_text(path, render(name, one))
            if name == "thumos":
                write_text(path.parent / tables.CLASS_LIST, tables.to_thumos_class_list(one.classes))
    if failed:
        raise failed
    return files


def frame_rate(video: Path) -> float | None:
    """Frames a second that a file says, on average; None where it does not."""
    try:
        with open_container(video) as container:
            stream = container.streams.best("video")
            rate = stream.average_rate or stream.guessed_rate
    except (av.error.FFmpegError, OSError, AttributeError):
        return None
    return float(rate) if rate else None


def write_scores(path: Path, scores: np.ndarray) -> None:
    """Write `<id>.scores.npy`: float32 (chunks, classes), whole or not at all."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, scores.astype(np.float32))
