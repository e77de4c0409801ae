"""Output for people: progress and warnings on standard error, tables on standard output."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import groupby
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table
from rich.text import Text

from lstr.files.names import displayed, without_credentials
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice
from lstr.pipelines.progress import Progress as Done

PLAIN_SECONDS = 10.0  # between two progress lines if standard error is not a terminal
EXAMPLES = 2  # named per kind of finding in a table
PARTIAL_FAILURE = 3  # exit status of a command that finished without some of its inputs

# Results go to standard output alone, so that a pipe gets nothing else. Rich neither colours numbers and paths
# (highlight) nor breaks lines at the width of the terminal (soft_wrap), which would break commands to copy.
err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


def say(text: str) -> None:
    """Print a line on standard error."""
    err.print(displayed(text), markup=False, soft_wrap=True)


def say_waiting(text: str) -> None:
    """Print a line for a person who waits; nothing if standard error is not a terminal."""
    if err.is_terminal:
        say(text)


def say_next(*words: object) -> None:
    """Print the next command to type, ready for a shell."""
    say(f"next: {shlex.join(map(str, words))}")


def warn(text: str) -> None:
    """Print a yellow line on standard error."""
    err.print(displayed(f"warning: {text}"), style="yellow", markup=False, soft_wrap=True)


def show(text: str) -> None:
    """Print a line of the result on standard output."""
    out.print(_fit_for(out, text), markup=False, soft_wrap=True)


def _fit_for(console: Console, text: str) -> str:
    return displayed(text) if console.is_terminal else without_credentials(text)


def size(n: float) -> str:
    """Return a number of bytes for people: 1.5 GB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if n < 1000 or unit == "TB":
            break
        n /= 1000
    return f"{n:.0f} {unit}" if n >= 100 or unit == "bytes" else f"{n:.1f} {unit}"


def show_json(value: object) -> None:
    """Print the result as one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def show_markdown(text: str) -> None:
    """Print a page of the result on standard output: rendered in a terminal, as it is when piped."""
    if not out.is_terminal:
        sys.stdout.write(without_credentials(text))
        return
    from rich.markdown import Markdown  # which few commands need

    out.print(Markdown(displayed(text)))


def show_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence], right: Sequence[int] = (), is_result: bool = True
) -> None:
    """Print a table on standard output, tab-separated when piped.

    `right` are the columns of numbers. A table that is not the result goes to standard error.
    """
    console, plain = (out, sys.stdout) if is_result else (err, sys.stderr)
    shown = [["yes" if v is True else "no" if v is False else "" if v is None else str(v) for v in row] for row in rows]
    title, rows = _fit_for(console, title), [[_fit_for(console, cell) for cell in row] for row in shown]
    if not console.is_terminal:
        for row in ([title], columns, *rows):
            plain.write("\t".join(row) + "\n")
        return
    console.print(title, markup=False, soft_wrap=True)
    table = Table()
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in right else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def clock(seconds: float) -> str:
    """Return seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class Bar:
    """Progress with remaining time; without a terminal a plain line every ten seconds.

    A context manager that removes the bar at the end.
    """

    def __init__(self, unit: str):
        self.unit = unit
        self._rich = None
        self._tasks: dict[str, TaskID] = {}
        self._printed = monotonic()
        self._starts: dict[str, tuple[float, int]] = {}
        if err.is_terminal:
            self._rich = Progress(
                TextColumn("{task.description}"),
                BarColumn(12),
                MofNCompleteColumn(),
                TextColumn(unit),
                TextColumn("{task.fields[left]}", style="progress.remaining"),
                # what is left of a narrow terminal, so that the columns before it are never cut
                TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
                console=err,
                expand=True,
            )

    def update(self, what: str, done: int, total: int, note: str = "", left: float | None = None) -> None:
        """Show that `done` of `total` units of `what` are finished; `left` is the remaining time, if known."""
        now = monotonic()
        start, before = self._starts.setdefault(what, (now, done))
        estimate = (now - start) / (done - before) * (total - done) if left is None and done > before else left
        remaining = "" if estimate is None else f"{clock(estimate)} left"
        if self._rich:
            if what not in self._tasks:
                self._tasks[what] = self._rich.add_task(what, total=total, note=note, left=remaining)
            self._rich.update(self._tasks[what], completed=done, total=total, note=note, left=remaining)
        elif now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            words = " ".join(filter(None, (f"{what}: {done}/{total}", self.unit)))
            parts = (words, f"{remaining} {note}") if left is not None else (f"{words} {note}".rstrip(), remaining)
            say(", ".join(filter(None, parts)).rstrip())
        if done >= total:
            self.drop(what)

    def drop(self, what: str) -> None:
        """Stop showing `what`, finished or not."""
        self._starts.pop(what, None)
        if self._rich and what in self._tasks:
            self._rich.remove_task(self._tasks.pop(what))

    def __enter__(self) -> "Bar":
        if self._rich:
            self._rich.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for what in list(self._tasks):
            self.drop(what)
        if self._rich:
            self._rich.stop()


