"""The display of a running `lstr detect`: a view on a terminal that is drawn again and again, lines elsewhere.

One block per source: how far it is, a bar for each likely action, and its speed; below them the latest events. If the
terminal is too low for that, each source gets one line.
"""

from collections import deque
from collections.abc import Sequence
from time import monotonic

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.labels.label_set import actions_of
from lstr.pipelines.detection.decision import Decision, End, Opened, Sink
from lstr.timeline import Event
from lstr_cli import console

MAX_ACTIONS, MAX_EVENTS, MIN_EVENTS = 5, 6, 2
REFRESH_RATE = 5  # of the view, per second
MIN_WIDTH = 50  # columns; a narrower terminal gets lines
RATE_WINDOW_S, SHORTEST_S = 10.0, 1.0  # over which the speed is measured, at most and at least
LINKS = {"connecting": "connecting", "stalled": "sends nothing", "lost": "connection lost", "ended": "ended"}


class View:
    """The running sources in the order in which they started, on standard error from `start` on; a context manager.

    It prints plain lines without a terminal, on one that is dumb or narrow, and if standard output fills the same
    terminal (`beside_results`): one every ten seconds, and one per event if a person may read it. After Ctrl-C the
    view stays as it was last, and a summary of each source is printed.
    """

    def __init__(self, beside_results: bool = False):
        self.sources: list[Progress] = []
        self._printed = monotonic()
        self._console = error = console.err
        self._shows_events = error.is_terminal and not beside_results
        self._live = None
        if self._shows_events and not error.is_dumb_terminal and error.width >= MIN_WIDTH:
            # standard output is the result, which is never drawn
            self._live = Live(
                console=error,
                get_renderable=self.draw,
                refresh_per_second=REFRESH_RATE,
                redirect_stdout=False,
                vertical_overflow="crop",
            )

    def __enter__(self) -> "View":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._live:
            self._live.stop()
        for source in self.sources if kind is KeyboardInterrupt else ():
            console.say(source.summary())

    def start(self) -> None:
        if self._live and not self._live.is_started:
            self._live.start()

    def update(self, source: "Progress", decision: Decision) -> None:
        """Print the lines of a new decision if nothing is drawn."""
        if self._live:
            return
        for event in decision.events if self._shows_events else ():
            console.say(f"{clock(event.time):>9}  {clean(source.status.name)}  {event_text(event)}")
        now = monotonic()
        if now - self._printed >= console.PLAIN_SECONDS:
            self._printed = now
            console.say(source.line(now))

    def draw(self) -> Group:
        """Return what the terminal shows now; Live cuts what is below its last line."""
        sources, now, height = list(self.sources), monotonic(), self._console.height
        for source in sources:
            source.refresh()
        n_lines = sum(2 + len(source.actions()) for source in sources)
        has_blocks = n_lines + MIN_EVENTS < height
        shown: list[RenderableType] = []
        for source in sources:
            shown += source.block(now) if has_blocks else [_line(source.line(now))]
        room = max(0, min(MAX_EVENTS, height - 1 - (n_lines if has_blocks else len(sources))))
        latest = sorted(((event, one) for one in sources for event in list(one.events)), key=lambda pair: pair[0].time)
        for event, source in latest[::-1][:room]:
            name = f"{clean(source.status.name)}  " if len(sources) > 1 else ""
            shown.append(_line(f"{clock(event.time):>9}  {name}{event_text(event)}"))
        return Group(*shown)


