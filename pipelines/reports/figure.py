"""A timeline as a still picture, for a paper or a page: one lane per class, PNG or SVG."""

import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import Segment
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.reports.fonts import families
from lstr.pipelines.reports.palette import TRUTH, colours_of, light

MOST_LANES = 40
MOST_POINTS = 2000  # of a curve
BAR = 0.24  # of a segment, in lanes


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
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    classes = list(timeline["classes"])
    lanes, colours = lanes_of(timeline, scores, truth), colours_of(classes)
    shown = [Segment.from_dict(entry) for entry in timeline["segments"]]
    seconds = max(
        offset_of(timeline) + timeline["chunks"] * timeline["seconds_per_chunk"], timeline["duration"] or 0, 1e-3
    )
    written = [*lanes, Path(str(timeline["source"])).name, *timeline.get("warnings", ())]
    # text as text: an SVG can be searched and edited, and a viewer brings its own letters
    settings: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 9, "font.family": families(written)}
    with warnings.catch_warnings(), rc_context(settings):
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(10, 1.1 + 0.42 * max(1, len(lanes))), layout="constrained")
        axes = figure.add_subplot()
        for y, label in enumerate(lanes):
            colour = colours[label]
            if scores is not None and len(scores):
                times, curve = thinned(
                    scores[:, classes.index(label)], timeline["seconds_per_chunk"], offset=offset_of(timeline)
                )
                axes.fill_between(times, y - 0.14, y - 0.14 - 0.32 * curve, step="pre", color=colour, alpha=0.45, lw=0)
            for segments, top, height, face in (
                (shown, -BAR / 2, BAR, colour),  # beside the name
                (truth or (), 0.18, 0.12, TRUTH),
            ):
                bars = [(s.start, s.end - s.start) for s in segments if s.label == label]
                axes.broken_barh(bars, (y + top, height), facecolors=face, lw=0)
        axes.set(xlim=(0, seconds), ylim=(max(1, len(lanes)) - 0.5, -0.5), xlabel="seconds")
        axes.set_yticks(range(len(lanes)))
        axes.set_yticklabels(lanes, parse_math=False)
        axes.set_title(Path(str(timeline["source"])).name, loc="left", parse_math=False)
        by_hand = bool(shown) and all(segment.score is None for segment in shown)
        keys = ["bar: labelled" if by_hand else "bar: detected"]
        keys += ["shade: score"] * (scores is not None) + ["grey: labelled"] * bool(truth)
        axes.set_title("   ".join(keys), loc="right", fontsize=8, color=light("soft"))
        if not lanes:
            axes.text(0.5, 0.5, "no action", transform=axes.transAxes, ha="center", va="center", color=light("soft"))
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        axes.grid(axis="x", color=light("line"), lw=0.6)
        axes.set_axisbelow(True)
        for line in timeline.get("warnings", ()):
            figure.supxlabel(line, fontsize=7, color=light("warn-ink"), parse_math=False)
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix.removeprefix("."), dpi=150)


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
