"""ActivityNet's JSON: labels as `--labels` takes them, or the results of a detector."""

from pathlib import Path
from typing import Any

from lstr.errors import LabelsError
from lstr.files.atomic import write_text
from lstr.labels.label_set import BACKGROUND, read_activitynet
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.format import EVERYTHING, FILES, ConvertOptions, Detection, File, TextFormat
from lstr.pipelines.annotations.timeline_json import to_text


class ActivityNetJson(TextFormat):
    """Labels to train on, or results to evaluate where there are scores."""

    name, suffix = "activitynet", ".activitynet.json"
    holds = EVERYTHING - {"scores"}
    holds_with_scores = FILES | {"scores"}
    holds_many = True

    def recognises(self, file: File) -> bool:
        return file.ending == ".json" and isinstance(file.json, dict) and bool({"database", "results"} & {*file.json})

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return from_activitynet(file.json)

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        return to_text(to_activitynet(annotated))

    def write_detection(self, path: Path, detection: Detection) -> None:
        write_text(path, to_text(to_activitynet(detection.annotated, results=True)))


def to_activitynet(annotated: AnnotationSet, results: bool | None = None) -> dict[str, Any]:
    """Ground truth ("database"), as `--labels` takes it, or the form of results that ActivityNet evaluates.

    Where `results` is None, it is results if there are scores.
    """
    if results if results is not None else "scores" in annotated.held():
        found = {
            video_id: [
                {"label": a.label, "score": 1.0 if a.score is None else a.score, "segment": [a.start, a.end]}
                for a in video.segments
            ]
            for video_id, video in annotated.videos.items()
        }
        return {"version": "VERSION 1.3", "results": found, "external_data": {}}
    database = {
        video_id: {
            **video.known("subset", "duration"),
            "annotations": [
                {"label": a.label, "segment": [a.start, a.end]} | ({"subject": a.subject} if a.subject else {})
                for a in video.segments
            ],
        }
        for video_id, video in annotated.videos.items()
    }
    return {"version": "lstr labels 1", "classes": [BACKGROUND, *annotated.classes], "database": database}


def from_activitynet(content: Any) -> AnnotationSet:
    """Labels or results. Raises LabelsError."""
    try:
        stated, classes = read_activitynet(content, "the file", with_results=True)
    except LabelsError as error:
        raise LabelsError(f"It is not of ActivityNet's form: {error}", error.hint) from error
    videos = {
        name: AnnotatedVideo(video.segments, video.subset or None, video.duration) for name, video in stated.items()
    }
    return AnnotationSet(videos, classes or ())