class Progress(Sink):
    """A source in a view. A recorded one leaves it when it is over or fails; after Ctrl-C, and if live, it stays."""

    name = "the view"

    def __init__(self, view: View):
        self._view = view
        self._latest: Decision | None = None
        self._active: dict[str, float] = {}  # starts of the active actions
        self._n_actions = 0
        self._counts: deque[tuple[float, int]] = deque()
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def open(self, source: Opened) -> None:
        self.status, self._classes = source.status, source.classes
        self._is_live = source.refresh is not None
        # brings the status of a live source up to date, also while nothing is decided
        self.refresh = source.refresh or (lambda: None)
        self._rate(monotonic())
        self._view.sources.append(self)

    def take(self, decision: Decision) -> None:
        self._latest = decision
        self._add(decision.events)
        self._view.update(self, decision)

    def close(self, end: End) -> None:
        self._add(end.events)
        if not self._is_live and not isinstance(end.error, KeyboardInterrupt):
            self._view.sources = [source for source in self._view.sources if source is not self]

    def actions(self) -> list[tuple[str, float]]:
        """Return the actions to show and their scores, in the order of classes: active ones, then the likeliest."""
        if self._latest is None:
            return []
        scores = dict(zip(self._classes, map(float, self._latest.scores), strict=True))
        names = actions_of(self._classes)
        chosen = sorted(names, key=lambda label: (label not in self._active, -scores[label]))[:MAX_ACTIONS]
        return [(label, scores[label]) for label in names if label in chosen]

    def block(self, now: float) -> list[RenderableType]:
        """Return the source with its actions."""
        status, at = self.status, clock(self.status.time)
        if status.total:
            at += f" of {clock(status.total * status.chunk_seconds)} {status.decided / status.total:4.0%}"
        state = LINKS.get(status.link, "")
        name = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        numbers = Column(width=5, justify="right"), Column(width=9, justify="right")
        bars = Table.grid(Column(width=2), name, Column(ratio=2), *numbers, expand=True)
        for label, score in self.actions():
            start, full = self._active.get(label), score if score == score else 0.0  # an empty bar for NaN
            mark, since, colour = ("", "", "cyan") if start is None else (" *", f"{status.time - start:.1f} s", "green")
            bar = ProgressBar(1.0, full, style="dim", complete_style=colour)
            bars.add_row(mark, Text(clean(label)), bar, f"{score:.2f}", since)
        head = _line((clean(status.name), "bold"), f"  {at}", (f"  {state}" if state else "", "bold yellow"))
        return [head, bars, _line(("  " + ", ".join(self._speed(now)), "bold yellow" if status.dropped else ""))]

    def line(self, now: float) -> str:
        """Return the source in one line; the most important first, because the rest may be cut."""
        status = self.status
        words = [LINKS[status.link]] if status.link in LINKS else []
        if self._latest:
            words.append(f"{clean(self._latest.label)} {self._latest.score:.2f}")
        words.append(f"{status.decided} of {status.total} chunks" if status.total else f"chunks: {status.decided}")
        return f"{clean(status.name)}: {', '.join([*words, *self._speed(now)])}"

    def summary(self) -> str:
        """Return a summary of a source after Ctrl-C."""
        status = self.status
        words = [f"{clock(status.time)} watched", f"{status.decided} decisions", f"actions: {self._n_actions}"]
        words += [f"dropped {status.dropped}"] * bool(status.dropped) + [f"gaps {status.gaps}"] * bool(status.gaps)
        return f"{clean(status.name)}: {', '.join(words)}"

    def _add(self, events: Sequence[Event]) -> None:
        for event in events:
            self.events.append(event)
            if event.event == "started":
                self._active[event.label] = event.start
                self._n_actions += 1
            elif event.event == "ended":
                self._active.pop(event.label, None)

    def _rate(self, now: float) -> float | None:
        """Return the decisions per second over the last seconds; None in the first second."""
        self._counts.append((now, self.status.decided))
        # two are kept: a rate needs them, and a stalled source may add none for long
        while len(self._counts) > 2 and now - self._counts[0][0] > RATE_WINDOW_S:
            self._counts.popleft()
        then, decided = self._counts[0]
        # a source opens when its first decisions are reported, which may have waited for the files before it
        return (self.status.decided - decided) / (now - then) if now - then >= SHORTEST_S else None

    def _speed(self, now: float) -> list[str]:
        status = self.status
        words = [] if (rate := self._rate(now)) is None else [f"{rate:.1f} decisions a second"]
        counts = {"dropped": status.dropped, "waiting": status.waiting, "gaps": status.gaps}
        counts |= {"reconnected": status.reconnects, "damaged": status.decode_errors}
        words += [f"{text} {count}" for text, count in counts.items() if count]
        if latencies := status.latency_ms(50, 95):
            words.append("latency p50 {:.0f}, p95 {:.0f} ms".format(*latencies))
        return words


def _line(*parts: str | tuple[str, str]) -> Text:
    """Return a line that is cut at the end of the terminal."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def event_text(event: Event) -> str:
    """Return an event in words."""
    label = clean(event.label)
    if event.end is not None:
        what = "still active at the end" if event.still_active else "ended"
        return f"{label} {what}, {clock(event.start)} to {clock(event.end)}, {event.score:.2f}"
    if event.event == "lapsed":
        return f"{label} no longer expected for {clock(event.start)}"
    when = f" for {clock(event.start)}" if event.event == "expected" else ""
    return f"{label} {event.event}{when}, {event.score:.2f}"


def speed_text(timeline: dict) -> str:
    """Return the speed of a finished source, its processor time and the latency of a live one in one line."""
    speed, live = timeline["speed"], timeline.get("live")
    words = [f"{speed['decisions_per_second']} decisions a second"]
    if live:  # the share of real time would say how long the source was away, not how fast the machine is
        latency = "latency p50 {p50:.0f}, p95 {p95:.0f} ms".format(**speed["latency_ms"])
        words += [latency, f"dropped {live['dropped']}"]
        if unseen := live.get("unseen"):
            words.append(f"{unseen * CHUNK_SECONDS:g} s that it never sent")
    else:
        words.append(f"{speed['realtime_factor']} × real time")
    words.append(f"{speed['processor_seconds_per_video_second']} processor seconds per second of video")
    return ", ".join(words)


def clock(seconds: float) -> str:
    """Return seconds as m:ss.ss, from an hour on as h:mm:ss."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02}"
    return f"{int(seconds // 60)}:{seconds % 60:05.2f}"


def clean(text: str) -> str:
    """Return text that cannot control a terminal: what is not printable becomes a replacement character."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
