"""JSON forms of annotations: our timeline and its event lines, ActivityNet, and Label Studio."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from xml.sax.saxutils import quoteattr

from extractors.video.frames import CHUNK_SECONDS
from lstr.labels import BACKGROUND, end_chunk
from lstr.timeline import FORMAT
from pipelines.annotations.annotation import AnnotatedVideo, Annotation, AnnotationError, AnnotationSet, from_segments

CONTROL, OBJECT = "videoLabels", "video"  # names in Label Studio's labelling configuration
DEFAULT_FPS = 25.0
"""Label Studio's own, where neither the video nor the user says the frame rate."""


def to_text(value: Any) -> str:
    """JSON as all our files have it."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def to_timeline(video_id: str, video: AnnotatedVideo, classes: Sequence[str]) -> dict:
    """A timeline of segments that no run of ours decided."""
    segments = [
        {"label": a.label, "start": a.start, "end": a.end, **({} if a.score is None else {"score": a.score})}
        for a in video.annotations
    ]
    return {
        "format": FORMAT,
        "source": video.media or video_id,
        **({} if video.subset is None else {"subset": video.subset}),
        "duration": video.duration,
        "checkpoint": None,
        "recipe": None,
        "classes": [BACKGROUND, *classes],
        "seconds_per_chunk": CHUNK_SECONDS,
        "chunks": end_chunk(video.end),
        "segments": segments,
        "gaps": [],
    }


def from_timeline(timeline: Mapping) -> tuple[AnnotatedVideo, tuple[str, ...]]:
    """A timeline's segments, and its classes. Raises AnnotationError."""
    try:
        known = {"duration": timeline["duration"], "media": timeline["source"], "subset": timeline.get("subset")}
        return from_segments(timeline["segments"], **known), tuple(timeline["classes"])
    except (KeyError, TypeError, AttributeError) as error:
        raise AnnotationError(f"The timeline is damaged ({error!r}).", "run `lstr detect` again.") from error


def to_jsonl(video: AnnotatedVideo) -> str:
    """The `started` and `ended` lines of a live run, in order of time."""
    lines = []
    for i, a in enumerate(video.annotations):
        score = {} if a.score is None else {"score": a.score}
        begun = {"event": "started", "label": a.label, "time": a.start, "start": a.start, **score}
        lines += [(a.start, 1, i, begun), (a.end, 0 if a.end > a.start else 2, i, {**begun, "event": "ended"})]
        lines[-1][3].update(time=a.end, end=a.end)
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for *_, line in sorted(lines, key=lambda x: x[:3]))


def from_jsonl(text: str) -> AnnotatedVideo:
    """What the lines of a run say; an action that no line ends lasts until the last one. Raises AnnotationError.

    A last line that was cut short, by a kill, is left out.
    """
    lines = text.split("\n")
    annotations, open_, time = [], {}, 0.0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            time = max(time, float(entry["time"]))
            if entry.get("event") == "ended":
                annotations.append(Annotation(entry["start"], entry["end"], entry["label"], entry.get("score")))
                open_.pop(entry["label"], None)
            elif entry.get("event") == "started":
                open_[entry["label"]] = entry
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines):
                break
            raise AnnotationError(
                f"Line {number} is no line of `lstr detect` ({error!r}).", "give an ID.jsonl it wrote."
            ) from error
    for label, entry in open_.items():
        annotations.append(Annotation(entry["start"], max(time, entry["start"]), label, entry.get("score")))
    return AnnotatedVideo(tuple(annotations))


def to_activitynet(annotated: AnnotationSet, results: bool | None = None) -> dict:
    """Ground truth ("database"), as `--labels` takes it, or the form of results that ActivityNet evaluates.

    Where `results` is None, it is results if there are scores.
    """
    if results if results is not None else "scores" in annotated.held():
        found = {
            video_id: [
                {"label": a.label, "score": 1.0 if a.score is None else a.score, "segment": [a.start, a.end]}
                for a in video.annotations
            ]
            for video_id, video in annotated.videos.items()
        }
        return {"version": "VERSION 1.3", "results": found, "external_data": {}}
    database = {
        video_id: {
            **({} if video.subset is None else {"subset": video.subset}),
            **({} if video.duration is None else {"duration": video.duration}),
            "annotations": [{"label": a.label, "segment": [a.start, a.end]} for a in video.annotations],
        }
        for video_id, video in annotated.videos.items()
    }
    return {"version": "lstr labels 1", "classes": [BACKGROUND, *annotated.classes], "database": database}


