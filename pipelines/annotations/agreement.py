"""Agreement of two label files of the same videos: Cohen's kappa by chunk, and F1 by event."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import LabelsError, few
from lstr.labels.balance import actions_of
from lstr.labels.label_set import Labels, VideoLabels
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.metrics.agreement import measure_kappa, without_ambiguous
from lstr.pipelines.annotations.footage import footage_of_files, videos_among
from lstr.pipelines.annotations.label_file import read_label_file
from lstr.pipelines.pages.table import Cell, Column, Table

TOGETHER = "together"
# Which F1 of `measure_events` the table shows, by the name of its column
F1 = {"F1 IoU 0.3": ("iou", "0.3"), "F1 IoU 0.5": ("iou", "0.5"), "F1 start 1 s": ("onset", "1.0")}


@dataclass(frozen=True)
class Agreement:
    """How far two label files agree."""

    document: dict[str, Any]
    """The JSON of `lstr labels compare`: `kappa` as of `measure_kappa`, `events` as of `measure_events`, where A has
    the labels and B the detections"""
    warnings: Sequence[str] = ()

    def table(self) -> Table:
        """A row for each action, and one of all together."""
        kappa, events = self.document["kappa"], self.document["events"]
        columns = [Column("action", is_text=True), Column("A"), Column("B"), Column("kappa", 2)]
        rows: list[list[Cell]] = []
        for action in (*events["per_class"], TOGETHER):
            value, found = (each["per_class"].get(action, each["together"]) for each in (kappa, events))
            f1 = [found[kind][limit]["f1"] for kind, limit in F1.values()]
            rows.append([action, found["labels"], found["detections"], value, *f1])
        return Table("agreement", [*columns, *(Column(name, 2) for name in F1)], rows)


def compare_labels(path: str, other_path: str, videos: Sequence[str] = ()) -> Agreement:
    """Compare two label files on the videos that both have.

    Args:
        path: A label file or a folder of them, or of what `lstr detect` wrote: A, by which B is measured.
        other_path: The same of B.
        videos: Video files or folders, for lengths that the labels do not state.

    Raises LabelsError where the two have no video or no action in common.
    """
    files = videos_among(videos)
    if videos and not files:
        raise LabelsError(f"There is no video in {few(list(videos))}.", "give video files or a folder of them.")
    first = read_label_file(path, present=files)
    second = read_label_file(other_path, present={**dict.fromkeys(first.videos), **files})
    names = [name for name in first.videos if name in second.videos]
    if not names:
        raise LabelsError(
            f"{path} and {other_path} have no video in common.",
            "name each video alike in both: its path in the folder, without the ending.",
        )
    sides = [replace(labels, videos={name: labels.videos[name] for name in names}) for labels in (first, second)]
    actions, warnings = _check_actions(sides)
    for here, labels in ((path, first), (other_path, second)):
        if more := sorted(set(labels.videos) - set(names)):
            warnings.append(f"skipped, because only {here} has labels of them: {few(more)}")
    found = {name: _events(name, sides, files.get(name)) for name in names}
    if unknown := [name for name, (_, is_known) in found.items() if not is_known]:
        warnings.append(f"the length of {few(unknown)} is unknown: taken to end with the last label; give the videos")
    events = [video for video, _ in found.values()]
    document = {
        "A": path,
        "B": other_path,
        "videos": len(names),
        "seconds": sum(video.seconds for video in events),
        "classes": list(actions),
        "kappa": measure_kappa(events, actions),
        "events": measure_events(list(map(without_ambiguous, events)), actions),
    }
    return Agreement(document, warnings)


def _check_actions(sides: Sequence[Labels]) -> tuple[tuple[str, ...], list[str]]:
    """The actions of both, and a warning where only one has an action. Raises LabelsError where none is in both."""
    first, second = (actions_of(labels) for labels in sides)
    alone = [[name for name in one if name not in other] for one, other in ((first, second), (second, first))]
    hint = "give both one name: `lstr labels convert --rename OLD=NEW`"
    if not set(first) & set(second):
        raise LabelsError(f"No action is in both: A has {few(first) or 'none'}, B {few(second) or 'none'}.", f"{hint}.")
    warnings = [f"only in {side}: {few(names)}; if two names mean one action, {hint}"
                for side, names in zip("AB", alone, strict=True) if names]  # fmt: skip
    return (*first, *alone[1]), warnings


def _events(name: str, sides: Sequence[Labels], path: Path | None) -> tuple[VideoEvents, bool]:
    """The segments of both, cut at the end of the video, and whether its length is known."""
    videos = [labels.videos[name] for labels in sides]
    seconds = next((stated for video in videos if (stated := _stated(video)) is not None), None)
    if seconds is None and path and (footage := footage_of_files({name: path}).get(name)):
        seconds = footage.seconds
    is_known = seconds is not None
    if seconds is None:
        seconds = max((s.end for video in videos for s in video.segments), default=0.0)
    truth, detections = (
        [replace(s, end=min(s.end, seconds)) for s in video.segments if s.start < seconds or not is_known]
        for video in videos
    )
    return VideoEvents(truth, detections, seconds), is_known


def _stated(video: VideoLabels) -> float | None:
    """The length that labels state, in seconds; that of per-chunk targets is their number of chunks."""
    if video.duration is None and video.n_chunks is not None:
        return video.n_chunks / FEATURES_PER_SECOND
    return video.duration
