"""Scores to events and segments, causally."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, TOLERANCE, Clock
from lstr.errors import ConfigError, LstrError
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import Segment

if TYPE_CHECKING:  # it brings torch, which reading labels does not need
    from lstr.loaded_checkpoint import Checkpoint

FORMAT = "lstr-timeline/1"  # what a timeline file names as its format
# How far ahead an action may be expected.
HORIZON_SECONDS = 2.0
EXAMPLE = "on 0.5 and off 0.35"
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Person:
    """A person whom a model on poses saw; coordinates are from 0 to 1 of the image's sides, x before y.

    `id` is a number within one source. It knows no face and no name; after two seconds out of sight it is another.
    """

    id: int
    box: Box
    keypoints: NDArray[np.float32] | None = field(default=None, repr=False, compare=False)
    """x, y and score (17, 3) in the order of COCO, all 0 of hidden ones; None for a person of an event."""
    share: float | None = None
    """Share of the action, by the scores of each person's poses alone; None without an action or of other streams."""

    def to_dict(self) -> dict[str, Any]:
        """Return the person's JSON object."""
        values: dict[str, Any] = {"id": self.id, "box": [round(side, 3) for side in self.box]}
        if self.share is not None:
            values["share"] = round(self.share, 3)
        if self.keypoints is not None:
            values["keypoints"] = [[round(value, 3) for value in point] for point in self.keypoints.tolist()]
        return values


@dataclass(frozen=True)
class Event:
    """`started` or `ended` of an action, or `expected` or `lapsed` of one to come; times in seconds.

    `time` is when it was decided, `start` when the action began, by its first chunk and `Thresholds.backdate` (or is,
    or was, expected to begin). `score` is the one that reached `on`, and of `ended` the mean over the action. With
    `still_active` the source ended, not the action.
    """

    event: str
    label: str
    time: float
    start: float
    score: float
    end: float | None = None
    still_active: bool = False
    at: datetime | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    """`time`, `start` and `end` on the clock of the wall, of a live source."""
    people: tuple[Person, ...] = ()
    """By a model on poses: of `started` who is there, of `ended` who was there for half of it, with all places."""

    def to_dict(self) -> dict[str, Any]:
        """Return the event's JSON object; `end`, `still_active`, times (ISO 8601) and people only if it has them."""
        values = {name: getattr(self, name) for name in ("event", "label", "time", "start", "end")}
        values |= {"score": round(self.score, 4), "still_active": self.still_active or None}
        walls = {"at": self.at, "start_at": self.start_at, "end_at": self.end_at}
        values |= {name: wall and iso(wall) for name, wall in walls.items()}
        values["people"] = [person.to_dict() for person in self.people] or None
        return {name: value for name, value in values.items() if value is not None}