class JobBar(Bar):
    """Progress of a job over many files: of each current file, and above them of all files with their speed.

    `planned` has the units of each file; `speed` puts units per second into words. Call `update` for a current file,
    and `finish` for each one that ends: it counts as planned, finished or not.
    """

    def __init__(self, unit: str, planned: Mapping[str, int], speed: Callable[[float], str]):
        super().__init__(unit)
        self._planned, self._speed = planned, speed
        self._total = sum(planned.values())
        self._n_finished = 0
        self._current: dict[str, tuple[int, int]] = {}
        self._start = monotonic()

    def update(self, what: str, done: int, total: int, note: str = "", left: float | None = None) -> None:
        """Show that `done` of `total` units of `what` are finished."""
        start, before = self._starts.setdefault(what, (monotonic(), done))
        self._current[what] = (done, total)
        self._show_all()
        if self._rich:
            rate = (done - before) / max(monotonic() - start, 1e-3)
            super().update(what, done, total, note or self._speed(rate), left)

    def finish(self, what: str) -> None:
        """Count a file that has ended."""
        self._n_finished += self._planned.get(what, 0)
        self._current.pop(what, None)
        self.drop(what)
        self._show_all()

    def _show_all(self) -> None:
        done = min(self._n_finished + sum(done for done, _ in self._current.values()), self._total)
        rate = done / max(monotonic() - self._start, 1e-3)
        names = "" if self._rich else "; ".join(f"{what} {n}/{total}" for what, (n, total) in self._current.items())
        super().update("all", done, max(self._total, 1), f"{self._speed(rate)}{names and ': '}{names}")


def follow(events: Iterator[Any], unit: str = "", show: Callable[[Any, Bar], Bar | None] | None = None) -> Any:
    """Run a job to its end and return its result: progress as a bar, notices as lines, findings in labels as a table.

    `show` is called with each other event and the bar; a bar that it returns replaces that one. Without it,
    failures of single inputs are printed.
    """
    result = None
    with closing(events), ExitStack() as shown:  # type: ignore[type-var]  # jobs are generators
        bar = shown.enter_context(Bar(unit))
        for event in events:
            match event:
                case Done(what, done, total):
                    bar.update(what, done, total)
                case Notice(text, warning):
                    (warn if warning else say)(text)
                case LabelFindings(source, findings):
                    columns, rows, numbers = findings_table(findings)
                    show_table(f"{source}:", columns, rows, numbers, is_result=False)
                case Finished(result):
                    pass
                case Failed() if show is None:
                    say(f"failed: {event.reason}\nhint: {event.hint}")
                case _:
                    if show and (another := show(event, bar)):
                        shown.close()
                        bar = shown.enter_context(another)
    return result


def findings_table(findings: Iterable[Any]) -> tuple:
    """Return columns, rows and number columns of a table with one row per kind of finding."""
    rows = []
    for (severity, kind), group in groupby(findings, key=lambda found: (found.severity, found.kind)):
        members = list(group)
        examples = "; ".join(found.sentence for found in members[:EXAMPLES])
        rows.append((severity, kind, len(members), examples + (" …" if len(members) > EXAMPLES else "")))
    return ("", "found", "count", "examples"), rows, (2,)
