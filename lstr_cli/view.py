"""What a person sees while `lstr detect` runs, as lines of text with roles; `lstr_cli.console` gives them colours.

One block per source: how far it is, a bar for each action, the fill of both memories, and speed; under the blocks the
last events. It fits the terminal: fewer actions where it is low, one line per source where there are many.
"""

import unicodedata
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from time import monotonic

from lstr.extractors.video.frames import CHUNK, CHUNK_SECONDS
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.events import Opened
from lstr.pipelines.detection.sink import End, Sink
from lstr.pipelines.detection.status import Status
from lstr.timeline import Event

Line = list[tuple[str, str]]
"""Text and role (name, on, bar, quiet, alert or nothing), one after the other."""

MOST_ACTIONS, MOST_EVENTS = 5, 6
WIDE = 72  # columns from which there is room for more
RATE_SECONDS = 10.0  # over which speeds are taken
EIGHTHS = " ▏▎▍▌▋▊▉█"
MOST_MS = 10_000  # from which a latency is shown in seconds
GAP = "  "
LINKS = {"connecting": "connecting", "stalled": "sends nothing", "lost": "connection lost", "ended": "ended"}


@dataclass
class Watched:
    """A source in the view: its status, the newest decision, the actions that are on with their starts."""

    status: Status
    classes: tuple[str, ...]
    newest: Decision | None = None
    on: dict[str, float] = field(default_factory=dict)
    n_actions: int = 0
    refresh: Callable[[], object] | None = None
    """Brings the status of a live source up to date, also while nothing is decided."""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    _counts: deque[tuple[float, int, int]] = field(default_factory=deque)

    def push(self, decision: Decision) -> None:
        """Take the newest decision."""
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

    def rates(self, now: float) -> tuple[float, float]:
        """Decisions and frames a second over the last seconds, until `now`."""
        frames = self.status.frames or self.status.decided * CHUNK
        self._counts.append((now, self.status.decided, frames))
        while len(self._counts) > 2 and now - self._counts[0][0] > RATE_SECONDS:
            self._counts.popleft()
        then, decided, before = self._counts[0]
        if now <= then:
            return 0.0, 0.0
        return (self.status.decided - decided) / (now - then), (frames - before) / (now - then)

    def actions(self, most: int) -> list[tuple[str, float]]:
        """Actions with their scores now, in the order of the classes: those that are on, then the likeliest."""
        if self.newest is None:
            return []
        scores = dict(zip(self.classes, map(float, self.newest.scores), strict=True))
        names = [label for label in self.classes if label not in (BACKGROUND, AMBIGUOUS)]
        chosen = sorted(names, key=lambda label: (label not in self.on, -scores[label]))[:most]
        return [(label, scores[label]) for label in names if label in chosen]