def iso(wall: datetime) -> str:
    """Return a wall-clock time as ISO 8601 with its zone, to the millisecond."""
    return wall.isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Thresholds:
    """The rules that turn the scores of a class into actions. Lengths are in seconds, rounded to whole chunks.

    Args:
        on: Start threshold: an action starts when its score reaches this.
        off: End threshold: an action ends when its score falls below this (hysteresis).
        min_length: Ignore shorter actions, except an action that is active when the source ends.
        merge_gap: Join parts of an action with at most this time between them.
        highest: Count a chunk as below both thresholds if another action has a higher score, for actions that never
            happen at the same time.
        backdate: Report the start this much before the chunk that reached `on`, because such actions have usually
            lasted that long by then; never before the end of the previous action of the class (with `highest` of any
            class), nor in missing chunks.

    Raises:
        ConfigError: A value is out of range.
    """

    on: float = 0.5
    off: float = 0.35
    min_length: float = 0.0
    merge_gap: float = 0.0
    highest: bool = False
    backdate: float = 0.0

    def __post_init__(self) -> None:
        check_kinds(vars(self))
        if not (0 <= self.on <= 1 and 0 <= self.off <= 1):
            wrong = self.off if 0 <= self.on <= 1 else self.on
            hint = f"use scores, not percent, for example {EXAMPLE}."
            raise ConfigError(f"The threshold {wrong:g} is out of range: scores are from 0 to 1.", hint)
        if self.off > self.on:
            hint = f"set the end threshold to at most the start threshold, for example {EXAMPLE}."
            raise ConfigError(f"The end threshold {self.off:g} is above the start threshold {self.on:g}.", hint)
        lengths = {"A minimum length": self.min_length, "A gap": self.merge_gap, "A backdate": self.backdate}
        for name, length in lengths.items():
            if not 0 <= length < math.inf:
                raise ConfigError(f"{name} of {length:g} s is not a valid length.", "use seconds from 0 up.")

    def min_chunks(self, clock: Clock = CLOCK) -> int:
        """Return the minimum length of an action in chunks."""
        return max(1, clock.chunks_for(self.min_length))

    def delays(self, clock: Clock = CLOCK) -> dict[str, float]:
        """Return the delay in seconds of `started` and `ended` by these rules.

        `started` is relative to the end of the first chunk of an action, `ended` to the end of the first chunk below
        `off`. At the end of the source both come at once.
        """
        chunks = {"started": self.min_chunks(clock) - 1, "ended": clock.whole_chunks(self.merge_gap)}
        return {name: clock.length(number) for name, number in chunks.items()}

    def stored(self) -> dict[str, Any]:
        """Return the values for a checkpoint, without unused `highest` and `backdate`: earlier versions lack them."""
        return {name: value for name, value in asdict(self).items() if name not in ("highest", "backdate") or value}

    def to_dict(self, clock: Clock = CLOCK) -> dict[str, Any]:
        """Return the JSON object of the thresholds, with their delays."""
        return {**self.stored(), "delay": self.delays(clock)}


def check_kinds(values: Mapping[str, Any]) -> None:
    """Raise ConfigError for a value of the wrong type, for example text."""
    for name, value in values.items():
        if not isinstance(value, bool | np.bool_ if name == "highest" else int | float | np.number):
            kind = "true or false" if name == "highest" else "a number"
            raise ConfigError(f"{name} is {value!r}, which is not {kind}.", "use values, not text.")


DEFAULT = Thresholds()


def is_highest(scores: NDArray[np.floating], actions: Sequence[int]) -> NDArray[np.bool_]:
    """Return where no other of the `actions` (columns) scores higher: (..., A) for scores (..., C)."""
    of_actions = scores[..., actions]
    highest: NDArray[np.bool_] = of_actions >= of_actions.max(axis=-1, keepdims=True, initial=-np.inf)
    return highest


@dataclass
class _Run:
    """A possible action: from chunk `first` to before chunk `end`, with the sum and number of its scores."""

    first: int
    reported: int  # the chunk that is reported as its first: `first`, backdated
    end: int
    passed: float  # the score that reached `on`
    total: float = 0.0
    number: int = 0
    started: bool = False
    # Scores since `end`, no more than fit into a gap; they count if it closes
    pending: list[float] = field(default_factory=list)


