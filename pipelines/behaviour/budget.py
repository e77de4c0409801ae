"""The time budget of labels: how often and how long each action happens, in all, by video and in bins of time."""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError
from lstr.labels.label_set import Labels
from lstr.metrics.actions import labelled_spans, length_text
from lstr.metrics.budget import of_states, time_budget, transitions
from lstr.pipelines.behaviour.ethogram import draw_all
from lstr.pipelines.behaviour.observed import (
    Watched,
    actions_in,
    files_of,
    origins,
    past_the_end,
    read_all,
    told,
    watched_of,
    within,
)
from lstr.pipelines.behaviour.page import Report, write_report
from lstr.pipelines.files.atomic import check_writable
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.reports.table import Cell, Column, Table

MOST_BINS = 10_000
ALL = "all"
"""In the place of a video's id, what is of all of them"""
PAUSE = "pause"
"""The state in which no action is on"""
ACTION = Column("action", is_text=True)
FIGURES = {
    "count": Column("events"),
    "seconds": Column("total s", 2),
    "share": Column("share", 3),
    "mean": Column("mean s", 2),
    "median": Column("median s", 2),
    "latency": Column("latency s", 2),
    "per_minute": Column("a minute", 2),
}
"""What is told of an action, by its name in the JSON"""
ABOUT = (
    "Total: seconds of all events; share: the part of the time watched in which the action is on. Mean and median: "
    "seconds of an event. Latency: from the start of a video to the first event, the median of the videos that have "
    "one. A minute: events that begin, a minute watched."
)
ABOUT_BINS = (
    "An event counts in the bin in which it begins; its seconds count in each bin as far as they lie in it. Latency is "
    "from the start of the bin."
)
ABOUT_TRANSITIONS = (
    "How often the action of a row is followed by that of a column, and as a share of what follows it. The next action "
    "is the one that begins next."
)


@dataclass(frozen=True)
class BudgetOptions:
    """What a time budget is made of, and where it is written."""

    labels: Sequence[str]
    """Label files, or folders that `lstr detect` wrote"""
    videos: Sequence[str] = ()
    """Files or folders of videos, for lengths that the labels do not state"""
    bin: float | None = None
    """Seconds of a bin of time; None: no bins"""
    output: str | Path | None = None
    """Folder for report.html, JSON, CSV and the ethograms"""

    def __post_init__(self) -> None:
        if self.bin is not None and not 0 < self.bin < math.inf:
            raise ConfigError(f"A bin of {self.bin:g} s is none.", "give a length such as [[bin=60s]].")


