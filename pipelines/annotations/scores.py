"""Stored scores, of which segments are decided again."""

from pathlib import Path

import numpy as np

from lstr.chunk import CLOCK, Clock
from lstr.files.arrays import open_array
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, Detection, File, Format
from lstr.pipelines.files.atomic import replacing
from lstr.timeline import Thresholds, Timeline, segments_in


class Scores(Format):
    """`<id>.scores.npy`: float32 (chunks, classes), with the timeline beside it."""

    name, suffix = "npy", ".scores.npy"
    writes = False

    def recognises(self, file: File) -> bool:
        return file.path.name.endswith(self.suffix)

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        video, classes = decide(file.path, options.thresholds)
        return AnnotationSet({video_id: video}, classes)

    def write_detection(self, path: Path, detection: Detection) -> None:
        assert detection.scores is not None
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, np.asarray(detection.scores, np.float32))


def decide(path: Path, thresholds: Thresholds) -> tuple[AnnotatedVideo, tuple[str, ...]]:
    """Segments of stored scores, whose classes the timeline beside them names. Raises AnnotationError."""
    beside = path.with_name(path.name.removesuffix(Scores.suffix) + ".json")
    if not beside.exists():
        raise AnnotationError(
            f"{beside.name} is not beside it, which names the classes.", "detect with --format json,npy."
        )
    known = File(beside).json
    try:
        scores, classes = np.asarray(open_array(path), np.float32), tuple(known["classes"])
        duration, source = known["duration"], known["source"]
        clock = Clock.from_dict(known["clock"]) if "clock" in known else CLOCK
        if scores.ndim != 2 or scores.shape[1] != len(classes):
            raise ValueError(f"scores are {scores.shape} for {len(classes)} classes")
        if np.isinf(scores).any():
            raise ValueError("some are infinite")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AnnotationError(f"The scores cannot be read ({error}).", "run `lstr detect` again.") from error
    timeline = Timeline(classes, thresholds, clock)
    decided = (k for k, row in enumerate(scores) if not np.isnan(row).any())  # in a gap there are no scores
    events = [event for k in decided for event in timeline.push(clock.at(k + 1), scores[k])]
    events += timeline.finish(clock.at(len(scores)))
    return AnnotatedVideo(tuple(segments_in(events)), duration=duration, media=source), classes
