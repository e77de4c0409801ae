"""Label Studio's tasks with timeline labels."""

import re
from collections import Counter
from pathlib import PurePath
from typing import Any

from lstr.errors import LabelsError
from lstr.labels.label_set import Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.times import Clock

# The name of the data of a task in which Label Studio's template has the video
VIDEO = "video"
# The name of an uploaded file, and what Label Studio puts before it.
UPLOADED = re.compile(r"[0-9a-f]{8}-(.+)")


class LabelStudio(Format):
    """Tasks of Label Studio with timeline labels."""

    name, suffix = "labelstudio", ".labelstudio.json"
    counts_frames = True

    def recognises(self, file: File) -> bool:
        if file.ending != ".json":
            return False
        task = file.json
        return isinstance(task, list) or (isinstance(task, dict) and isinstance(task.get("data"), dict))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return from_labelstudio(file.json, Clock(options.frames, options.rate_of))


def from_labelstudio(tasks: Any, clock: Clock) -> AnnotationSet:
    """An export or import of Label Studio; what people annotated goes before predictions. Raises LabelsError.

    Where the tasks' data do not have it, `clock` has the rate of the videos. Tasks that were skipped are left out; of
    several annotations the last counts.
    """
    tasks = tasks if isinstance(tasks, list) else [tasks]
    videos: dict[str, AnnotatedVideo] = {}
    notes = []
    try:
        uploads = Counter(_id_of(task, True) for task in tasks)
        for task in tasks:
            data, media = task["data"], _media_of(task)
            video_id = _id_of(task, uploads[_id_of(task, True)] == 1)
            rate = data.get("fps")
            made = task.get("annotations") or []
            finished = [one for one in made if not one.get("was_cancelled")]
            if made and not finished:
                notes.append(Note("skipped", f"{video_id!r} was skipped in Label Studio and is left out"))
                continue
            if len(finished) > 1:
                sentence = f"{video_id!r} has {len(finished)} annotations, of which the last counts"
                notes.append(Note("several annotations", sentence))
            # an exported task lists the annotators' results, the newest last
            results = finished or task.get("predictions") or [{"result": []}]
            segments = []
            for region in results[-1]["result"]:
                if region.get("type") != "timelinelabels":
                    continue
                rate = rate or clock.rate(f"The task of {video_id!r} counts frames", video_id)
                for frames in region["value"]["ranges"]:
                    for label in region["value"]["timelinelabels"]:
                        times = (frames["start"] - 1) / rate, frames["end"] / rate
                        segments.append(Segment(*times, label, region.get("score")))
            videos[video_id] = AnnotatedVideo(tuple(segments), data.get("subset"), data.get("duration"), media)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise LabelsError(f"These are no tasks of Label Studio ({error!r}).", "export the project as JSON.") from error
    return AnnotationSet(videos, (), tuple(notes))


def _media_of(task: Any) -> Any:
    """Path or address of a task's video."""
    data = task["data"]
    return data.get(VIDEO) or next((str(value) for value in data.values()), "video")


def _id_of(task: Any, is_one: bool) -> Any:
    """The id of a task's video; of one that was uploaded without what Label Studio puts before its name.

    is_one: whether no other upload has that name.
    """
    if known := task["data"].get("id"):
        return known
    name = PurePath(str(_media_of(task))).stem
    uploaded = UPLOADED.fullmatch(name) if is_one and "upload" in PurePath(str(_media_of(task))).parts else None
    return uploaded[1] if uploaded else name
