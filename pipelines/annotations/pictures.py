"""What cannot be read back: scores, and what shows annotations: pictures, a page, and the video with lanes under it."""

from pathlib import Path

import numpy as np

from lstr.errors import MissingPathError
from lstr.extractors.video.inputs import LANES_SUFFIX
from lstr.files.atomic import replacing
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, Detection, Format, each_video
from lstr.pipelines.annotations.timeline_json import to_events, to_timeline

# Each draws with modules of lstr.pipelines.pages imported where it does, for they load a video stack.


class Scores(Format):
    """Every score of a detection: float32 (chunks, classes), with the timeline beside it."""

    name, suffix = "npy", ".scores.npy"
    reads, detects = False, True

    def write_detection(self, path: Path, detection: Detection) -> None:
        assert detection.scores is not None
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, np.asarray(detection.scores, np.float32))


class Picture(Format):
    """One picture per video; annotations are drawn as a detection without scores."""

    reads, writes, detects = False, True, True

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        files = []
        for path, alone in each_video(annotated, output, self.suffix):
            video_id, video = alone.first
            media = Path(video.media) if video.media and Path(video.media).is_file() else None
            timeline = to_timeline(video_id, video, alone.classes)
            self.write_detection(path, Detection(video_id, timeline, None, (), media))
            files.append(path)
        return files


class Png(Picture):
    """A still picture."""

    name, suffix = "png", ".png"
    paints_text = True

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.pages.figure import write_figure

        write_figure(path, detection.timeline, detection.scores, detection.truth)


class Svg(Png):
    """A still picture of lines and text."""

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
            # what a person labelled has no score, so it is the page's truth
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
            subset=detection.subset,
            index=detection.index,
            embed=detection.embed,
        )


class Mp4(Picture):
    """The video above its lanes. The video's own name is never taken."""

    name, suffix = "mp4", LANES_SUFFIX
    paints_text = True

    def is_due(self, detection: Detection) -> bool:
        return detection.video is not None

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.pages.overlay import Lanes, write_overlay

        timeline = detection.timeline
        if detection.video is None:
            named = timeline["source"] if timeline["source"] != detection.id else "its file is not known"
            raise MissingPathError(
                f"The video of {detection.id!r} ({named}) is not there.", "name its file or folder with --video."
            )
        events = detection.events
        if detection.scores is None:
            events = to_events(detection.annotated.first[1])
        write_overlay(path, detection.video, Lanes(tuple(timeline["classes"]), events, detection.scores))
