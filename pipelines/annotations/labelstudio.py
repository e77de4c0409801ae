"""Label Studio's tasks with timeline labels, and the labelling configuration that takes them."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any
from xml.sax.saxutils import quoteattr

from lstr.labels.label_set import Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from lstr.pipelines.annotations.footage import footage_at
from lstr.pipelines.annotations.format import DEFAULTS, EVERYTHING, ConvertOptions, Detection, File, TextFormat
from lstr.pipelines.annotations.timeline_json import to_text
from lstr.pipelines.annotations.times import RateOf, unknown
from lstr.pipelines.files.atomic import write_text

CONTROL, OBJECT = "videoLabels", "video"  # names in Label Studio's labelling configuration
UPLOADED = re.compile(r"[0-9a-f]{8}-(.+)")
"""The name of an uploaded file, and what Label Studio puts before it."""
DEFAULT_FPS = 25.0
"""Label Studio's own, where neither the video nor the user states the frame rate."""


class LabelStudio(TextFormat):
    """Tasks to import into Label Studio, or exported from it."""

    name, suffix = "labelstudio", ".labelstudio.json"
    holds = EVERYTHING - {"classes without segments", "subjects"}
    holds_many = True

    def recognises(self, file: File) -> bool:
        if file.ending != ".json":
            return False
        task = file.json
        return isinstance(task, list) or (isinstance(task, dict) and isinstance(task.get("data"), dict))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return from_labelstudio(file.json, options.fps, options.rate_of)

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        return to_text(to_labelstudio(annotated, options.fps))

    def write_detection(self, path: Path, detection: Detection) -> None:
        """The task, and beside it the configuration of a project that takes it."""
        video_id, video = detection.annotated.first
        footage = footage_at(detection.video) if detection.video else None
        fps = footage.rate if footage else None
        timed = replace(detection.annotated, videos={video_id: replace(video, fps=fps)})
        write_text(path, self.text(timed, DEFAULTS))
        write_text(path.with_suffix(".xml"), to_labelstudio_config(timed.classes, fps or DEFAULT_FPS))


def to_labelstudio(annotated: AnnotationSet, fps: float | None = None) -> list[dict[str, Any]]:
    """Tasks to import: predictions where there are scores, annotations where a person labelled.

    Its times are frames from 1, the last one included; `fps` is that of videos that do not state theirs. The task's
    data carry it, with the id, for the way back.
    """
    tasks: list[dict[str, Any]] = []
    for video_id, video in annotated.videos.items():
        rate = video.fps or fps or DEFAULT_FPS
        result = []
        for i, a in enumerate(video.segments, 1):
            first = round(a.start * rate) + 1
            frames = {"start": first, "end": max(first, round(a.end * rate))}
            region = {
                "id": f"segment_{i}",
                "from_name": CONTROL,
                "to_name": OBJECT,
                "type": "timelinelabels",
                "value": {"ranges": [frames], "timelinelabels": [a.label]},
            }
            result.append(region if a.score is None else {**region, "score": a.score})
        scores = [a.score for a in video.segments if a.score is not None]
        data = {OBJECT: video.media or video_id, "id": video_id, "fps": rate}
        data |= video.known("subset", "duration")
        if scores:
            whole = {"model_version": "lstr", "score": sum(scores) / len(scores), "result": result}
            tasks.append({"data": data, "predictions": [whole]})
        else:
            tasks.append({"data": data, "annotations": [{"result": result}]})
    return tasks


def from_labelstudio(tasks: Any, fps: float | None = None, rate_of: RateOf = unknown) -> AnnotationSet:
    """An export or import of Label Studio; what people annotated goes before predictions. Raises AnnotationError.

    Where the tasks' data do not have it, `fps` is the rate of the videos, or `rate_of` says it by id. Tasks that were
    skipped are left out; of several annotations the last counts.
    """
    tasks = tasks if isinstance(tasks, list) else [tasks]
    videos: dict[str, AnnotatedVideo] = {}
    notes = []
    try:
        uploads = Counter(_id_of(task, True) for task in tasks)
        for task in tasks:
            data, media = task["data"], _media_of(task)
            video_id = _id_of(task, uploads[_id_of(task, True)] == 1)
            rate = data.get("fps") or fps or rate_of(video_id)
            made = task.get("annotations") or []
            finished = [one for one in made if not one.get("was_cancelled")]
            if made and not finished:
                notes.append(Note("skipped", f"{video_id!r} was skipped in Label Studio and is left out"))
                continue
            if len(finished) > 1:
                notes.append(Note("several annotations", _last_counts(video_id, finished)))
            # an exported task lists the annotators' results, the newest last
            results = finished or task.get("predictions") or [{"result": []}]
            segments = []
            for region in results[-1]["result"]:
                if region.get("type") != "timelinelabels":
                    continue
                if not rate:
                    raise AnnotationError(
                        f"The task of {video_id!r} counts frames and does not state how many a second.",
                        "add their number, such as --set fps=25.",
                    )
                for frames in region["value"]["ranges"]:
                    for label in region["value"]["timelinelabels"]:
                        times = (frames["start"] - 1) / rate, frames["end"] / rate
                        segments.append(Segment(*times, label, region.get("score")))
            known = {"subset": data.get("subset"), "duration": data.get("duration"), "media": media, "fps": rate}
            videos[video_id] = AnnotatedVideo(tuple(segments), **known)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise AnnotationError(
            f"These are no tasks of Label Studio ({error!r}).", "export the project as JSON."
        ) from error
    return AnnotationSet(videos, (), tuple(notes))


def _media_of(task: Any) -> Any:
    """Path or address of a task's video."""
    data = task["data"]
    return data.get(OBJECT) or next((str(value) for value in data.values()), "video")


def _id_of(task: Any, is_one: bool) -> Any:
    """The id of a task's video; of one that was uploaded without what Label Studio puts before its name.

    is_one: whether no other upload has that name.
    """
    if known := task["data"].get("id"):
        return known
    name = PurePath(str(_media_of(task))).stem
    uploaded = UPLOADED.fullmatch(name) if is_one and "upload" in PurePath(str(_media_of(task))).parts else None
    return uploaded[1] if uploaded else name


def _last_counts(video_id: str, annotations: Sequence[Any]) -> str:
    """What is said of several annotations of one video."""
    people = [one.get("completed_by") for one in annotations]
    by = f", by the annotator {people[-1]}" if len(set(map(str, people))) > 1 and people[-1] is not None else ""
    return f"{video_id!r} has {len(annotations)} annotations, of which the last counts{by}"


def to_labelstudio_config(classes: Sequence[str], fps: float) -> str:
    """The labelling configuration of a Label Studio project that takes such tasks."""
    rate = f"{fps:.3f}".rstrip("0").rstrip(".") if math.isfinite(fps) else str(DEFAULT_FPS)
    labels = "".join(f"    <Label value={quoteattr(name)}/>\n" for name in classes)
    return (
        f'<View>\n  <TimelineLabels name="{CONTROL}" toName="{OBJECT}">\n{labels}  </TimelineLabels>\n'
        f'  <Video name="{OBJECT}" value="${OBJECT}" frameRate="{rate}"/>\n</View>\n'
    )