class Timeline:
    """Turns one score vector per chunk into events; several classes may be active at once, Background never.

    Only active actions are kept, so memory grows neither with the length of an action nor with the number of actions.
    The events of a chunk never change later and do not depend on later chunks. All events together (`segments_in`)
    equal the result on the whole curve of scores: runs by hysteresis, merged across gaps, without short ones, except
    at the end, and with backdated starts.

    Args:
        classes: The names of the columns of scores.
        thresholds: Rules for all classes, or by class; a class without rules has the defaults.
        clock: The times of chunks.

    Raises:
        ConfigError: There are thresholds of an unknown class.
    """

    def __init__(
        self,
        classes: tuple[str, ...],
        thresholds: Thresholds | Mapping[str, Thresholds] = DEFAULT,
        clock: Clock = CLOCK,
    ) -> None:
        if isinstance(thresholds, Mapping) and (unknown := sorted(thresholds.keys() - {*classes})):
            raise ConfigError(f"Thresholds of an unknown class: {unknown[0]!r}.", f"classes are {', '.join(classes)}.")
        self.classes, self.thresholds, self.clock = classes, thresholds, clock
        self._runs: dict[int, _Run] = {}
        # Classes that are expected and have not started: (start, score) as announced
        self._announced: dict[int, tuple[float, float]] = {}
        self._newest = 0  # the last chunk that was pushed
        self._seen_since: int | None = None  # the first chunk after the last missing one
        # The end of the last reported action of each class, before the newest chunk
        self._ends: dict[int, int] = {}
        self._rules = {
            c: thresholds if isinstance(thresholds, Thresholds) else thresholds.get(label, DEFAULT)
            for c, label in enumerate(classes)
            if label not in (BACKGROUND, AMBIGUOUS)
        }
        self._alone = any(rules.highest for rules in self._rules.values())
        # The minimum length and the maximum gap of each class
        self._chunks = {c: (r.min_chunks(clock), clock.whole_chunks(r.merge_gap)) for c, r in self._rules.items()}
        self._horizon = clock.whole_chunks(HORIZON_SECONDS)

    def push(self, time: float, scores: NDArray[np.floating], ahead: NDArray[np.floating] | None = None) -> list[Event]:
        """Return the events that are decided at the end of a chunk.

        Args:
            time: The end of the chunk in seconds.
            scores: (C,), from 0 to 1.
            ahead: (H, C), scores of the next chunks of a model with anticipation. An inactive class that reaches its
                `on` within 2 s is `expected`, once, until it has `started`, or `lapsed` if none reaches its `off`.

        Raises:
            LstrError: The scores have another shape or range, or the chunk is before the last one.
        """
        chunk, scores = self.clock.nearest(time) - 1, np.asarray(scores)
        wrong = f"of shape {scores.shape}" if scores.shape != (len(self.classes),) else ""
        if wrong or not (scores.min() >= 0 and scores.max() <= 1 + TOLERANCE):  # nor is NaN
            hint = "push one score between 0 and 1 per class."
            raise LstrError(f"The scores of {len(self.classes)} classes are {wrong or 'not between 0 and 1'}.", hint)
        if chunk < self._newest:
            hint = "push chunks by increasing end time, and call `finish` at the end of a source."
            raise LstrError(f"The chunk that ends at {time:g} s is out of order.", hint)
        if self._seen_since is None or chunk > self._newest + 1:
            self._seen_since = chunk
        self._newest = chunk
        coming = np.empty((0, len(scores))) if ahead is None else ahead[: self._horizon]
        if self._alone:  # only if a rule needs it: it takes time at each chunk of each source
            actions = list(self._rules)
            now, later = is_highest(scores, actions), is_highest(coming, actions)
        events = []
        for at, (c, rules) in enumerate(self._rules.items()):
            counts = not rules.highest or bool(now[at])
            events += self._advance(c, rules, chunk, time, float(scores[c]), counts)
            if len(coming) and c not in self._runs:
                curve = np.where(later[:, at], coming[:, c], -1.0) if rules.highest else coming[:, c]
                if c in self._announced:
                    events += [self._lapse(c, time)] if curve.max() < rules.off else []
                elif curve.max() >= rules.on:
                    first = self.clock.at(chunk + 1 + int(np.argmax(curve >= rules.on)))
                    self._announced[c] = first, float(curve.max())
                    events.append(Event("expected", self.classes[c], time, *self._announced[c]))
        self._ends |= {c: run.end for c, run in self._runs.items() if run.started}
        return events

    def finish(self, time: float) -> list[Event]:
        """Return the events at the end of the source, at `time` seconds; the timeline can then be used again.

        An active action has started, even if it is shorter than `min_length`, because its full length is unknown; its
        `ended` has `still_active`.
        """
        events: list[Event] = []
        self._newest, self._seen_since, self._ends = 0, None, {}
        for c in sorted(self._runs):
            is_on = not self._runs[c].pending
            if is_on and not self._runs[c].started:
                events.append(self._start(c, time))
            events += self._end(c, time, is_on)
        return events + [self._lapse(c, time) for c in sorted(self._announced)]

    def describe(self) -> dict[str, Any]:
        """Return the rules as they are stored in a timeline file: for all classes, or by class."""
        if isinstance(self.thresholds, Thresholds):
            return self.thresholds.to_dict(self.clock)
        return {self.classes[c]: rules.to_dict(self.clock) for c, rules in self._rules.items()}

    def _advance(self, c: int, rules: Thresholds, chunk: int, time: float, score: float, counts: bool) -> list[Event]:
        """Return events of one class at one chunk; if it does not count, its score is below both thresholds."""
        events = []
        run, (shortest, longest_gap) = self._runs.get(c), self._chunks[c]
        if run and chunk - run.end > longest_gap:  # a live source has lost chunks
            events += self._end(c, time)
            run = None
        if run is None:
            if not counts or score < rules.on:
                return events
            # its start is backdated, but not into a reported action or a gap of the source
            ends = [end for other, end in self._ends.items() if rules.highest or other == c]
            backdated = max(chunk - self.clock.whole_chunks(rules.backdate), self._seen_since or 0, *ends)
            run = self._runs[c] = _Run(chunk, min(chunk, backdated), chunk, score)
        if counts and score >= (rules.off if run.end == chunk else rules.on):
            run.total += sum(run.pending) + score
            run.number += len(run.pending) + 1
            run.end, run.pending = chunk + 1, []
        elif chunk + 1 - run.end > longest_gap:
            return events + self._end(c, time)
        else:
            run.pending.append(score)
        if not run.started and run.end - run.first >= shortest:
            events.append(self._start(c, time))
        return events

    def _start(self, c: int, time: float) -> Event:
        """Return the `started` event of a class, which is no longer expected."""
        run = self._runs[c]
        run.started = True
        self._announced.pop(c, None)
        return Event("started", self.classes[c], time, self.clock.at(run.reported), run.passed)

    def _end(self, c: int, time: float, still_active: bool = False) -> list[Event]:
        """Forget a class's run; return its `ended` if it had started."""
        run = self._runs.pop(c)
        if not run.started:
            return []
        start, end = self.clock.at(run.reported), self.clock.at(run.end)
        return [Event("ended", self.classes[c], time, start, run.total / run.number, end, still_active)]

    def _lapse(self, c: int, time: float) -> Event:
        return Event("lapsed", self.classes[c], time, *self._announced.pop(c))


