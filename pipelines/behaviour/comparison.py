"""How far two label files agree, or a model's timelines and a person's labels: kappa, overlap, and kinds of errors."""

import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lstr.errors import LabelsError, few
from lstr.labels.label_set import Labels
from lstr.metrics.actions import VideoEvents
from lstr.metrics.agreement import IOUS, event_agreement, frame_agreement, without_ambiguous
from lstr.metrics.event_errors import EDGE, measure_errors
from lstr.pipelines.behaviour.ethogram import draw_all
from lstr.pipelines.behaviour.kinds import OF_DETECTIONS, OF_LABELS
from lstr.pipelines.behaviour.observed import (
    Watched,
    actions_in,
    files_of,
    notes_of,
    origins,
    past_the_end,
    read_events,
    renamed,
    told,
    watched_of,
    within,
)
from lstr.pipelines.behaviour.page import Report, write_report
from lstr.pipelines.behaviour.subjects import subjects_in
from lstr.pipelines.files.atomic import check_writable
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.reports.table import Cell, Column, Table

ACTION = Column("action", is_text=True)
TOGETHER = "together"
EDGES = ("start", "end")
FRAMES, EVENTS, OF_A, OF_B, BY_VIDEO = (
    "chunk by chunk",
    "event by event",
    "events of A, by what B has",
    "events of B, by what A has",
    "by video",
)
"""The tables"""
WHO = "labels say who acts, which is not compared: what each does counts as if one did all of it"
NOTES = {
    FRAMES: (
        "Chunks of 0.25 s in which an action is on. Observed: the share in which both say the same; expected: what two "
        "would share by chance who use each action as often; kappa: (observed - expected) / (1 - expected), a dash "
        "where both say one thing throughout. Together: the same actions at once."
    ),
    EVENTS: (
        "One event of A and one of B are the same from an IoU (intersection over union) of 0.25, 0.5 or 0.75 on. Mean "
        "IoU: of the events that overlap; of time: seconds that both have, of those that either has."
    ),
    OF_A: (
        f"Correct: one to one, with both edges within {EDGE:g} s; edge off: one to one, with an edge further away; in "
        "pieces: B has several; merged: B takes several as one; wrong action: B has another action there; nothing: B "
        "has nothing of it. Start and end: the median of how much later they are in B (s, one to one)."
    ),
    OF_B: "The same from the other side: pieces of one event of A, several of A as one, and what A does not have.",
}


@dataclass(frozen=True)
class CompareOptions:
    """Which labels are compared, and where what is found is written."""

    labels: str
    """A: a label file, or a folder that `lstr detect` wrote"""
    others: str
    """B: the same of another person, or of a model"""
    videos: Sequence[str] = ()
    """Files or folders of videos, for lengths that the labels do not state"""
    rename: Mapping[str, str] = field(default_factory=dict)
    """New names of classes, in either file"""
    output: str | Path | None = None
    """Folder for report.html, JSON, CSV and the ethograms"""


