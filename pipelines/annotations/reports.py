"""Reports on labels: frequency and duration of each action, and agreement of two label files."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import LabelsError, few
from lstr.labels.label_set import Labels, actions_of
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.metrics.event_errors import measure_kappa, without_ambiguous
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.annotations.videos import find_labelled_videos, footage_of_files
from lstr.pipelines.pages.table import Cell, Column, Table

ALL = "all"
TOGETHER = "together"
# Columns of the agreement table, with the keys of their F1 in `measure_events`
F1 = {"F1 IoU 0.3": ("iou", "0.3"), "F1 IoU 0.5": ("iou", "0.5"), "F1 start 1 s": ("onset", "1.0")}


def time_budget(labels: Labels) -> Table:
    """Return a table with count, total and mean seconds of each action.

    The first rows are totals of all videos, followed by rows for each video. If labels have subjects, each action has a
    row for all subjects together and one for each subject; labels without a subject have an empty cell.
    Raises LabelsError if no action is labelled.
    """
    actions = actions_of(labels.classes)
    if not actions:
        raise LabelsError("No action is labelled.", "use a file with a label, see `lstr labels check FILE`.")
    # by video, action and subject; None is a total
    seconds: dict[tuple[str | None, str, str | None], list[float]] = {(None, action, None): [] for action in actions}
    segments = [(name, s) for name, video in labels.videos.items() for s in video.segments if s.label in actions]
    has_subjects = any(segment.subject for _, segment in segments)
    for name, segment in segments:
        subjects = (None, segment.subject) if has_subjects else (None,)
        for video in (None, name):
            for subject in subjects:
                seconds.setdefault((video, segment.label, subject), []).append(segment.end - segment.start)
    places = {name: place for place, name in enumerate((None, *labels.videos))}
    rows: list[list[Cell]] = []
    for key in sorted(seconds, key=lambda k: (places[k[0]], actions.index(k[1]), k[2] is not None, k[2] or "")):
        lengths, (video, action, subject) = seconds[key], key
        total = sum(lengths, 0.0)
        names = [ALL if video is None else video, action, ALL if subject is None else subject]
        rows.append([*names, len(lengths), total, total / len(lengths) if lengths else None])
    columns = [Column(name, is_text=True) for name in ("video", "action", "subject")]
    return Table("time budget", [*columns, Column("count"), Column("total_s", 2), Column("mean_s", 2)], rows)


def agreement_table(document: dict[str, Any]) -> Table:
    """Return the result of `compare_labels` as a table with a row for each action and one for all together."""
    kappa, events = document["kappa"], document["events"]
    columns = [Column("action", is_text=True), Column("A"), Column("B"), Column("kappa", 2)]
    rows: list[list[Cell]] = []
    for action in (*events["per_class"], TOGETHER):
        value, found = (each["per_class"].get(action, each["together"]) for each in (kappa, events))
        f1 = [found[kind][limit]["f1"] for kind, limit in F1.values()]
        rows.append([action, found["labels"], found["detections"], value, *f1])
    return Table("agreement", [*columns, *(Column(name, 2) for name in F1)], rows)


def compare_labels(path: str, other_path: str, videos: Sequence[str] = ()) -> tuple[dict[str, Any], list[str]]:
    """Compare two label files on the videos that both have.

    Args:
        path: A, the reference: a label file, a folder of them, or an output folder of `lstr detect`.
        other_path: B, of the same types.
        videos: Video files or folders, for durations that the labels do not contain.

    Returns:
        The JSON object of `lstr labels compare`, with `kappa` of `measure_kappa` and `events` of `measure_events` (A
        are the labels, B the detections); and warnings.

    Raises:
        LabelsError: A and B have no video or no action in common.
    """
    files = find_labelled_videos(videos)
    if videos and not files:
        raise LabelsError(f"{few(list(videos))} contains no video.", "use video files or a folder of them.")
    first = read_label_file(path, present=files)
    second = read_label_file(other_path, present={**dict.fromkeys(first.videos), **files})
    names = [name for name in first.videos if name in second.videos]
    if not names:
        raise LabelsError(
            f"{path} and {other_path} have no video in common.",
            "use the same name for a video in both: its path in the folder, without the ending.",
        )
    sides = [replace(labels, videos={name: labels.videos[name] for name in names}) for labels in (first, second)]
    ours, theirs = (actions_of(labels.classes) for labels in sides)
    hint = "give both the same name: `lstr labels convert --rename OLD=NEW`"
    if not set(ours) & set(theirs):
        raise LabelsError(
            f"The two have no action in common: A has {few(ours) or 'none'}, B {few(theirs) or 'none'}.", f"{hint}."
        )
    warnings = []
    for side, actions, others in (("A", ours, theirs), ("B", theirs, ours)):
        if alone := [name for name in actions if name not in others]:
            warnings.append(f"only in {side}: {few(alone)}; if two names mean the same action, {hint}")
    for here, labels in ((path, first), (other_path, second)):
        if more := sorted(set(labels.videos) - set(names)):
            warnings.append(f"skipped, because only {here} has labels of them: {few(more)}")
    events, unknown = [], []
    for name in names:
        pair = [labels.videos[name] for labels in sides]
        # per-chunk targets have a number of chunks instead of seconds
        stated = [v.n_chunks / FEATURES_PER_SECOND if v.n_chunks and v.duration is None else v.duration for v in pair]
        seconds = next((length for length in stated if length is not None), None)
        if seconds is None and name in files and (footage := footage_of_files({name: files[name]}).get(name)):
            seconds = footage[0]
        if seconds is None:
            unknown.append(name)
            seconds = max((s.end for video in pair for s in video.segments), default=0.0)
        truth, detections = (
            [replace(s, end=min(s.end, seconds)) for s in video.segments if s.start < seconds or name in unknown]
            for video in pair
        )
        events.append(VideoEvents(truth, detections, seconds))
    if unknown:
        warnings.append(f"the length of {few(unknown)} is unknown: the end of the last label is used; give the videos")
    classes = (*ours, *(name for name in theirs if name not in ours))
    document = {
        "A": path,
        "B": other_path,
        "videos": len(names),
        "seconds": sum(video.seconds for video in events),
        "classes": list(classes),
        "kappa": measure_kappa(events, classes),
        "events": measure_events(list(map(without_ambiguous, events)), classes),
    }
    return document, warnings