def changed(stored: Mapping[str, Any], overrides: Mapping[str, Any]) -> Thresholds:
    """Return the default thresholds, replaced by `stored` and then by `overrides`; see `thresholds_of`."""
    chosen = {name: value for name, value in overrides.items() if value is not None}
    merged = {**asdict(DEFAULT), **stored, **chosen}
    check_kinds(merged)
    if "off" not in chosen:
        merged["off"] = min(merged["off"], merged["on"])
    elif "on" not in chosen:
        merged["on"] = max(merged["off"], merged["on"])
    return Thresholds(**merged)


def thresholds_of(
    loaded: "Checkpoint", overrides: Mapping[str, Any] | None = None
) -> Thresholds | Mapping[str, Thresholds]:
    """Return the thresholds of a checkpoint, by class if `lstr evaluate` or `lstr learn` chose them, else the defaults.

    Args:
        loaded: The checkpoint.
        overrides: Values of Thresholds by name for all classes; None overrides nothing. If only one of `on` and `off`
            is overridden and contradicts the other, the other follows it.

    Raises:
        ConfigError: A value is out of range.
    """
    stored = loaded.extra.get("thresholds")
    if not stored:
        return changed({}, overrides or {})
    return {label: changed(stored.get(label, {}), overrides or {}) for label in loaded.classes}


def segments_in(events: Iterable[Event]) -> list[Segment]:
    """Return the actions that have ended, in the order of their ends."""
    return [Segment(e.start, e.end, e.label, round(e.score, 4)) for e in events if e.end is not None]
