"""What shows annotations and cannot be read back: pictures, a page, and the video with lanes under it."""

import json
from pathlib import Path

import numpy as np

from lstr.extractors.errors import MissingPathError
from lstr.extractors.video.inputs import LANES_SUFFIX
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, Detection, Format, Written, each_video
from lstr.pipelines.annotations.timeline_json import to_jsonl, to_timeline

# Each draws with modules of lstr.pipelines.reports imported where it does, for they load a video stack or matplotlib.


class Picture(Format):
    """One picture per video."""

    reads = False

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> Written:
        files = []
        for path, one in each_video(annotated, output, self.suffix):
            self.draw(path, one)
            files.append(path)
        return Written(files)

    def draw(self, path: Path, one: AnnotationSet) -> None:
        """Draw the annotations of a single video. Raises OutputError, and MissingPathError without a needed video."""
        raise NotImplementedError


class Png(Picture):
    """A still picture."""

    name, suffix = "png", ".png"
    paints_text = True

    def draw(self, path: Path, one: AnnotationSet) -> None:
        from lstr.pipelines.reports.figure import write_figure

        write_figure(path, to_timeline(*one.first, one.classes))

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.reports.figure import write_figure

        write_figure(path, detection.timeline, detection.scores, detection.truth)


class Svg(Png):
    """A still picture of lines and text."""

    name, suffix = "svg", ".svg"
    paints_text = False


class Page(Picture):
    """A page with the video and its lanes."""

    name, suffix = "html", ".html"

    def draw(self, path: Path, one: AnnotationSet) -> None:
        from lstr.pipelines.reports.timeline_page import write_report

        timeline = to_timeline(*one.first, one.classes)
        scores = np.full((timeline["chunks"], len(timeline["classes"])), np.nan)
        # what a person labelled has no score, so it is the page's truth
        detected = [s for s in timeline["segments"] if "score" in s]
        truth = [Segment.from_dict(s) for s in timeline["segments"] if "score" not in s] or None
        page = {"id": one.first[0], **timeline, "segments": detected}
        write_report(path, page, scores, video=_file_of(one), truth=truth)

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.reports.timeline_page import write_report

        write_report(
            path,
            {"id": detection.id, **detection.timeline},
            detection.scores,
            video=detection.video,
            truth=detection.truth,
            events=list(detection.events),
            recipe=detection.recipe,
            embed=detection.embed,
        )


class Mp4(Picture):
    """The video above its lanes. The video's own name is never taken."""

    name, suffix = "mp4", LANES_SUFFIX
    paints_text = True

    def draw(self, path: Path, one: AnnotationSet) -> None:
        from lstr.pipelines.reports.overlay import Lanes, write_overlay

        video_id, video = one.first
        source = _file_of(one)
        if source is None:
            raise MissingPathError(
                f"The video of {video_id!r} ({video.media or 'its file is not known'}) is not there.",
                "name its file or folder with [[video]].",
            )
        events = [json.loads(line) for line in to_jsonl(video).splitlines()]
        write_overlay(path, source, Lanes(tuple(to_timeline(video_id, video, one.classes)["classes"]), events))

    def is_due(self, detection: Detection) -> bool:
        return detection.video is not None

    def write_detection(self, path: Path, detection: Detection) -> None:
        from lstr.pipelines.reports.overlay import Lanes, write_overlay

        assert detection.video is not None
        lanes = Lanes(tuple(detection.timeline["classes"]), detection.events, detection.scores)
        write_overlay(path, detection.video, lanes)


def _file_of(one: AnnotationSet) -> Path | None:
    """The file of a set's only video, where it is on this machine."""
    media = one.first[1].media
    return Path(media) if media and Path(media).is_file() else None
