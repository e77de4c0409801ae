"""What all annotation formats have in common: videos, and labelled segments of them in seconds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lstr.errors import LabelsError, brief
from lstr.labels.label_set import BACKGROUND, Note, subset_named
from lstr.labels.segment import Segment, is_name, is_time, mistake


@dataclass(frozen=True)
class AnnotatedVideo:
    """The segments of one video, by start; what a format does not hold is None.

    They may be wrong, as files are: `AnnotationSet.checked` raises.
    """

    segments: tuple[Segment, ...] = ()
    subset: str | None = None
    duration: float | None = None
    """Seconds."""
    media: str | None = None
    """Path or address of the video."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(sorted(self.segments, key=_order)))

    def known(self, *names: str) -> dict[str, Any]:
        """The fields of these names that are not None."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def end(self) -> float:
        """The duration, or where the last segment ends."""
        return self.duration if self.duration is not None else max((s.end for s in self.segments), default=0.0)


@dataclass(frozen=True)
class AnnotationSet:
    """Annotated videos by id. `classes` are without "Background", in the order of the file where it has one.

    A segment of background says no more than its absence, and is left out.
    """

    videos: Mapping[str, AnnotatedVideo]
    classes: tuple[str, ...] = ()
    notes: tuple[Note, ...] = field(default=(), compare=False)
    """What was taken otherwise than it is written."""

    def __post_init__(self) -> None:
        videos = {
            name: replace(video, segments=tuple(s for s in video.segments if s.label != BACKGROUND))
            for name, video in self.videos.items()
        }
        listed = tuple(name for name in self.classes if name != BACKGROUND)
        others = {s.label for video in videos.values() for s in video.segments} - set(listed)
        object.__setattr__(self, "videos", videos)
        object.__setattr__(self, "classes", listed + tuple(sorted(others)))

    @property
    def first(self) -> tuple[str, AnnotatedVideo]:
        """Id and segments of the first video, which is the only one for a format of one; an empty one without any."""
        return next(iter(self.videos.items()), ("", AnnotatedVideo()))

    def merged(self, other: "AnnotationSet") -> "AnnotationSet":
        """Both sets together. Raises LabelsError where a video is in both."""
        twice = sorted(self.videos.keys() & other.videos.keys())
        if twice:
            raise LabelsError(
                f"The video {twice[0]!r} is annotated twice.", "give each video once, or rename one of the files."
            )
        classes, notes = dict.fromkeys(self.classes + other.classes), dict.fromkeys(self.notes + other.notes)
        return AnnotationSet({**self.videos, **other.videos}, tuple(classes), tuple(notes))

    def noted(self, notes: Sequence[Note]) -> "AnnotationSet":
        """With notes before its own."""
        return replace(self, notes=(*notes, *self.notes))

    def checked(self) -> "AnnotationSet":
        """The set itself. Raises LabelsError where a segment is no piece of time."""
        classes = dict.fromkeys(self.classes)
        for name, video in self.videos.items():
            for segment in video.segments:
                if wrong := mistake(segment, classes):
                    raise LabelsError(f"Video {name!r}: {wrong.sentence}", wrong.hint)
        return self

    def plausible(self) -> "AnnotationSet":
        """The set itself. Raises LabelsError where names are no text, or numbers are none that a video has."""
        for name, video in self.videos.items():
            if not isinstance(name, str):
                raise LabelsError(f"The id {brief(name)} of a video is no text.", "put it in quotes.")
            _refuse_unless(video.subset in (None, "") or is_name(video.subset), name, "subset", video.subset)
            _refuse_unless(video.media is None or isinstance(video.media, str), name, "media", video.media)
            seconds = video.duration
            _refuse_unless(seconds is None or (is_time(seconds) and seconds >= 0), name, "duration", seconds)
            for i, segment in enumerate(video.segments):
                where = f"{name}, annotation {i}"
                _refuse_unless(is_name(segment.label), where, "label", segment.label)
                _refuse_unless(segment.subject == "" or is_name(segment.subject), where, "subject", segment.subject)
                times = {"start": segment.start, "end": segment.end, "score": segment.score or 0}
                for what, time in times.items():
                    _refuse_unless(is_time(time), where, what, time)
        if wrong := [name for name in self.classes if not is_name(name)]:
            raise LabelsError(f"The class {brief(wrong[0])} is no name.", "write it as text.")
        return self

    def with_subsets(self, subsets: Mapping[str | None, str]) -> "AnnotationSet":
        """With subsets renamed; the name for None goes to videos that have none.

        Names that are not renamed get the usual form: "train" is "training".
        """
        return self.each(lambda _, v: replace(v, subset=subsets.get(v.subset, v.subset and subset_named(v.subset))))

    def renamed(self, names: Mapping[str, str]) -> "AnnotationSet":
        """With classes renamed; two of one name become one class. Raises LabelsError where one is not there."""
        if missing := [name for name in names if name not in self.classes]:
            known = ", ".join(map(repr, self.classes)) or "none"
            raise LabelsError(f"There is no class {missing[0]!r} to rename.", f"the classes are: {known}.")
        classes = dict.fromkeys(names.get(name, name) for name in self.classes)
        segments = self._each_segment(lambda s: replace(s, label=names.get(s.label, s.label)))
        return replace(segments, classes=tuple(classes))

    def in_seconds(self, rate: float) -> "AnnotationSet":
        """With times divided by `rate`, because they count frames, so many a second. Durations stay."""
        return self._each_segment(lambda s: replace(s, start=s.start / rate, end=s.end / rate))

    def without_scores(self) -> "AnnotationSet":
        """The annotations without scores, as if a person had made them."""
        return self._each_segment(lambda s: replace(s, score=None))

    def each(self, change: Callable[[str, AnnotatedVideo], AnnotatedVideo]) -> "AnnotationSet":
        """With `change` of each id and video in the video's place."""
        return replace(self, videos={name: change(name, video) for name, video in self.videos.items()})

    def _each_segment(self, change: Callable[[Segment], Segment]) -> "AnnotationSet":
        return self.each(lambda _, video: replace(video, segments=tuple(map(change, video.segments))))

    def held(self) -> set[str]:
        """What this set has beside labels and times; what a form has no place for is lost in it."""
        videos = self.videos.values()
        used = {s.label for video in videos for s in video.segments}
        present = {
            "scores": any(s.score is not None for video in videos for s in video.segments),
            "subsets": any(video.subset for video in videos),
            "durations": any(video.duration is not None for video in videos),
            "classes without segments": bool(set(self.classes) - used),
            "videos without segments": any(not video.segments for video in videos),
            "subjects": any(s.subject for video in videos for s in video.segments),
        }
        return {name for name, is_held in present.items() if is_held}


def _refuse_unless(right: bool, where: str, what: str, value: object) -> None:
    if not right:
        raise LabelsError(f"Video {where}: the {what} is {brief(value)}.", "mend it, or leave it out.")


def _order(segment: Segment) -> tuple[float, float, str, float, str]:
    return segment.start, segment.end, segment.label, segment.score or 0, segment.subject


def layers_of(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Segments by start, dealt to as few lists as let none overlap; at least one list."""
    layers: list[list[Segment]] = [[]]
    for a in segments:
        free = next((layer for layer in layers if not layer or layer[-1].end <= a.start > layer[-1].start), None)
        if free is None:
            layers.append(free := [])
        free.append(a)
    return layers


def plain_line(label: str) -> str:
    """A label for a format of lines: each run of white space is one space."""
    return " ".join(label.split())
