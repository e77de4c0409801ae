"""Ethograms: what happens when in a video, a row for each action; of two observers one above the other."""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from lstr.extractors.names import slug
from lstr.labels.segment import Segment
from lstr.pipelines.progress import Notice, Progress
from lstr.pipelines.reports.canvas import Canvas, bars
from lstr.pipelines.reports.drawing_files import keep_drawing, short
from lstr.pipelines.reports.lanes_chart import begin_chart
from lstr.pipelines.reports.markup import Drawing
from lstr.pipelines.reports.palette import colours_of, light

MOST_VIDEOS = 40
"""Figures of a report"""
MOST_ROWS = 40
WIDTH = 396.0  # points: letters of 9 stay legible where a phone shows the page 400 pixels wide
LANE, SECOND_LANE = 19.0, 7.0  # points of a row, and what a second observer adds
DOTS_PER_INCH = 200
BAR, GAP = 0.7, 0.06  # of a row
PALE = 0.3
OUTLINE, SECOND_OUTLINE = 0.6, 0.8  # points, so that what lasts a moment in hours is seen
Sides = Mapping[str, Sequence[Segment]]
"""The segments of each observer by name, the first of them above; of one only, its name does not matter"""


def draw_ethogram(
    title: str, sides: Sides, actions: Sequence[str], seconds: float, colours: Mapping[str, str] | None = None
) -> Canvas:
    """One video of so many seconds, the actions from top to bottom; those of a second observer pale with an outline.

    colours: of the rows, where they are not of one action each.
    """
    colours, shown = colours or colours_of(actions), actions[:MOST_ROWS]
    lane = LANE + SECOND_LANE * (len(sides) - 1)
    chart = begin_chart([short(action, 18) for action in shown], seconds, WIDTH, lane, short(title, 60))
    height = BAR / len(sides)
    for row, action in enumerate(shown):
        for place, segments in enumerate(sides.values()):
            spans = chart.spans((s.start, s.end) for s in segments if s.label == action)
            top, tall = chart.y(row - BAR / 2 + place * height), (height - GAP * (len(sides) > 1)) * lane
            colour = colours[action]
            look = {"alpha": PALE, "line": SECOND_OUTLINE} if place else {"alpha": 1.0, "line": OUTLINE}
            chart.canvas.add(*bars(spans, top, tall, fill=colour, edge=colour, **look))
    return chart.canvas


def draw_all(
    folder: Path,
    videos: Mapping[str, Sides],
    seconds: Mapping[str, float],
    actions: Sequence[str],
    note: str = "",
    colours: Mapping[str, str] | None = None,
) -> Generator[Progress | Notice, None, list[Drawing]]:
    """An ethogram of each video, in figures/ of a folder as SVG and PNG, and for its page. Raises OutputError."""
    drawings = []
    chosen = list(videos)[:MOST_VIDEOS]
    if len(chosen) < len(videos):
        yield Notice(f"ethograms are drawn of the first {MOST_VIDEOS} of {len(videos)} videos.")
    if len(actions) > MOST_ROWS:
        yield Notice(f"ethograms show the first {MOST_ROWS} of {len(actions)} actions.")
    for number, name in enumerate(chosen, 1):
        figure = draw_ethogram(name, videos[name], actions, seconds[name], colours)
        pictures = figure.svg(), figure.png(DOTS_PER_INCH, light("card"))
        svg = keep_drawing(folder, f"{number:02}-{slug(name, 'video')}", *pictures)
        drawings.append(Drawing("", f"Ethogram of {name}", note, svg, first=True))
        yield Progress("ethograms", number, len(chosen))
    return drawings
