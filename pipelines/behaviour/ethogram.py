"""Ethograms: what happens when in a video, a row for each action; of two observers one above the other."""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from lstr.extractors.names import slug
from lstr.labels.segment import Segment
from lstr.pipelines.progress import Notice, Progress
from lstr.pipelines.reports.drawing import PLAIN, save, short
from lstr.pipelines.reports.fonts import families
from lstr.pipelines.reports.markup import Drawing
from lstr.pipelines.reports.palette import colours_of

MOST_VIDEOS = 40
"""Figures of a report: about a second each"""
MOST_ROWS = 40
WIDTH = 5.5  # inches
BAR, GAP = 0.7, 0.06  # of a row
PALE = 0.3
Sides = Mapping[str, Sequence[Segment]]
"""The segments of each observer by name, the first of them above; of one only, its name does not matter"""


def draw_ethogram(
    title: str, sides: Sides, actions: Sequence[str], seconds: float, colours: Mapping[str, str] | None = None
) -> Figure:
    """One video of so many seconds, the actions from top to bottom; those of a second observer pale with an outline.

    colours: of the rows, where they are not of one action each.
    """
    colours, shown = colours or colours_of(actions), actions[:MOST_ROWS]
    names = [short(action, 18) for action in shown]
    settings: dict[Any, Any] = PLAIN | {"font.family": families([*names, title])}
    with rc_context(settings):
        figure = Figure(figsize=(WIDTH, 0.75 + (0.26 + 0.1 * (len(sides) - 1)) * len(shown)), layout="constrained")
        axes = figure.subplots()
        height = BAR / len(sides)
        for row, action in enumerate(shown):
            for place, segments in enumerate(sides.values()):
                bars = [(s.start, s.end - s.start) for s in segments if s.label == action]
                # an outline, so that what lasts a moment in hours is seen
                look: dict[str, Any] = {"facecolor": colours[action], "alpha": PALE} if place else {"lw": 0.6}
                where = (row - BAR / 2 + place * height, height - GAP * (len(sides) > 1))
                axes.broken_barh(bars, where, **{"color": colours[action], "lw": 0, **look})
                if place:
                    axes.broken_barh(bars, where, facecolor="none", edgecolor=colours[action], lw=0.8)
        axes.set(xlim=(0, seconds), ylim=(len(shown) - 0.5, -0.5), xlabel="seconds", yticks=range(len(shown)))
        axes.set_yticklabels(names)
        axes.set_title(short(title, 60), loc="left")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", lw=0.6)
    return figure


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
        svg = save(folder, f"{number:02}-{slug(name, 'video')}", figure)
        drawings.append(Drawing("", f"Ethogram of {name}", note, svg, first=True))
        yield Progress("ethograms", number, len(chosen))
    return drawings
