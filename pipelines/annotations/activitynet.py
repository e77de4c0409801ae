"""ActivityNet's JSON, the main format of `--labels`, and per-chunk targets with their data_info.json."""

from pathlib import Path
from typing import Any

from lstr.errors import LabelsError
from lstr.files.content import to_json, write_json
from lstr.labels.label_set import BACKGROUND, read_activitynet, read_json
from lstr.labels.perframe import INFO, TARGETS, is_data_info, read_data_info
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import EVERYTHING, FILES, ConvertOptions, Detection, File, Format


class ActivityNetJson(Format):
    """Labels for training, or with scores results for evaluation."""

    name, suffix = "activitynet", ".activitynet.json"
    holds = EVERYTHING - {"scores"}
    holds_with_scores = FILES | {"scores"}
    holds_many = True

    def recognises(self, file: File) -> bool:
        return file.ending == ".json" and isinstance(file.json, dict) and bool({"database", "results"} & {*file.json})

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        stated, classes = read_activitynet(file.json, str(file.path), with_results=True)
        return AnnotationSet(stated, classes or ())

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        return to_json(to_activitynet(annotated), indent=1) + "\n"

    def write_detection(self, path: Path, detection: Detection) -> None:
        write_json(path, to_activitynet(detection.annotated, results=True))


class PerFrame(Format):
    """A folder of per-chunk targets, target_perframe/ID.npy, of the first data set in its data_info.json."""

    name = "perframe"
    is_folder = True

    def recognises(self, file: File) -> bool:
        return (file.path / INFO).exists()

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        info = file.path / INFO
        content = read_json(info)
        if not is_data_info(content):
            raise LabelsError(f"{info} describes no data set.", f"use a folder with {INFO} and {TARGETS}/.")
        read = read_data_info(info, content, [file.path], next(iter(content)), any_rate=True)
        return AnnotationSet(read.videos, read.classes)


def to_activitynet(annotated: AnnotationSet, results: bool | None = None) -> dict[str, Any]:
    """Return labels ("database"), or the result format of ActivityNet's evaluation.

    If `results` is None, segments with scores are results.
    """
    if results if results is not None else "scores" in annotated.extras():
        found: dict[str, Any] = {video_id: [] for video_id in annotated.videos}
        for video_id, s in annotated.segments:
            score = 1.0 if s.score is None else s.score
            found[video_id].append({"label": s.label, "score": score, "segment": [s.start, s.end]})
        return {"version": "VERSION 1.3", "results": found, "external_data": {}}
    database: dict[str, Any] = {}
    for video_id, video in annotated.videos.items():
        facts = {"subset": video.subset, "duration": video.duration}
        database[video_id] = {name: value for name, value in facts.items() if value not in ("", None)} | {
            "annotations": [
                {"label": s.label, "segment": [s.start, s.end]} | ({"subject": s.subject} if s.subject else {})
                for s in video.segments
            ]
        }
    return {"version": "lstr labels 1", "classes": [BACKGROUND, *annotated.classes], "database": database}
