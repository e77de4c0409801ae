"""A timeline as a still picture, for a paper or a page: one lane per class, PNG or SVG."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import Segment
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.reports.canvas import Area, Box, Canvas, Text, fitted, stepped
from lstr.pipelines.reports.fonts import width_of
from lstr.pipelines.reports.palette import TRUTH, colours_of, light

MOST_LANES = 40
MOST_POINTS = 2000  # of a curve
WIDTH, LANE = 720.0, 30.0  # points
DOTS_PER_INCH = 150
BAR = 0.24  # of a segment, in lanes
CURVE = 0.32  # of a score of 1, above the bar
ALPHA = 0.45
TRUTH_TOP, TRUTH_BAR = 0.18, 0.12
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


def write_figure(
    path: Path,
    timeline: Mapping[str, Any],
    scores: NDArray[np.floating] | None = None,
    truth: Sequence[Segment] | None = None,
) -> None:
    """Draw the segments of an lstr-timeline/1, under its score curves (chunks, C) and above the labels, if any.

    Segments with a score are called detected, others labelled. The ending of the name, .png or .svg, is the format.
    Raises OutputError.
    """
    canvas = draw_figure(timeline, scores, truth)
    svg = path.suffix == ".svg"
    content = canvas.svg(light("card")) if svg else canvas.png(DOTS_PER_INCH, light("card"))
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def draw_figure(
    timeline: Mapping[str, Any],
    scores: NDArray[np.floating] | None = None,
    truth: Sequence[Segment] | None = None,
) -> Canvas:
    """The picture that `write_figure` writes."""
    classes = list(timeline["classes"])
    lanes, colours = lanes_of(timeline, scores, truth), colours_of(classes)
    shown = [Segment.from_dict(entry) for entry in timeline["segments"]]
    offset = offset_of(timeline)
    seconds = max(offset + timeline["chunks"] * timeline["seconds_per_chunk"], timeline["duration"] or 0)
    by_hand = bool(shown) and all(segment.score is None for segment in shown)
    keys = ["bar: labelled" if by_hand else "bar: detected"]
    keys += ["shade: score"] * (scores is not None) + ["grey: labelled"] * bool(truth)
    title = Path(str(timeline["source"])).name
    chart = begin_chart(lanes, seconds, WIDTH, LANE, title, "   ".join(keys), timeline.get("warnings", ()))
    for lane, label in enumerate(lanes):
        if scores is not None and len(scores):
            times, curve = thinned(scores[:, classes.index(label)], timeline["seconds_per_chunk"], offset=offset)
            chart.canvas.add(*_shades(chart, lane, times, curve[1:], colours[label]))
        for segments, top, height, colour in (
            (shown, -BAR / 2, BAR, colours[label]),  # beside the name
            (truth or (), TRUTH_TOP, TRUTH_BAR, TRUTH),
        ):
            spans = chart.spans((s.start, s.end) for s in segments if s.label == label)
            place = chart.y(lane + top)
            chart.canvas.add(*(Box(left, place, right - left, height * LANE, colour) for left, right in spans))
    if not lanes:
        middle = (chart.left + chart.right) / 2
        chart.canvas.add(Text("no action", middle, chart.y(0), SIZE, light("soft"), "middle"))
    return chart.canvas


def _shades(
    chart: LanesChart, lane: int, times: NDArray[np.floating], curve: NDArray[np.floating], colour: str
) -> list[Area]:
    """A score curve (L,) of steps between times (L + 1,), above its bar; nothing where it is 0 or not decided."""
    foot, values = chart.y(lane - 0.14), np.nan_to_num(curve)
    x = np.array([chart.x(time) for time in times])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], values > 0, [False]])))
    areas = []
    for first, end in edges.reshape(-1, 2):
        steps = stepped(x[first : end + 1], foot - CURVE * chart.lane * values[first:end])
        areas.append(Area(np.concatenate([[[x[first], foot]], steps, [[x[end], foot]]]), colour, ALPHA))
    return areas


def offset_of(timeline: Mapping[str, Any]) -> float:
    """Seconds into the video at which the first chunk of a timeline begins."""
    return float(Fraction(timeline.get("clock", {}).get("offset", "0")))


def lanes_of(
    timeline: Mapping[str, Any], scores: NDArray[np.floating] | None, truth: Sequence[Segment] | None
) -> list[str]:
    """The classes to show: all, or of many those with segments, then those of the highest scores."""
    classes = [label for label in timeline["classes"] if label not in (BACKGROUND, AMBIGUOUS)]
    if len(classes) <= MOST_LANES:
        return classes
    seen = {entry["label"] for entry in timeline["segments"]} | {segment.label for segment in truth or ()}
    peak = dict.fromkeys(classes, 0.0)
    if scores is not None and len(scores):
        peak = dict(zip(timeline["classes"], np.fmax.reduce(scores), strict=True))
    chosen = sorted(classes, key=lambda label: (label not in seen, -peak[label]))[:MOST_LANES]
    return [label for label in classes if label in chosen]


def thinned(
    curve: NDArray[np.floating], seconds_per_chunk: float, most: int = MOST_POINTS, offset: float = 0.0
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """A score curve (L,) as (times in seconds, values) of steps that end at the times, the first chunk beginning at
    `offset`.

    Of at most `most` stretches the highest value of each, so that no peak is lost. L is 1 or more.
    """
    step = -(-len(curve) // most)
    firsts = np.arange(0, len(curve), step)
    ends = np.minimum(firsts + step, len(curve)) * seconds_per_chunk + offset
    values = np.fmax.reduceat(curve, firsts)  # NaN where nothing was decided
    return np.concatenate([[offset], ends]), np.concatenate([values[:1], values])


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