class View:
    """The sources that run now, in the order in which they began; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic, ascii_only: bool = False):
        self._clock = clock
        self._ascii = ascii_only
        self._watched: list[Watched] = []

    def add(self, status: Status, classes: Sequence[str], refresh: Callable[[], object] | None = None) -> Watched:
        """Show a source from now on; `refresh` is called before it is drawn, to bring its status up to date."""
        one = Watched(status, tuple(classes), refresh=refresh)
        one.rates(self._clock())
        self._watched.append(one)
        return one

    def leave(self, one: Watched) -> None:
        """Show a source no more."""
        self._watched = [other for other in self._watched if other is not one]

    def lines(self, width: int, height: int) -> list[Line]:
        """The view in at most `height` lines, made for `width` columns."""
        watched = list(self._watched)
        if not watched:
            return []
        for one in watched:
            if one.refresh:
                one.refresh()
        most = max(len(one.actions(MOST_ACTIONS)) for one in watched)
        for actions in range(most, min(1, most) - 1, -1):
            if len(watched) * (actions + 3) > height:  # a head, and at least one line each for memories and speed
                continue
            blocks = [line for one in watched for line in self._block(one, width, actions)]
            if len(blocks) + min(2, MOST_EVENTS) <= height:
                break
        else:
            blocks = [self._row(one, width) for one in watched]
            if len(blocks) > height:
                blocks[height - 1 :] = [[(f"and {len(blocks) - height + 1} more", "quiet")]]
        return blocks + self._events(watched, min(MOST_EVENTS, height - len(blocks)), width)

    def summary(self) -> list[str]:
        """One line per source: what came of it so far."""
        return [summary_of(one) for one in self._watched]

    def _block(self, one: Watched, width: int, n_actions: int) -> list[Line]:
        lines = [self._head(one, width)]
        actions = one.actions(n_actions)
        names = max((cells(clean(label)) for label, _ in actions), default=0)
        names = min(names, width // 3)
        for label, score in actions:
            on = label in one.on
            since = f"{one.status.time - one.on[label]:6.1f} s" if on else " " * 8
            full, rest = self._bar(score, max(5, width - names - 20))
            role = "on" if on else ""
            mark = ("*" if self._ascii else "●") if on else " "
            lines.append(
                [(f" {mark} {fit(clean(label), names)} ", role), (full, role or "bar"), (rest, "quiet")]
                + [(f" {score:4.2f}", role), (since, "quiet")]
            )
        return (
            lines
            + self._wrapped(self._memory(one, 10 if width >= WIDE else 6), width)
            + self._wrapped(self._speed(one), width)
        )

    def _head(self, one: Watched, width: int) -> Line:
        status = one.status
        at = clock(status.time)
        if status.total:
            share = status.decided / status.total
            at += f" of {clock(status.total * status.chunk_seconds)} {share:4.0%}"
        state = LINKS.get(status.link, "")
        room = max(8, width - len(at) - len(state) - 4)
        line = [(shorten(clean(status.name), room), "name"), (f"  {at}", "")]
        return [*line, (f"  {state}", "alert")] if state else line

    def _row(self, one: Watched, width: int) -> Line:
        """A source in one line."""
        names = max(8, width // 5)
        line = [(f"{fit(clean(one.status.name), names)} {clock(one.status.time):>8} ", "")]
        if state := LINKS.get(one.status.link):
            line.append((fit(state, names + 14), "alert"))
        for label, score in one.actions(1) if not state else ():
            full, rest = self._bar(score, 8)
            role = "on" if label in one.on else ""
            line += [(full, role or "bar"), (rest, "quiet"), (f" {score:4.2f} {fit(clean(label), names)}", role)]
        rate = f" {one.rates(self._clock())[0]:5.1f}/s"
        dropped = f" dropped {one.status.dropped}" if one.status.dropped else ""
        if width >= WIDE and cells("".join(part for part, _ in line) + rate + dropped) <= width:
            line.append((rate, "quiet"))
        return [*line, (dropped, "alert")] if dropped else line

    def _memory(self, one: Watched, size: int) -> list[Line]:
        """The fill of the memories, and what is missing of the source."""
        status = one.status
        lines = []
        for name, (chunks, most) in (("memory work", status.work), ("long", status.long)):
            if most:
                full, rest = self._bar(chunks / most, size)
                a_chunk = status.chunk_seconds
                seconds = f" {chunks * a_chunk:.0f}/{most * a_chunk:.0f} s"
                lines.append([(f"{name} ", "quiet"), (full, "bar"), (rest, "quiet"), (seconds, "")])
        lines.append([(f"dropped {status.dropped}", "alert" if status.dropped else "")])
        for text, count in (
            ("waiting", status.waiting),
            ("gaps", status.gaps),
            ("reconnected", status.reconnects),
            ("damaged", status.decode_errors),
        ):
            if count:
                lines.append([(f"{text} {count}", "alert")])
        return lines

    def _speed(self, one: Watched) -> list[Line]:
        decisions, frames = one.rates(self._clock())
        factor = f"{decisions * one.status.chunk_seconds:.2f} {'x' if self._ascii else '×'} real time"
        words = [f"{decisions:.1f} decisions/s", f"{frames:.0f} frames/s", factor]
        if found := one.status.latency_ms(50, 95):
            words.append("latency " + latency_text(*found))
        return [[(text, "")] for text in words]

    def _events(self, watched: list[Watched], most: int, width: int) -> list[Line]:
        found = [(event, one) for one in watched for event in list(one.events)]
        found = sorted(found, key=lambda pair: pair[0].time)[-most:] if most > 0 else []
        lines = []
        for event, one in reversed(found):
            source = f"{shorten(clean(one.status.name), width // 4)}  " if len(watched) > 1 else ""
            lines.append([(f"{clock(event.time):>9}  ", "quiet"), (source, "quiet"), (event_text(event), "")])
        return lines

    def _bar(self, share: float, width: int) -> tuple[str, str]:
        """The full part and the rest of a bar."""
        share = min(max(share, 0.0), 1.0) if share == share else 0.0  # NaN is nothing
        if self._ascii:
            full = "#" * round(share * width)
            return full, "." * (width - len(full))
        eighths = round(share * width * 8)
        full = "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
        return full, "·" * (width - len(full))

    def _wrapped(self, parts: list[Line], width: int) -> list[Line]:
        """Parts side by side, in as many lines as they need."""
        lines: list[Line] = []
        used = 0
        for part in parts:
            size = sum(cells(text) for text, _ in part)
            if lines and used + len(GAP) + size <= width:
                lines[-1] += [(GAP, ""), *part]
                used += len(GAP) + size
            else:
                lines.append([(GAP, ""), *part])
                used = len(GAP) + size
        return lines


class Progress(Sink):
    """A source in the view, and where there is no terminal for that in lines; `update` draws after each decision.

    A recorded source leaves the view when it is over or fails; after a Ctrl-C it stays as it was last, as a live one.
    """

    name = "the view"

    def __init__(self, view: View, update: Callable[[Watched], None] = lambda one: None):
        self._view, self._update = view, update

    def open(self, source: Opened) -> None:
        self._one = self._view.add(source.status, source.classes, source.refresh)

    def take(self, decision: Decision) -> None:
        self._one.push(decision)
        self._update(self._one)

    def close(self, end: End) -> None:
        self._one.tell(end.events)
        if not self._one.refresh and not isinstance(end.error, KeyboardInterrupt):
            self._view.leave(self._one)


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
    """A source in one plain line, for standard error that is no terminal."""
    status = one.status
    of = f"/{status.total}" if status.total else ""
    words = [f"{status.decided}{of} decisions", f"{one.rates(now)[0]:.1f} a second"]
    if found := status.latency_ms(50, 95):
        words.append("latency " + latency_text(*found))
    if status.dropped:
        words.append(f"dropped {status.dropped}")
    if status.link in LINKS:
        words.append(LINKS[status.link])
    if one.newest:
        words.append(f"{clean(one.newest.label)} {one.newest.score:.2f}")
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


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shorten(text: str, width: int) -> str:
    """Text of at most `width` columns, its middle left out where it is longer."""
    if cells(text) <= width:
        return text
    head = _first(text, max(1, (width - 1) // 2))
    return f"{head}…{_first(text[::-1], width - 1 - cells(head))[::-1]}"


def _first(text: str, width: int) -> str:
    """The first letters, as many as `width` columns have room for."""
    return "".join(letter for letter, used in zip(text, accumulate(map(cells, text)), strict=True) if used <= width)


def fit(text: str, width: int) -> str:
    """Text in exactly `width` columns."""
    text = shorten(text, width)
    return text + " " * (width - cells(text))
