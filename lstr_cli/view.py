"""What a person sees while `lstr detect` runs: on a terminal a view that is drawn again and again, elsewhere lines.

One block per source: how far it is, a bar for each likely action, and speed; below them the latest events. Where the
terminal is too low for that, each source gets one line.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.detection.decision import Decision, End, Opened, Sink, Status
from lstr.timeline import Event
from lstr_cli import console

MOST_ACTIONS, MOST_EVENTS, FEWEST_EVENTS = 5, 6, 2
REFRESHES = 5  # of the view, a second
NARROW = 50  # columns; on a terminal of fewer there are lines instead of a view
RATE_SECONDS = 10.0  # over which speeds are taken
MOST_MS = 10_000  # from which a latency is shown in seconds
LINKS = {"connecting": "connecting", "stalled": "sends nothing", "lost": "connection lost", "ended": "ended"}


@dataclass
class Watched:
    """A source in the view: its status, the latest decision, the active actions with their starts."""

    status: Status
    classes: tuple[str, ...]
    newest: Decision | None = None
    on: dict[str, float] = field(default_factory=dict)
    n_actions: int = 0
    refresh: Callable[[], object] | None = None
    """Brings the status of a live source up to date, also while nothing is decided."""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    _counts: deque[tuple[float, int]] = field(default_factory=deque)

    def push(self, decision: Decision) -> None:
        """Take the latest decision."""
        self.newest = decision
        self.tell(decision.events)

    def tell(self, events: Sequence[Event]) -> None:
        """Take events."""
        for event in events:
            self.events.append(event)
            if event.event == "started":
                self.on[event.label] = event.start
                self.n_actions += 1
            elif event.event == "ended":
                self.on.pop(event.label, None)

    def rate(self, now: float) -> float:
        """Decisions a second over the last seconds, until `now`."""
        self._counts.append((now, self.status.decided))
        while len(self._counts) > 2 and now - self._counts[0][0] > RATE_SECONDS:
            self._counts.popleft()
        then, decided = self._counts[0]
        return (self.status.decided - decided) / (now - then) if now > then else 0.0

    def actions(self) -> list[tuple[str, float]]:
        """Actions with their scores now, in the order of the classes: those that are on, then the likeliest."""
        if self.newest is None:
            return []
        scores = dict(zip(self.classes, map(float, self.newest.scores), strict=True))
        names = [label for label in self.classes if label not in (BACKGROUND, AMBIGUOUS)]
        chosen = sorted(names, key=lambda label: (label not in self.on, -scores[label]))[:MOST_ACTIONS]
        return [(label, scores[label]) for label in names if label in chosen]


class View:
    """The sources that run now, in the order in which they began, on standard error from its `start` on.

    Without a terminal, with one that is dumb or narrow, and where standard output fills the same terminal
    (`beside_results`), it prints plain lines instead: one every ten seconds, and one per event where a person may read
    it. A context manager; after a Ctrl-C it leaves the view as it was last, and prints what came of each source.
    """

    def __init__(self, beside_results: bool = False, clock: Callable[[], float] = monotonic):
        self._clock = clock
        self._watched: list[Watched] = []
        self._printed = clock()
        self._console = err = console.standard_error()
        self._events = err.is_terminal and not beside_results
        self._live = None
        if self._events and not err.is_dumb_terminal and err.width >= NARROW:
            # what is written to standard output is the result, so that it is never drawn
            self._live = Live(
                console=err,
                get_renderable=self.draw,
                refresh_per_second=REFRESHES,
                redirect_stdout=False,
                vertical_overflow="crop",
            )

    def start(self) -> None:
        """Draw from now on, where it has not begun."""
        if self._live and not self._live.is_started:
            self._live.start()

    def add(self, status: Status, classes: Sequence[str], refresh: Callable[[], object] | None = None) -> Watched:
        """Show a source from now on; `refresh` is called before it is drawn, to bring its status up to date."""
        one = Watched(status, tuple(classes), refresh=refresh)
        one.rate(self._clock())
        self._watched.append(one)
        return one

    def leave(self, one: Watched) -> None:
        """Show a source no more."""
        self._watched = [other for other in self._watched if other is not one]

    def update(self, one: Watched) -> None:
        """Print the lines of a new decision on a source, where nothing is drawn."""
        if self._live:
            return
        for event in one.newest.events if self._events and one.newest else ():
            console.say(f"{clock(event.time):>9}  {clean(one.status.name)}  {event_text(event)}")
        now = self._clock()
        if now - self._printed >= console.PLAIN_SECONDS:
            self._printed = now
            console.say(status_text(one, now))

    def draw(self) -> Group:
        """What the terminal shows now; Live cuts what is below its last line."""
        watched, now, height = list(self._watched), self._clock(), self._console.height
        for one in watched:
            if one.refresh:
                one.refresh()
        sizes = [2 + len(one.actions()) for one in watched]
        has_blocks = sum(sizes) + FEWEST_EVENTS < height
        shown: list[RenderableType] = []
        for one in watched:
            shown += _block(one, now) if has_blocks else [_line(status_text(one, now))]
        room = height - 1 - (sum(sizes) if has_blocks else len(watched))
        found = sorted(((event, one) for one in watched for event in list(one.events)), key=lambda pair: pair[0].time)
        for event, one in found[::-1][: max(0, min(room, MOST_EVENTS))]:
            name = f"{clean(one.status.name)}  " if len(watched) > 1 else ""
            shown.append(_line(f"{clock(event.time):>9}  {name}{event_text(event)}"))
        return Group(*shown)

    def __enter__(self) -> "View":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._live:
            self._live.stop()
        if kind is KeyboardInterrupt:
            for one in self._watched:
                console.say(summary_of(one))


class Progress(Sink):
    """A source in the view.

    A recorded source leaves the view when it is over or fails; after a Ctrl-C it stays as it was last, as a live one.
    """

    name = "the view"

    def __init__(self, view: View):
        self._view = view

    def open(self, source: Opened) -> None:
        self._one = self._view.add(source.status, source.classes, source.refresh)

    def take(self, decision: Decision) -> None:
        self._one.push(decision)
        self._view.update(self._one)

    def close(self, end: End) -> None:
        self._one.tell(end.events)
        if not self._one.refresh and not isinstance(end.error, KeyboardInterrupt):
            self._view.leave(self._one)


def _line(*parts: str | tuple[str, str]) -> Text:
    """A line that is cut where the terminal ends."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _block(one: Watched, now: float) -> list[RenderableType]:
    """A source with its actions."""
    status = one.status
    at = clock(status.time)
    if status.total:
        at += f" of {clock(status.total * status.chunk_seconds)} {status.decided / status.total:4.0%}"
    state = LINKS.get(status.link, "")
    bars = Table.grid(
        Column(width=2),
        Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        Column(ratio=2),
        Column(width=5, justify="right"),
        Column(width=9, justify="right"),
        expand=True,
    )
    for label, score in one.actions():
        start, full = one.on.get(label), score if score == score else 0.0  # NaN is nothing
        mark, since, colour = (" *", f"{status.time - start:.1f} s", "green") if start is not None else ("", "", "cyan")
        bar = ProgressBar(1.0, full, style="dim", complete_style=colour)
        bars.add_row(mark, Text(clean(label)), bar, f"{score:.2f}", since)
    head = _line((clean(status.name), "bold"), f"  {at}", (f"  {state}" if state else "", "bold yellow"))
    return [head, bars, _line(("  " + ", ".join(_speed(one, now)), "bold yellow" if status.dropped else ""))]


