"""What people have said of events, as labels of their clips: a set that `lstr learn` takes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lstr.errors import LabelsError
from lstr.files.content import write_json
from lstr.labels.label_set import AMBIGUOUS
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.watching.clip_folder import about_clip
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History, Wanted

RIGHT, WRONG = "right", "wrong"
ALL = Wanted()


@dataclass(frozen=True)
class Exported:
    """What a label file was made of."""

    right: int
    """Events whose action their clips show."""
    wrong: int
    """Events whose clips show that it does not happen."""
    without_clip: int
    """Judged events that are not in it, for their clips are gone."""


@dataclass(frozen=True)
class _Clip:
    event: WatchedEvent
    start: datetime
    seconds: float

    def part(self, event: WatchedEvent) -> tuple[float, float] | None:
        """Start and end of an event on the same source in seconds of the clip; None where none of it is in the clip."""
        begin = max(0.0, (event.start - self.start).total_seconds())
        end = self.seconds if event.end is None else (event.end - self.start).total_seconds()
        end = min(self.seconds, end)
        return (round(begin, 3), round(end, 3)) if end > begin else None


def export_labels(history: History, clips: Path, output: Path, wanted: Wanted = ALL) -> Exported:
    """Write the judged events as labels of the clips in a folder, an ActivityNet JSON as `lstr learn CLIPS FILE` takes.

    An event that is right is its action in its clip, one that is wrong is nothing. What nobody has judged of the same
    source is ambiguous in the clips that show it. Raises LabelsError where no event with a clip is right, OutputError
    where the file cannot be written.
    """
    judged = [event for event in history.events(wanted) if event.verdict in (RIGHT, WRONG)]
    there = [clip for event in judged if (clip := _clip_of(clips, event))]
    if not any(clip.event.verdict == RIGHT for clip in there):
        raise LabelsError(
            "No event that has a clip is marked as right, so that there is nothing to learn.",
            "mark events on the page: some that are right, and those that are wrong.",
        )
    of_source = {name: history.events(Wanted(source=name)) for name in {clip.event.source for clip in there}}
    videos = {
        clip.event.id: AnnotatedVideo(tuple(_segments(clip, of_source[clip.event.source])), duration=clip.seconds)
        for clip in sorted(there, key=lambda clip: clip.event.id)
    }
    write_json(output, to_activitynet(AnnotationSet(videos), results=False))
    right = sum(clip.event.verdict == RIGHT for clip in there)
    return Exported(right, len(there) - right, len(judged) - len(there))


def _clip_of(folder: Path, event: WatchedEvent) -> _Clip | None:
    about = about_clip(folder, event.id)
    if about is None:
        return None
    try:
        start, seconds = datetime.fromisoformat(about["start"]), float(about["seconds"])
        return _Clip(event, start, seconds) if start.tzinfo and seconds > 0 else None
    except (KeyError, TypeError, ValueError):
        return None


def _segments(clip: _Clip, events: Iterable[WatchedEvent]) -> Iterator[Segment]:
    """What a clip shows, by what was said of it and of the other events of its source."""
    known, unknown = [], []
    for event in events:
        part = clip.part(event)
        if part and event.verdict == RIGHT:
            known.append(Segment(*part, event.action))
        elif part and not event.verdict:
            unknown.append(part)
    yield from known
    for start, end in unknown:
        for segment in sorted(known, key=lambda segment: segment.start):
            if start < segment.start < end:
                yield Segment(start, segment.start, AMBIGUOUS)
            if segment.start < end and segment.end > start:
                start = segment.end
        if start < end:
            yield Segment(start, end, AMBIGUOUS)