@dataclass(frozen=True)
class Agreement:
    """How far two agree."""

    document: dict[str, Any]
    """What `lstr labels compare --json` prints"""
    page: Path | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence for people."""
        frames, events, kinds = (self.document[name] for name in ("frames", "events", "kinds"))
        value, one = frames["together"]["kappa"], events["together"]
        half = one["matched"]["0.5"]["pairs"]
        labels, detections = kinds["together"]["labels"], kinds["together"]["detections"]
        parts = [
            f"kappa {'–' if value is None else f'{value:.2f}'} over {frames['chunks']} chunks",
            f"{half} of {one['truth']} events of A and of {one['detections']} of B are the same (IoU 0.5)",
        ]
        wrong = (
            (labels["fragmented"] + labels["fragmented_merged"], "of A in pieces in B"),
            (labels["merged"] + labels["fragmented_merged"], "merged"),
            (labels["wrong_action"], "another action"),
            (labels["deleted"], "only in A"),
            (detections["inserted"], "only in B"),
        )
        return "; ".join([*parts, *(f"{count} {what}" for count, what in wrong if count)])

    def tables(self) -> list[Table]:
        """For people: by chunk, by event, the kinds of both sides; a row for each action and one of all together."""
        frames, events, kinds = (self.document[name] for name in ("frames", "events", "kinds"))
        total = {"truth": None, "detections": None, "both": None, **frames["together"]}
        by_chunk = {**frames["per_class"], TOGETHER: total}
        by_event = {**events["per_class"], TOGETHER: events["together"]}
        by_kind = {**kinds["per_class"], TOGETHER: kinds["together"]}
        measures = ("observed", "expected", "kappa")
        sides = ("truth", "detections")
        return [
            Table(
                FRAMES,
                [ACTION, *map(Column, ("A", "B", "both")), *_digits(2, *measures)],
                [[label, *(one[name] for name in (*sides, "both", *measures))] for label, one in by_chunk.items()],
                total=True,
            ),
            Table(
                EVENTS,
                [
                    *(ACTION, Column("A"), Column("B")),
                    *(Column(f"IoU {least:g}") for least in IOUS),
                    *_digits(2, "F1 0.5", "mean IoU", "of time"),
                ],
                [[label, *_event_cells(one)] for label, one in by_event.items()],
                total=True,
            ),
            Table(
                OF_A,
                [ACTION, *map(Column, OF_LABELS.values()), *_digits(2, "start s", "end s")],
                [
                    [label, *(one["labels"][kind] for kind in OF_LABELS), *(one[edge]["median"] for edge in EDGES)]
                    for label, one in by_kind.items()
                ],
                total=True,
            ),
            Table(
                OF_B,
                [ACTION, *map(Column, OF_DETECTIONS.values())],
                [[label, *(one["detections"][kind] for kind in OF_DETECTIONS)] for label, one in by_kind.items()],
                total=True,
            ),
        ]

    def by_video(self) -> Table:
        """A row for each video."""
        columns = [Column("video", is_text=True), *_digits(2, "seconds", "kappa"), *map(Column, ("A", "B", "IoU 0.5"))]
        columns += _digits(2, "mean IoU")
        rows: list[list[Cell]] = [
            [name, one["seconds"], one["kappa"], one["truth"], one["detections"], one["pairs"], one["mean_iou"]]
            for name, one in self.document["per_video"].items()
        ]
        return Table(BY_VIDEO, columns, rows)

    def raw(self) -> Table:
        """For a spreadsheet: all columns of the tables in one row for each action."""
        prefixes = {FRAMES: "chunks ", EVENTS: "events ", OF_A: "A ", OF_B: "B "}
        tables = self.tables()
        columns = [ACTION, *(Column(prefixes[t.title] + column.name) for t in tables for column in t.columns[1:])]
        rows = zip(*(table.rows for table in tables), strict=True)
        return Table("", columns, [[row[0][0], *(cell for part in row for cell in part[1:])] for row in rows])


Event = Notice | Progress | Finished[Agreement]


def compare_labels(options: CompareOptions) -> Iterator[Event]:
    """Read two sets of labels and compare them on the videos that both have.

    Raises LabelsError where they have no video or no action in common, MissingPathError and OutputError.
    """
    if options.output:
        check_writable(Path(options.output))
    files = files_of(options.videos)
    first = read_events(options.labels, files)
    second = read_events(options.others, {**dict.fromkeys(first.videos), **files})
    yield from map(Notice, notes_of([(options.labels, first), (options.others, second)]))
    sets = _renamed([first, second], options)
    shared, left = _shared(sets, options)
    yield from map(Notice, [*left, *_of_classes(sets)])
    if any(map(subjects_in, shared)):
        yield Notice(WHO)
    watched = watched_of(shared, files)
    for text in (told(watched, len(shared[0].videos)), past_the_end(shared, watched)):
        if text:
            yield Notice(text)
    document = describe(options, shared, watched)
    agreement = Agreement(document)
    if options.output:
        agreement = Agreement(document, (yield from _write(Path(options.output), agreement, shared, watched)))
    yield Finished(agreement)


def describe(options: CompareOptions, sets: Sequence[Labels], watched: Mapping[str, Watched]) -> dict[str, Any]:
    """The agreement in JSON's types; `truth` and `labels` are of A, `detections` of B."""
    actions = actions_in(sets)
    videos = {name: _events_of(sets, name, one.seconds) for name, one in watched.items()}
    every = list(videos.values())
    return {
        "A": options.labels,
        "B": options.others,
        "videos": len(videos),
        "observed_seconds": sum(one.seconds for one in every),
        "lengths": origins(watched),
        "classes": list(actions),
        "edge_seconds": EDGE,
        "frames": frame_agreement(every, actions),
        "events": event_agreement(every, actions),
        "kinds": measure_errors(list(map(without_ambiguous, every)), actions),
        "per_video": {name: _of_video(video, actions) for name, video in videos.items()},
    }


def _of_video(video: VideoEvents, actions: Sequence[str]) -> dict[str, Any]:
    events, frames = event_agreement([video], actions)["together"], frame_agreement([video], actions)
    kinds = measure_errors([without_ambiguous(video)], actions)["together"]
    return {
        "seconds": video.seconds,
        "chunks": frames["chunks"],
        **frames["together"],
        **{name: events[name] for name in ("truth", "detections", "mean_iou")},
        "pairs": events["matched"]["0.5"]["pairs"],
        "labels_by_kind": kinds["labels"],
        "detections_by_kind": kinds["detections"],
    }