@dataclass(frozen=True)
class Budget:
    """A time budget."""

    document: dict[str, Any]
    """What `lstr labels budget --json` prints"""
    page: Path | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence for people."""
        document = self.document
        rows = [row for row in document["together"] if row["count"]]
        events, length = sum(row["count"] for row in rows), length_text(document["observed_seconds"] / 3600)
        most = max(rows, key=lambda row: row["share"] or 0, default=None)
        longest = f"; longest: {most['action']}, {100 * most['share']:.0f} % of the time" if most else ""
        return f"{_counted(events, 'event')} in {_counted(document['videos'], 'video')}, {length} watched{longest}"

    def tables(self) -> list[Table]:
        """For people: all together, each bin, each video, and what follows what."""
        document = self.document
        shown = [_table("time budget", {"action": ACTION, "videos": Column("videos")}, document["together"])]
        if document["bins"]:
            leading = {"action": ACTION, "start": Column("from s", 0), "end": Column("to s", 0)}
            shown.append(_table("in bins of time", leading, document["bins"]))
        rows = [{"video": name, **row} for name, one in document["per_video"].items() for row in one["actions"]]
        leading = {"video": Column("video", is_text=True), "action": ACTION}
        shown.append(_table("by video", leading, [row for row in rows if row["seconds"] or row["count"]]))
        return [*shown, *self.transitions()]

    def transitions(self) -> list[Table]:
        """What follows what: counts and shares, without pauses and with them."""
        return [
            table
            for name, title in (("transitions", "what follows what"), ("transitions_with_pauses", "with pauses"))
            for table in _matrices(title, self.document[name])
        ]

    def raw(self) -> Table:
        """For a spreadsheet: a row for each action, of all videos (`all`) and of each, whole and in each bin."""
        columns = [Column("video", is_text=True), Column("start_s"), Column("end_s"), ACTION]
        columns += [Column("observed_s"), Column("videos"), *(Column(name) for name in FIGURES)]
        rows: list[list[Cell]] = []
        for video, row in _every(self.document):
            figures = [row["observed"], row["videos"], *(row[name] for name in FIGURES)]
            rows.append([video, row.get("start"), row.get("end"), row["action"], *figures])
        return Table("", columns, rows)


Event = Notice | Progress | Finished[Budget]


def make_budget(options: BudgetOptions) -> Iterator[Event]:
    """Read labels and tell where the time goes. Raises LabelsError, MissingPathError, ConfigError and OutputError."""
    if options.output:
        check_writable(Path(options.output))
    files = files_of(options.videos)
    labels = read_all(options.labels, files)
    watched = watched_of([labels], files)
    for text in (told(watched, len(labels.videos)), past_the_end([labels], watched)):
        if text:
            yield Notice(text)
    document = describe(options.labels, labels, watched, options.bin)
    budget = Budget(document)
    if options.output:
        budget = Budget(document, (yield from _write(Path(options.output), budget, labels, watched)))
    yield Finished(budget)


def describe(
    sources: Sequence[str], labels: Labels, watched: Mapping[str, Watched], bin_seconds: float | None
) -> dict[str, Any]:
    """The budget in JSON's types; each row of an action is one object, so that it can be of a subject too."""
    actions = actions_in([labels])
    lengths = {name: one.seconds for name, one in watched.items()}
    spans = {
        action: {name: labelled_spans(labels.videos[name].segments, action, end) for name, end in lengths.items()}
        for action in actions
    }

    def rows(names: Sequence[str], start: float = 0.0, end: float = math.inf) -> list[dict[str, Any]]:
        seconds = [lengths[name] for name in names]
        return [
            {"action": action, **time_budget([of_video[name] for name in names], seconds, start, end)}
            for action, of_video in spans.items()
        ]

    def bins(names: Sequence[str]) -> list[dict[str, Any]]:
        edges = _edges(max((lengths[name] for name in names), default=0.0), bin_seconds)
        return [{"start": start, "end": end, **row} for start, end in edges for row in rows(names, start, end)]

    told_of = [within(labels.videos[name].segments, end) for name, end in lengths.items()]
    every = list(lengths)
    return {
        "labels": list(map(str, sources)),
        "videos": len(lengths),
        "observed_seconds": sum(lengths.values()),
        "lengths": origins(watched),
        "bin_seconds": bin_seconds,
        "together": rows(every),
        "bins": bins(every),
        "per_video": {
            name: {
                "seconds": one.seconds,
                "length": one.origin,
                "actions": rows([name]),
                "bins": bins([name]),
            }
            for name, one in watched.items()
        },
        "transitions": of_states(actions, transitions(told_of, actions)),
        "transitions_with_pauses": of_states((*actions, PAUSE), transitions(told_of, actions, pauses=True)),
    }


def _table(title: str, leading: Mapping[str, Column], rows: Sequence[Mapping[str, Any]]) -> Table:
    """What leads each row, and the figures of it."""
    names = [*leading, *FIGURES]
    return Table(title, [*leading.values(), *FIGURES.values()], [[row[name] for name in names] for row in rows])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _edges(longest: float, bin_seconds: float | None) -> list[tuple[float, float]]:
    """Start and end of each bin. Raises ConfigError where they are too many."""
    if bin_seconds is None:
        return []
    n_bins = math.ceil(longest / bin_seconds - 1e-9)
    if n_bins > MOST_BINS:
        raise ConfigError(
            f"{bin_seconds:g} s make {n_bins} bins of {longest:g} s.", "give longer ones, such as [[bin=60s]]."
        )
    return [(k * bin_seconds, (k + 1) * bin_seconds) for k in range(n_bins)]


def _write(
    folder: Path, budget: Budget, labels: Labels, watched: Mapping[str, Watched]
) -> Generator[Progress | Notice, None, Path]:
    lanes = {name: {"": within(labels.videos[name].segments, one.seconds)} for name, one in watched.items()}
    lengths = {name: one.seconds for name, one in watched.items()}
    drawings = yield from draw_all(folder, lanes, lengths, actions_in([labels]))
    together, *others = budget.tables()
    notes = {"time budget": ABOUT, "in bins of time": ABOUT_BINS, "what follows what": ABOUT_TRANSITIONS}
    report = Report("Time budget", budget.sentence, [together], others, drawings, notes)
    raw = {"budget": budget.raw()} | {_file(table): table for table in budget.transitions()}
    return write_report(folder, "budget", report, budget.document, raw)


def _file(table: Table) -> str:
    return table.title.replace(" ", "-").replace(",", "")


def _every(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in (*document["together"], *document["bins"]):
        yield ALL, row
    for name, one in document["per_video"].items():
        for row in (*one["actions"], *one["bins"]):
            yield name, row


def _matrices(title: str, told_of: Mapping[str, Any]) -> Iterator[Table]:
    states = told_of["states"]
    for name, digits, more in (("counts", None, ""), ("probabilities", 2, ", shares")):
        columns = [Column("", is_text=True), *(Column(state, digits) for state in states)]
        rows = [[state, *row] for state, row in zip(states, told_of[name], strict=True)]
        yield Table(f"{title}{more}", columns, rows)
