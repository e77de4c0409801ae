"""The content of label files in any format: videos with labelled segments in seconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lstr.errors import LabelsError, brief
from lstr.labels.label_set import BACKGROUND, Note, VideoLabels
from lstr.labels.segment import Segment, is_name, is_time


@dataclass(frozen=True)
class AnnotationSet:
    """Annotated videos by id. `classes` are without "Background", in the order of the file if it has one.

    Segments are sorted by start. Background segments are dropped, because they are implied. Segments may be invalid, as
    in files.
    """

    videos: Mapping[str, VideoLabels]
    classes: tuple[str, ...] = ()
    # Entries that were interpreted instead of read literally.
    notes: tuple[Note, ...] = field(default=(), compare=False)
    # Whether times count from the start of the sound, as programs that show the video count, not from its first frame.
    for_players: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        videos = {}
        for name, video in self.videos.items():
            kept = [s for s in video.segments if s.label != BACKGROUND]
            kept.sort(key=lambda s: (s.start, s.end, s.label, s.score or 0, s.subject))
            subset = "" if video.subset is None else video.subset  # null in a JSON file
            videos[name] = replace(video, subset=subset, segments=tuple(kept))
        listed = tuple(name for name in self.classes if name != BACKGROUND)
        others = {s.label for video in videos.values() for s in video.segments} - set(listed)
        object.__setattr__(self, "videos", videos)
        object.__setattr__(self, "classes", listed + tuple(sorted(others)))

    @property
    def first(self) -> tuple[str, VideoLabels]:
        """Return id and labels of the first video; an empty id and empty labels without videos."""
        return next(iter(self.videos.items()), ("", VideoLabels()))

    @property
    def segments(self) -> list[tuple[str, Segment]]:
        """Return every segment with the id of its video."""
        return [(name, segment) for name, video in self.videos.items() for segment in video.segments]

    def merged(self, other: "AnnotationSet") -> "AnnotationSet":
        """Return the union of both sets. Raises LabelsError if a video is in both."""
        if twice := sorted(self.videos.keys() & other.videos.keys()):
            raise LabelsError(
                f"The video {twice[0]!r} is in two files.", "use one file for each video, or rename one of the files."
            )
        classes, notes = dict.fromkeys(self.classes + other.classes), dict.fromkeys(self.notes + other.notes)
        for_players = self.for_players or other.for_players
        return AnnotationSet({**self.videos, **other.videos}, tuple(classes), tuple(notes), for_players)

    def each_segment(self, change: Callable[[Segment], Segment]) -> "AnnotationSet":
        """Return the set with each segment replaced by `change(segment)`."""
        videos = {
            name: replace(video, segments=tuple(map(change, video.segments))) for name, video in self.videos.items()
        }
        return replace(self, videos=videos)

    def without_scores(self) -> "AnnotationSet":
        """Return the annotations without scores, like manual labels."""
        return self.each_segment(lambda s: replace(s, score=None))

    def plausible(self) -> "AnnotationSet":
        """Return the set itself. Raises LabelsError for names that are not text and for impossible numbers."""

        def check(is_right: bool, where: str, what: str, value: object) -> None:
            if not is_right:
                raise LabelsError(f"Video {where}: {brief(value)} is not a valid {what}.", "correct or delete it.")

        for name, video in self.videos.items():
            if not isinstance(name, str):
                raise LabelsError(f"The video id {brief(name)} is not text.", "put it in quotes.")
            seconds = video.duration
            check(video.subset == "" or is_name(video.subset), name, "subset", video.subset)
            check(video.media is None or isinstance(video.media, str), name, "media", video.media)
            check(seconds is None or (is_time(seconds) and seconds >= 0), name, "duration", seconds)
            for i, segment in enumerate(video.segments):
                where = f"{name}, annotation {i}"
                check(is_name(segment.label), where, "label", segment.label)
                check(segment.subject == "" or is_name(segment.subject), where, "subject", segment.subject)
                for what in ("start", "end", "score"):
                    value = getattr(segment, what)
                    check(is_time(value) or (value is None and what == "score"), where, what, value)
        if wrong := [name for name in self.classes if not is_name(name)]:
            raise LabelsError(f"The class {brief(wrong[0])} is not a valid name.", "write it as text.")
        return self

    def extras(self) -> set[str]:
        """Return the kinds of information in addition to labels and times; some formats cannot store them."""
        videos, segments = self.videos.values(), [segment for _, segment in self.segments]
        present = {
            "scores": any(s.score is not None for s in segments),
            "subsets": any(video.subset for video in videos),
            "durations": any(video.duration is not None for video in videos),
            "classes without segments": bool(set(self.classes) - {s.label for s in segments}),
            "videos without segments": any(not video.segments for video in videos),
            "subjects": any(s.subject for s in segments),
        }
        return {name for name, is_held in present.items() if is_held}