def _speed(one: Watched, now: float) -> list[str]:
    """How fast a source is decided, and what is missing of it, in words."""
    status = one.status
    words = [f"{one.rate(now):.1f} decisions a second"]
    counts = (
        ("dropped", status.dropped),
        ("waiting", status.waiting),
        ("gaps", status.gaps),
        ("reconnected", status.reconnects),
        ("damaged", status.decode_errors),
    )
    words += [f"{text} {count}" for text, count in counts if count]
    found = status.latency_ms(50, 95)
    return [*words, "latency " + latency_text(*found)] if found else words


def event_text(event: Event) -> str:
    """An event in words."""
    label = clean(event.label)
    if event.end is not None:
        what = "still on at the end" if event.still_on else "ended"
        return f"{label} {what}, {clock(event.start)} to {clock(event.end)}, {event.score:.2f}"
    if event.event == "lapsed":
        return f"{label} no longer expected for {clock(event.start)}"
    when = f" for {clock(event.start)}" if event.event == "expected" else ""
    return f"{label} {event.event}{when}, {event.score:.2f}"


def status_text(one: Watched, now: float) -> str:
    """A source in one line; what matters most comes first, for the rest may be cut."""
    status = one.status
    words = [LINKS[status.link]] if status.link in LINKS else []
    if one.newest:
        words.append(f"{clean(one.newest.label)} {one.newest.score:.2f}")
    words.append(f"{status.decided} of {status.total} chunks" if status.total else f"{status.decided} chunks")
    words += _speed(one, now)
    return f"{clean(status.name)}: {', '.join(words)}"


def speed_text(timeline: dict, name: str = "") -> str:
    """How fast a source that is over was decided, what that cost, and of a live one its lag, in one line."""
    speed, live = timeline["speed"], timeline.get("live")
    words = [f"{speed['decisions_per_second']} decisions a second"]
    if live:  # how near it is to real time says how long the source was away, not how fast the machine is
        words += ["latency " + latency_text(**speed["latency_ms"]), f"dropped {live['dropped']}"]
        if unseen := live.get("unseen"):
            words.append(f"{unseen * CHUNK_SECONDS:g} s that it never sent")
    else:
        words.append(f"{speed['realtime_factor']} × real time")
    words.append(f"{speed['processor_seconds_per_video_second']} processor seconds for a second of video")
    return f"{clean(name)}: {', '.join(words)}" if name else ", ".join(words)


def latency_text(p50: float, p95: float) -> str:
    """Two latencies, from milliseconds."""
    if p95 >= MOST_MS:
        return f"p50 {p50 / 1000:.1f}, p95 {p95 / 1000:.1f} s"
    return f"p50 {p50:.0f}, p95 {p95:.0f} ms"


def summary_of(one: Watched) -> str:
    """What came of a source."""
    status = one.status
    words = [f"{clock(status.time)} watched", f"{status.decided} decisions", f"actions: {one.n_actions}"]
    words += [f"dropped {status.dropped}"] * bool(status.dropped) + [f"gaps {status.gaps}"] * bool(status.gaps)
    return f"{clean(status.name)}: {', '.join(words)}"


def clock(seconds: float) -> str:
    """Seconds as m:ss.ss, of an hour and more as h:mm:ss."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02}"
    return f"{int(seconds // 60)}:{seconds % 60:05.2f}"


def clean(text: str) -> str:
    """Text that cannot steer a terminal: what is not printable is a question mark in a box."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