def from_activitynet(content: Mapping) -> AnnotationSet:
    """Ground truth or results. Raises AnnotationError."""
    try:
        if "results" in content:
            entries = {video_id: {"annotations": found} for video_id, found in content["results"].items()}
        else:
            entries = content["database"]
        videos = {
            video_id: AnnotatedVideo(
                tuple(
                    Annotation(*map(float, a["segment"]), a["label"], a.get("score"))
                    for a in entry.get("annotations", [])
                ),
                entry.get("subset"),
                None if entry.get("duration") is None else float(entry["duration"]),
            )
            for video_id, entry in entries.items()
        }
        return AnnotationSet(videos, tuple(content.get("classes") or ()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnnotationError(
            f"This is not of ActivityNet's form ({error!r}).", 'give {"database": …} or {"results": …}.'
        ) from error


def to_labelstudio(annotated: AnnotationSet, fps: float | None = None) -> list[dict]:
    """Tasks to import: predictions where there are scores, annotations where a person labelled.

    Its times are frames from 1, the last one included; `fps` is that of videos that do not say theirs. The task's
    data carry it, with the id, for the way back.
    """
    tasks = []
    for video_id, video in annotated.videos.items():
        rate = video.fps or fps or DEFAULT_FPS
        result = []
        for i, a in enumerate(video.annotations, 1):
            first = round(a.start * rate) + 1
            frames = {"start": first, "end": max(first, round(a.end * rate))}
            region = {"id": f"segment_{i}", "from_name": CONTROL, "to_name": OBJECT, "type": "timelinelabels"}
            region["value"] = {"ranges": [frames], "timelinelabels": [a.label]}
            result.append(region if a.score is None else {**region, "score": a.score})
        scores = [a.score for a in video.annotations if a.score is not None]
        data = {OBJECT: video.media or video_id, "id": video_id, "fps": rate}
        data |= {name: getattr(video, name) for name in ("subset", "duration") if getattr(video, name) is not None}
        if scores:
            whole = {"model_version": "lstr", "score": sum(scores) / len(scores), "result": result}
            tasks.append({"data": data, "predictions": [whole]})
        else:
            tasks.append({"data": data, "annotations": [{"result": result}]})
    return tasks


def from_labelstudio(tasks: Any, fps: float | None = None) -> AnnotationSet:
    """An export or import of Label Studio; what people annotated goes before predictions. Raises AnnotationError.

    `fps` is needed where the tasks' data do not say it.
    """
    tasks = tasks if isinstance(tasks, list) else [tasks]
    videos: dict[str, AnnotatedVideo] = {}
    try:
        for task in tasks:
            data = task["data"]
            media = data.get(OBJECT) or next((str(value) for value in data.values()), "video")
            video_id = data.get("id") or PurePath(str(media)).stem
            rate = data.get("fps") or fps
            # an exported task lists the annotators' results, the newest last
            results = task.get("annotations") or task.get("predictions") or [{"result": []}]
            annotations = []
            for region in results[-1]["result"]:
                if region.get("type") != "timelinelabels":
                    continue
                if not rate:
                    raise AnnotationError(
                        f"The task of {video_id!r} counts frames and does not say how many a second.",
                        "add --fps, such as --fps 25.",
                    )
                for frames in region["value"]["ranges"]:
                    for label in region["value"]["timelinelabels"]:
                        times = (frames["start"] - 1) / rate, frames["end"] / rate
                        annotations.append(Annotation(*times, label, region.get("score")))
            known = {"subset": data.get("subset"), "duration": data.get("duration"), "media": media, "fps": rate}
            videos[video_id] = AnnotatedVideo(tuple(annotations), **known)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise AnnotationError(
            f"These are no tasks of Label Studio ({error!r}).", "export the project as JSON."
        ) from error
    return AnnotationSet(videos)


def to_labelstudio_config(classes: Sequence[str], fps: float) -> str:
    """The labelling configuration of a Label Studio project that takes such tasks."""
    rate = f"{fps:.3f}".rstrip("0").rstrip(".") if math.isfinite(fps) else str(DEFAULT_FPS)
    labels = "".join(f"    <Label value={quoteattr(name)}/>\n" for name in classes)
    return (
        f'<View>\n  <TimelineLabels name="{CONTROL}" toName="{OBJECT}">\n{labels}  </TimelineLabels>\n'
        f'  <Video name="{OBJECT}" value="${OBJECT}" frameRate="{rate}"/>\n</View>\n'
    )
