"""What all annotation formats have in common: videos, and labelled segments of them in seconds."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from extractors.errors import ExtractorError
from lstr.labels import BACKGROUND


class AnnotationError(ExtractorError):
    """An annotation file that is malformed, or cannot be written in the form asked for."""

    exit_code = 2


@dataclass(frozen=True, order=True)
class Annotation:
    """One labelled segment, in seconds; `score` is None where a person made it."""

    start: float
    end: float
    label: str
    score: float | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.start <= self.end < math.inf):
            raise AnnotationError(
                f"The segment of {self.label!r} from {self.start:g} to {self.end:g} s is none.",
                "let it start at 0 or later and end after its start.",
            )
        if not self.label:
            raise AnnotationError(
                f"The segment from {self.start:g} to {self.end:g} s has no label.", "name its action."
            )


@dataclass(frozen=True)
class AnnotatedVideo:
    """The segments of one video, by start; what a format does not hold is None."""

    annotations: tuple[Annotation, ...] = ()
    subset: str | None = None
    duration: float | None = None
    """Seconds."""
    media: str | None = None
    """Path or address of the video."""
    fps: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "annotations", tuple(sorted(self.annotations, key=_order)))

    @property
    def end(self) -> float:
        """The duration, or where the last segment ends."""
        return self.duration if self.duration is not None else max((a.end for a in self.annotations), default=0.0)


@dataclass(frozen=True)
class AnnotationSet:
    """Annotated videos by id. `classes` are without "Background", in the order of the file where it has one.

    A segment of background says what no segment says, and is left out.
    """

    videos: Mapping[str, AnnotatedVideo]
    classes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        videos = {
            name: replace(video, annotations=tuple(a for a in video.annotations if a.label != BACKGROUND))
            for name, video in self.videos.items()
        }
        given = tuple(name for name in self.classes if name != BACKGROUND)
        used = {a.label for video in videos.values() for a in video.annotations} - set(given)
        object.__setattr__(self, "videos", videos)
        object.__setattr__(self, "classes", given + tuple(sorted(used)))

    def merged(self, other: "AnnotationSet") -> "AnnotationSet":
        """Both sets together. Raises AnnotationError where a video is in both."""
        twice = sorted(self.videos.keys() & other.videos.keys())
        if twice:
            raise AnnotationError(
                f"The video {twice[0]!r} is annotated twice.", "give each video once, or rename one of the files."
            )
        new = tuple(name for name in other.classes if name not in self.classes)
        return AnnotationSet({**self.videos, **other.videos}, self.classes + new)

    def with_subsets(self, subsets: Mapping[str | None, str]) -> "AnnotationSet":
        """With subsets renamed; the name for None goes to videos that have none."""
        videos = {
            name: replace(video, subset=subsets.get(video.subset, video.subset)) for name, video in self.videos.items()
        }
        return replace(self, videos=videos)

    def without_scores(self) -> "AnnotationSet":
        """As if a person had made them."""
        videos = {
            name: replace(video, annotations=tuple(replace(a, score=None) for a in video.annotations))
            for name, video in self.videos.items()
        }
        return replace(self, videos=videos)

    def held(self) -> set[str]:
        """What this set has beside labels and times, so that what another form has no place for can be said."""
        videos = self.videos.values()
        used = {a.label for video in videos for a in video.annotations}
        present = {
            "scores": any(a.score is not None for video in videos for a in video.annotations),
            "subsets": any(video.subset for video in videos),
            "durations": any(video.duration is not None for video in videos),
            "classes without segments": bool(set(self.classes) - used),
            "videos without segments": any(not video.annotations for video in videos),
        }
        return {name for name, there in present.items() if there}


def _order(annotation: Annotation) -> tuple:
    return annotation.start, annotation.end, annotation.label, annotation.score or 0


def from_segments(segments: Iterable[Mapping], **known) -> AnnotatedVideo:
    """Segments {label, start, end, score} of a timeline as an annotated video."""
    return AnnotatedVideo(
        tuple(Annotation(s["start"], s["end"], s["label"], s.get("score")) for s in segments), **known
    )


def plain_line(label: str) -> str:
    """A label for a format of lines: each run of white space is one space."""
    return " ".join(label.split())