def _events_of(sets: Sequence[Labels], name: str, seconds: float) -> VideoEvents:
    truth, detections = (within(labels.videos[name].segments, seconds) for labels in sets)
    return VideoEvents(truth, detections, seconds)


def _renamed(sets: Sequence[Labels], options: CompareOptions) -> list[Labels]:
    known = {name for labels in sets for name in labels.classes}
    if missing := [name for name in options.rename if name not in known]:
        raise LabelsError(
            f"Neither {options.labels} nor {options.others} has a class {missing[0]!r}.",
            f"the classes are: {', '.join(sorted(known))}.",
        )
    return [renamed(labels, options.rename) for labels in sets]


def _shared(sets: Sequence[Labels], options: CompareOptions) -> tuple[list[Labels], list[str]]:
    """Both with the videos that both have, in the order of the first; and a sentence for each that has more."""
    first, second = sets
    names = [name for name in first.videos if name in second.videos]
    if not names:
        raise LabelsError(
            f"{options.labels} and {options.others} have no video in common: the first of one is "
            f"{min(first.videos)!r}, of the other {min(second.videos)!r}.",
            "name each video alike in both: its path in the folder, without the ending.",
        )
    sides = ((options.labels, options.others, first), (options.others, options.labels, second))
    left = [
        f"left out, for {there} does not have {'it' if len(more) == 1 else 'them'}: {few(more)} of {here}"
        for here, there, labels in sides
        if (more := sorted(set(labels.videos) - set(names)))
    ]
    return [replace(labels, videos={name: labels.videos[name] for name in names}) for labels in sets], left


def _of_classes(sets: Sequence[Labels]) -> Iterator[str]:
    """A sentence where an action is in one of both alone. Raises LabelsError where they share none."""
    actions = actions_in(sets)
    used = [{s.label for video in labels.videos.values() for s in video.segments} & {*actions} for labels in sets]
    alone = [sorted(one - other) for one, other in (used, used[::-1])]
    if not any(alone):
        return
    hint = _rename_hint(*alone)
    if all(used) and not used[0] & used[1]:
        raise LabelsError(
            f"No action is in both: the first has {few(alone[0])}, the second {few(alone[1])}.",
            f"name them alike: {hint}.",
        )
    told_of = [f"only in {side}: {few(names)}" for side, names in zip("AB", alone, strict=True) if names]
    yield "; ".join(told_of) + (f"; if two names mean one action: {hint}" if all(alone) else "")


def _rename_hint(first: Sequence[str], second: Sequence[str]) -> str:
    """Settings that give actions of the second the names that they may have in the first, at least of one."""
    if not (first and second):
        return ""
    plain = {name.casefold(): name for name in first}
    pairs = [(name, plain[found[0]]) for name in second if (found := get_close_matches(name.casefold(), plain, 1))]
    pairs = pairs or [(second[0], first[0])]
    return " ".join(f"--set class.rename={shlex.quote(f'{old}={new}')}" for old, new in pairs)


def _write(
    folder: Path, agreement: Agreement, sets: Sequence[Labels], watched: Mapping[str, Watched]
) -> Generator[Progress | Notice, None, Path]:
    lanes = {
        name: dict(zip("AB", (within(labels.videos[name].segments, one.seconds) for labels in sets), strict=True))
        for name, one in watched.items()
    }
    lengths, document = {name: one.seconds for name, one in watched.items()}, agreement.document
    drawings = yield from draw_all(folder, lanes, lengths, document["classes"], "Above: A; below, pale: B.")
    tables = agreement.tables()
    text = f"A: {document['A']}, B: {document['B']}. {agreement.sentence[:1].upper()}{agreement.sentence[1:]}"
    report = Report("Agreement of two label files", text, tables, [agreement.by_video()], drawings, NOTES)
    raw = {"agreement": agreement.raw(), "by-video": agreement.by_video()}
    return write_report(folder, "agreement", report, document, raw)


def _digits(digits: int, *names: str) -> list[Column]:
    return [Column(name, digits) for name in names]


def _event_cells(one: Mapping[str, Any]) -> list[Cell]:
    pairs = [one["matched"][str(least)]["pairs"] for least in IOUS]
    return [
        one["truth"],
        one["detections"],
        *pairs,
        one["matched"]["0.5"]["f1"],
        one["mean_iou"],
        one["seconds"]["iou"],
    ]
