"""Labels of videos with how long each was watched, from label files and from what `lstr detect` wrote."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import LabelsError, few
from lstr.extractors.errors import ExtractorError
from lstr.labels.balance import actions_of
from lstr.labels.label_set import BACKGROUND, Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.labels.units import Footage
from lstr.pipelines.annotations.footage import footage_of_files, videos_among
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.annotations.formats import FORMATS, files_below, read_annotations, recognise
from lstr.pipelines.annotations.label_file import labels_from, read_label_file, with_plain_ids
from lstr.pipelines.annotations.label_files import joined

STATED, OF_FILE, LAST_END = "stated in the labels", "of the video file", "the last end"
"""Where the length of a video is from"""
TIMELINE = FORMATS["json"]
OF_NO_WEIGHT = ("no subsets", "subset name", "id with ending", "scores")
"""Kinds of notes on what no report depends on"""


@dataclass(frozen=True)
class Watched:
    """How long a video was watched, and where that is from."""

    seconds: float
    origin: str


def read_events(path: str | Path, present: Collection[str] = ()) -> Labels:
    """Labels of any form, or the timelines in a folder that `lstr detect` wrote, without their scores.

    present: ids as which an id with a folder or an ending is taken. Raises LabelsError, also where no video is named.
    """
    path = Path(path)
    if not path.exists():
        raise LabelsError(f"There is no label file {path}.", "check the path; `ls` its folder.")
    if path.is_dir() and any(recognise(p) is TIMELINE for p in files_below(path) if p.suffix == ".json"):
        try:
            annotated = read_annotations(path, ConvertOptions(source_format=TIMELINE.name))
        except ExtractorError as error:
            raise LabelsError(str(error), error.hint) from error
        labels = with_plain_ids(labels_from(annotated, str(path)), present)
    else:
        labels = read_label_file(path, present=present)
    if not labels.videos:
        raise LabelsError(f"{path} names no video.", "give a file with a labelled video, see `lstr labels check FILE`.")
    return labels


def read_all(paths: Sequence[str], present: Collection[str] = ()) -> tuple[Labels, list[str]]:
    """Several files as one, and what is to be told of them; of a video that is in several the last counts.

    Raises LabelsError.
    """
    read = [(path, read_events(path, present)) for path in paths]
    if len(read) == 1:
        return read[0][1], notes_of(read)
    labels = joined(read)
    return labels, [note.sentence for note in labels.notes if note.kind not in OF_NO_WEIGHT]


def notes_of(read: Iterable[tuple[str, Labels]]) -> list[str]:
    """How files, each with its name, were taken otherwise than they are written, as far as a report depends on it."""
    notes = (f"{path}: {note.sentence}" for path, one in read for note in one.notes if note.kind not in OF_NO_WEIGHT)
    return list(dict.fromkeys(notes))


def files_of(videos: Sequence[str]) -> dict[str, Path]:
    """The video files by id. Raises LabelsError where there are none."""
    found = videos_among(videos)
    if videos and not found:
        raise LabelsError(f"There is no video in {few(list(videos))}.", "give video files or a folder of them.")
    return found


def watched_of(sets: Sequence[Labels], files: Mapping[str, Path]) -> dict[str, Watched]:
    """How long each video of the first set was watched: as a set states, else by its file, else until its last end.

    A last event that lasts no time has a chunk more, for it lies in the video. Nothing is 0 s long: such a video, of
    which nobody knows anything, is left out. Raises LabelsError where no video is left.
    """
    asked = {name: path for name, path in files.items() if name in sets[0].videos}
    unstated = {name: path for name, path in asked.items() if _stated(sets, name) is None}
    footage = footage_of_files(unstated)
    found = {name: _watched([one.videos[name] for one in sets], footage.get(name)) for name in sets[0].videos}
    known = {name: one for name, one in found.items() if one.seconds > 0}
    if not known:
        raise LabelsError(
            "No video has a label, and nobody says how long one is.", "give the videos too, or their durations."
        )
    return known


def told(watched: Mapping[str, Watched], named: int) -> str:
    """A sentence where a length is none that a file states; else empty."""
    n_ends = sum(one.origin == LAST_END for one in watched.values())
    parts = []
    if n_ends:
        parts.append(f"{n_ends} of {named} videos state no length: each is taken to end with its last label")
    if lost := named - len(watched):
        parts.append(f"{lost} without a length or a label {'is' if lost == 1 else 'are'} left out")
    return "; ".join(parts) + ("; give the videos or their durations for shares, rates and kappa" if parts else "")


def origins(watched: Mapping[str, Watched]) -> dict[str, int]:
    """How many lengths are from where."""
    return dict(Counter(one.origin for one in watched.values()))


def within(segments: Sequence[Segment], seconds: float) -> list[Segment]:
    """Segments cut at a video's end, without those that start there or later."""
    return [replace(s, end=min(s.end, seconds)) for s in segments if s.start < seconds]


def past_the_end(sets: Sequence[Labels], watched: Mapping[str, Watched]) -> str:
    """A sentence where events start after their video's end; else empty."""
    late = [
        name
        for name, one in watched.items()
        for labels in sets
        for segment in labels.videos[name].segments
        if segment.start >= one.seconds
    ]
    if not late:
        return ""
    return (
        f"{len(late)} labels start after the end of their video and are left out, in {few(list(dict.fromkeys(late)))}"
    )


def actions_in(sets: Sequence[Labels]) -> tuple[str, ...]:
    """The actions of all sets, without background and ambiguous ones. Raises LabelsError where there are none."""
    found = tuple(dict.fromkeys(name for labels in sets for name in actions_of(labels)))
    if not found:
        raise LabelsError("No action is labelled.", "give a file that labels one, see `lstr labels check FILE`.")
    return found


def renamed(labels: Labels, names: Mapping[str, str]) -> Labels:
    """With classes renamed where they are there; two of one name become one."""
    videos = {
        name: replace(video, segments=tuple(replace(s, label=names.get(s.label, s.label)) for s in video.segments))
        for name, video in labels.videos.items()
    }
    classes = tuple(dict.fromkeys(names.get(name, name) for name in labels.classes if name != BACKGROUND))
    return replace(labels, classes=(BACKGROUND, *classes), videos=videos)


def _stated(sets: Sequence[Labels], name: str) -> float | None:
    return next((seconds for one in sets if (seconds := _length(one.videos[name])) is not None), None)


def _length(video: VideoLabels) -> float | None:
    if video.duration is None and video.n_chunks is not None:
        return video.n_chunks / FEATURES_PER_SECOND
    return video.duration


def _watched(videos: Sequence[VideoLabels], footage: Footage | None) -> Watched:
    stated = next((seconds for video in videos if (seconds := _length(video)) is not None), None)
    if stated is not None:
        return Watched(stated, STATED)
    if footage:
        return Watched(footage.seconds, OF_FILE)
    ends = [s.end + (s.end <= s.start) / FEATURES_PER_SECOND for video in videos for s in video.segments]
    return Watched(max(ends, default=0.0), LAST_END)
