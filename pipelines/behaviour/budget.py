"""The time budget of labels: how often and how long each action happens, in all, by video and in bins of time."""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError
from lstr.labels.label_set import Labels
from lstr.metrics.actions import Spans, covered, length_text
from lstr.metrics.budget import of_states, time_budget, unobserved
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
from lstr.pipelines.behaviour.subjects import (
    NOBODY,
    Group,
    followers,
    groups_by_subject,
    groups_of,
    rows_of,
    subjects_in,
    transitions_by_subject,
    transitions_of,
    with_names,
)
from lstr.pipelines.files.atomic import check_writable
from lstr.pipelines.progress import Finished, Notice, Progress
from lstr.pipelines.reports.palette import colours_of
from lstr.pipelines.reports.table import Cell, Column, Table

MOST_BINS = 10_000
ALL = "all"
"""In the place of a video's id or of a subject, what is of all of them"""
PAUSE = "pause"
"""The state in which no action is on"""
ACTION, SUBJECT = Column("action", is_text=True), Column("subject", is_text=True)
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
    "one. A minute: events that begin, a minute watched. What is labelled Ambiguous was not watched."
)
ABOUT_BINS = (
    "An event counts in the bin in which it begins; its seconds count in each bin as far as they lie in it. Latency is "
    "from the start of the bin."
)
ABOUT_TRANSITIONS = (
    "How often the action of a row is followed by that of a column, and as a share of what follows it. The next action "
    "is the one that begins next; where labels say who acts, of the same subject. Nothing follows across time that is "
    "labelled Ambiguous."
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
            raise ConfigError(f"A bin of {self.bin:g} s is none.", "give a length such as --bin 60.")


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
        shown += self._by_subject()
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

    def _by_subject(self) -> list[Table]:
        """Who does what, whole and in bins, and what follows what; nothing where no label says who."""
        document = self.document
        if not document["subjects"]:
            return []
        leading = {"action": ACTION, "subject": SUBJECT}
        shown = [_table("by subject", leading | {"videos": Column("videos")}, _told(document["together_by_subject"]))]
        if document["bins"]:
            edges = {"start": Column("from s", 0), "end": Column("to s", 0)}
            shown.append(_table("by subject in bins of time", leading | edges, _told(document["bins_by_subject"])))
        columns = [SUBJECT, ACTION, Column("next", is_text=True), Column("count"), Column("share", 2)]
        rows = list(followers(document["transitions_by_subject"]))
        return [*shown, Table("what follows what, by subject", columns, rows)]

    def raw(self) -> Table:
        """For a spreadsheet: a row for each action, of all videos (`all`) and of each, whole and in each bin.

        Where labels say who acts, a row for each subject of it too, after that of all of them.
        """
        has_subjects = bool(self.document["subjects"])
        columns = [Column("video", is_text=True), Column("start_s"), Column("end_s"), ACTION]
        columns += [SUBJECT] * has_subjects
        columns += [Column("observed_s"), Column("videos"), *(Column(name) for name in FIGURES)]
        rows: list[list[Cell]] = []
        for video, row in _every(self.document):
            figures = [row["observed"], row["videos"], *(row[name] for name in FIGURES)]
            who = [row.get("subject", ALL)] * has_subjects
            rows.append([video, row.get("start"), row.get("end"), row["action"], *who, *figures])
        return Table("", columns, rows)


Event = Notice | Progress | Finished[Budget]


def make_budget(options: BudgetOptions) -> Iterator[Event]:
    """Read labels and tell where the time goes. Raises LabelsError, MissingPathError, ConfigError and OutputError."""
    if options.output:
        check_writable(Path(options.output))
    files = files_of(options.videos)
    labels, notes = read_all(options.labels, files)
    yield from map(Notice, notes)
    watched = watched_of([labels], files)
    gaps = {name: unobserved(labels.videos[name].segments, one.seconds) for name, one in watched.items()}
    about = (told(watched, len(labels.videos)), past_the_end([labels], watched), _told_gaps(gaps))
    yield from map(Notice, filter(None, about))
    document = describe(options.labels, labels, watched, gaps, options.bin)
    budget = Budget(document)
    if options.output:
        budget = Budget(document, (yield from _write(Path(options.output), budget, labels, watched)))
    yield Finished(budget)


def describe(
    sources: Sequence[str],
    labels: Labels,
    watched: Mapping[str, Watched],
    gaps: Mapping[str, Spans],
    bin_seconds: float | None,
) -> dict[str, Any]:
    """The budget in JSON's types; each row is of an action, or of an action of one subject where labels say who.

    gaps: where nobody watched each video, as of `lstr.metrics.budget.unobserved`.
    """
    actions, subjects = actions_in([labels]), subjects_in(labels)
    lengths = {name: one.seconds for name, one in watched.items()}
    of_actions = groups_of(labels, actions, lengths)
    of_subjects = groups_by_subject(labels, actions, subjects, lengths)
    told_of = [within(labels.videos[name].segments, end) for name, end in lengths.items()]
    unknown = list(gaps.values())

    def both(names: Sequence[str], whole: str) -> dict[str, Any]:
        seconds = {name: lengths[name] for name in names}
        found: dict[str, Any] = {}
        for groups, of_whom in ((of_actions, ""), (of_subjects, "_by_subject")):
            found[f"{whole}{of_whom}"] = _rows(groups, seconds, gaps)
            found[f"bins{of_whom}"] = _bins(groups, seconds, gaps, bin_seconds)
        return found

    together = both(list(lengths), "together")
    return {
        "labels": list(map(str, sources)),
        "videos": len(lengths),
        "observed_seconds": together["together"][0]["observed"],
        "lengths": origins(watched),
        "subjects": subjects,
        "bin_seconds": bin_seconds,
        **together,
        "per_video": {
            name: {"seconds": one.seconds, "length": one.origin, **both([name], "actions")}
            for name, one in watched.items()
        },
        "transitions": of_states(actions, transitions_of(told_of, actions, subjects, unknown)),
        "transitions_with_pauses": of_states(
            (*actions, PAUSE), transitions_of(told_of, actions, subjects, unknown, pauses=True)
        ),
        "transitions_by_subject": transitions_by_subject(told_of, actions, subjects, unknown),
    }


def _told_gaps(gaps: Mapping[str, Spans]) -> str:
    """A sentence where a part of videos was not watched; else empty."""
    parts = [covered(spans) for spans in gaps.values() if len(spans)]
    if not parts:
        return ""
    some = f"{sum(parts):.1f} s of {len(parts)} of {_counted(len(gaps), 'video')}"
    return f"{some} are not labelled (Ambiguous), and do not count as watched"


def _rows(
    groups: Sequence[Group],
    lengths: Mapping[str, float],
    gaps: Mapping[str, Spans],
    start: float = 0.0,
    end: float = math.inf,
) -> list[dict[str, Any]]:
    """A row for each group, of videos of these lengths from `start` to `end` (s), without their gaps."""
    seconds, unknown = list(lengths.values()), [gaps[name] for name in lengths]
    return [
        {**one.leading, **time_budget([one.spans[name] for name in lengths], seconds, start, end, unknown)}
        for one in groups
    ]


def _bins(
    groups: Sequence[Group], lengths: Mapping[str, float], gaps: Mapping[str, Spans], bin_seconds: float | None
) -> list[dict[str, Any]]:
    edges = _edges(max(lengths.values(), default=0.0), bin_seconds)
    return [
        {"start": start, "end": end, **row} for start, end in edges for row in _rows(groups, lengths, gaps, start, end)
    ]


def _told(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of subjects as people read them."""
    return [{**row, "subject": row["subject"] or NOBODY} for row in rows]


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
            f"{bin_seconds:g} s make {n_bins} bins of {longest:g} s.", "give longer ones, such as --bin 60."
        )
    return [(k * bin_seconds, (k + 1) * bin_seconds) for k in range(n_bins)]


def _write(
    folder: Path, budget: Budget, labels: Labels, watched: Mapping[str, Watched]
) -> Generator[Progress | Notice, None, Path]:
    lengths = {name: one.seconds for name, one in watched.items()}
    rows, colours = list(actions_in([labels])), None
    if subjects := subjects_in(labels):
        groups = groups_by_subject(labels, rows, subjects, lengths)
        rows, colours = rows_of(groups, colours_of(rows))
    lanes = {name: {"": with_names(within(labels.videos[name].segments, one.seconds))} for name, one in watched.items()}
    drawings = yield from draw_all(folder, lanes, lengths, rows, colours=colours)
    together, *others = budget.tables()
    notes = {"time budget": ABOUT, "in bins of time": ABOUT_BINS, "what follows what": ABOUT_TRANSITIONS}
    report = Report("Time budget", budget.sentence, [together], others, drawings, notes)
    raw = {"budget": budget.raw()} | {_file(table): table for table in budget.transitions()}
    return write_report(folder, "budget", report, budget.document, raw)


def _file(table: Table) -> str:
    return table.title.replace(" ", "-").replace(",", "")


def _every(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in (row for name in ("together", "bins") for row in _with_subjects(document, name)):
        yield ALL, row
    for name, one in document["per_video"].items():
        for row in (row for part in ("actions", "bins") for row in _with_subjects(one, part)):
            yield name, row


def _with_subjects(found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [*found[name], *found[f"{name}_by_subject"]]


def _matrices(title: str, told_of: Mapping[str, Any]) -> Iterator[Table]:
    states = told_of["states"]
    for name, digits, more in (("counts", None, ""), ("probabilities", 2, ", shares")):
        columns = [Column("", is_text=True), *(Column(state, digits) for state in states)]
        rows = [[state, *row] for state, row in zip(states, told_of[name], strict=True)]
        yield Table(f"{title}{more}", columns, rows)
