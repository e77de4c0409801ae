"""A chart of lanes over time: names on the left, seconds below, a title; what is drawn in the lanes comes after."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lstr.pipelines.reports.canvas import Box, Canvas, Text, fitted
from lstr.pipelines.reports.fonts import width_of
from lstr.pipelines.reports.palette import light

SIZE, SMALL = 9.0, 8.0  # of letters, in points
PAD = 6.0
MOST_NAMES = 0.5  # of the width
ROOM = 1.15  # that names get: a viewer of an SVG may have wider letters
MOST_TICKS = 9
SHORTEST = 1e-3  # seconds
GRID = 0.6  # points


@dataclass(frozen=True)
class LanesChart:
    """Where lanes and moments are on a canvas; lanes are counted from 0 at the top, their middles are whole."""

    canvas: Canvas
    left: float
    top: float
    right: float
    lane: float
    """Height of one, in points"""
    seconds: float

    def x(self, time: float) -> float:
        """The place of a moment in seconds, no further than the chart."""
        return self.left + (self.right - self.left) * min(max(time / self.seconds, 0.0), 1.0)

    def y(self, lane: float) -> float:
        """The place of a lane's middle, or of what is between two."""
        return self.top + (lane + 0.5) * self.lane

    def spans(self, times: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        """Left and right ends of stretches of time, of those that reach into the chart."""
        return [(self.x(start), self.x(end)) for start, end in times if start <= self.seconds and end >= 0]


def begin_chart(
    names: Sequence[str],
    seconds: float,
    width: float,
    lane: float,
    title: str,
    key: str = "",
    notes: Sequence[str] = (),
) -> LanesChart:
    """An empty chart `width` points wide: a lane `lane` points high for each name, the notes below it."""
    seconds = max(seconds, SHORTEST)
    top = PAD + SIZE + PAD
    bottom = top + lane * max(1, len(names))
    height = bottom + 2 * (SIZE + PAD) + PAD + len(notes) * (SMALL + 2)
    canvas = Canvas(width, height)
    widest = max((width_of(name, SIZE) for name in names), default=0.0)
    left = PAD + min(widest * ROOM, width * MOST_NAMES) + PAD
    last = f"{_ticks(seconds)[-1]:.10g}"
    chart = LanesChart(canvas, left, top, width - PAD - width_of(last, SIZE) / 2, lane, seconds)
    for tick in _ticks(seconds):
        canvas.add(
            Box(chart.x(tick) - GRID / 2, top, GRID, bottom - top, light("line")),
            Text(f"{tick:.10g}", chart.x(tick), bottom + 3 + SIZE, SIZE, light("soft"), "middle"),
        )
    canvas.add(
        Box(left, bottom, chart.right - left, 0.8, light("edge")),
        Text("seconds", (left + chart.right) / 2, bottom + 2 * SIZE + PAD, SIZE, light("soft"), "middle"),
    )
    for place, name in enumerate(names):
        shown = fitted(name, SIZE, width * MOST_NAMES / ROOM)
        canvas.add(Text(shown, left - PAD, chart.y(place) + SIZE * 0.35, SIZE, light("ink"), "end"))
    room = chart.right - left - width_of(key, SMALL) - 2 * PAD
    canvas.add(Text(fitted(title, SIZE, room), left, PAD + SIZE, SIZE, light("ink")))
    canvas.add(*[Text(key, chart.right, PAD + SIZE, SMALL, light("soft"), "end")] * bool(key))
    for line, text in enumerate(notes):
        y = bottom + 2 * (SIZE + PAD) + (line + 1) * (SMALL + 2) - 2
        canvas.add(Text(fitted(text, SMALL, width - 2 * PAD), width / 2, y, SMALL, light("warn-ink"), "middle"))
    return chart


def _ticks(seconds: float) -> list[float]:
    """Round numbers of seconds from 0 on, few enough to stand side by side."""
    least = seconds / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= least * (1 - 1e-9))
    return [round(n * step, 9) for n in range(math.floor(seconds / step + 1e-9) + 1)]
