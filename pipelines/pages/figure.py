"""Figures for a paper and a page, drawn with matplotlib; the figure of a timeline has one lane per class."""

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from numpy.typing import NDArray

from lstr.files.atomic import replacing
from lstr.labels.label_set import actions_of
from lstr.labels.segment import Segment
from lstr.pipelines.pages.overlay import FIRST_FONT, font_of
from lstr.pipelines.pages.palette import NEUTRALS, TRUTH, colours_of

INK, SOFT, LINE = (NEUTRALS[name][0] for name in ("ink", "soft", "line"))
# What each colour that carries no data becomes on a dark page
DARK = dict(NEUTRALS[name] for name in ("ink", "soft", "line"))
PAGE_WIDTH = 4.2  # inches: letters of 9 points stay legible where a phone shows the page 400 pixels wide
PLAIN: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lstr",  # the same figure is the same file
    "text.parse_math": False,  # a class may be called $x$
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": LINE,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.titlesize": 9,
    "axes.axisbelow": True,
}
MOST_LANES = 40
MOST_POINTS = 2000  # of a curve
WIDTH, LANE, MARGINS = 7.5, 0.4, 1.0  # inches
BAR = 0.24  # of a segment, in lanes
CURVE = 0.32  # of a score of 1, above the bar
ALPHA = 0.45
TRUTH_TOP, TRUTH_BAR = 0.18, 0.12
LONGEST_NAME, LONGEST_NOTE = 48, 110  # letters


def render(figure: Figure, form: str, paper: str = "none") -> bytes:
    """Return the figure as `svg`, on a colour or without a background, or as `png`, on white."""
    target = io.BytesIO()
    with warnings.catch_warnings(), rc_context(PLAIN):
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        if form == "svg":
            figure.savefig(target, format="svg", transparent=True, facecolor=paper, metadata={"Date": None})
        else:
            figure.savefig(target, format="png", dpi=200, facecolor="white")
    return target.getvalue()


def save(folder: Path, name: str, figure: Figure) -> bytes:
    """Write a figure as SVG and PNG in `folder`/figures; return its SVG for a page, dark where its reader prefers that.

    Raises OutputError.
    """
    svg = render(figure, "svg")
    for form, content in (("svg", svg), ("png", render(figure, "png"))):
        with replacing(folder / "figures" / f"{name}.{form}") as temporary:
            temporary.write_bytes(content)
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
    return svg.replace(b"<defs>", f"{style}<defs>".encode(), 1)


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
    # letters that the usual font lacks are in other fonts of this machine
    fonts = {font for letter in {*"".join(timeline["classes"])} if (font := font_of(letter)) and font != FIRST_FONT}
    for font in fonts:
        fontManager.addfont(font)
    families = ["DejaVu Sans", *sorted(FontProperties(fname=font).get_name() for font in fonts)]
    with rc_context(PLAIN | {"font.family": families}):  # texts take their font when they are made
        content = render(draw_figure(timeline, scores, truth), path.suffix.removeprefix("."), "white")
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def draw_figure(
    timeline: Mapping[str, Any], scores: NDArray[np.floating] | None, truth: Sequence[Segment] | None
) -> Figure:
    """Return the figure that `write_figure` writes."""
    classes = list(timeline["classes"])
    colours, lanes = colours_of(classes), actions_of(classes)
    shown = [Segment.from_dict(entry) for entry in timeline["segments"]]
    if len(lanes) > MOST_LANES:  # those with segments first, then by their highest score
        seen = {segment.label for segment in (*shown, *(truth or ()))}
        peak = dict.fromkeys(classes, 0.0)
        if scores is not None and len(scores):
            peak = dict(zip(classes, np.fmax.reduce(scores), strict=True))
        chosen = sorted(lanes, key=lambda label: (label not in seen, -peak[label]))[:MOST_LANES]
        lanes = [label for label in lanes if label in chosen]
    offset = float(Fraction(timeline.get("clock", {}).get("offset", "0")))  # of the first chunk, in seconds
    seconds = max(offset + timeline["chunks"] * timeline["seconds_per_chunk"], timeline["duration"] or 0)
    by_hand = bool(shown) and all(segment.score is None for segment in shown)
    keys = ["bar: labelled" if by_hand else "bar: detected"]
    keys += ["shade: score"] * (scores is not None) + ["grey: labelled"] * bool(truth)
    notes = [textwrap.fill(note, LONGEST_NOTE) for note in timeline.get("warnings", ())]
    n_lines = sum(note.count("\n") + 1 for note in notes)
    height = MARGINS + LANE * max(1, len(lanes)) + 0.15 * n_lines
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    for lane, label in enumerate(lanes):
        if scores is not None and len(scores):
            times, curve = thinned(scores[:, classes.index(label)], timeline["seconds_per_chunk"], offset=offset)
            foot = lane - 0.14
            top = foot - CURVE * np.nan_to_num(curve)
            axes.fill_between(times, foot, top, step="pre", color=colours[label], alpha=ALPHA, lw=0)
        for segments, top, height, colour in (
            (shown, -BAR / 2, BAR, colours[label]),  # at the height of the name
            (truth or (), TRUTH_TOP, TRUTH_BAR, TRUTH),
        ):
            spans = [(s.start, s.end - s.start) for s in segments if s.label == label]
            axes.broken_barh(spans, (lane + top, height), color=colour, lw=0.5)  # its edge shows what lasts a moment
    if not lanes:
        axes.text(0.5, 0.5, "no action", color=SOFT, ha="center", va="center", transform=axes.transAxes)
    axes.set(xlim=(0, max(seconds, 1e-3)), ylim=(max(1, len(lanes)) - 0.5, -0.5), xlabel="seconds")
    axes.set_yticks(range(len(lanes)), map(shorten, lanes))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", lw=0.6)
    axes.set_title(shorten(Path(str(timeline["source"])).name), loc="left")
    axes.set_title("   ".join(keys), loc="right", size=8, color=SOFT)
    if notes:
        figure.supxlabel("\n".join(notes), size=8, color=NEUTRALS["warn-ink"][0])
    return figure


def shorten(text: str, most: int = LONGEST_NAME) -> str:
    """Return a text that an SVG can hold, of at most this number of letters; a longer one ends with …."""
    text = text.encode("utf-8", "replace").decode()  # the name of a file may be any bytes
    return text if len(text) <= most else f"{text[: most - 1]}…"


def thinned(
    curve: NDArray[np.floating], seconds_per_chunk: float, most: int = MOST_POINTS, offset: float = 0.0
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return a score curve (L,) as (times in seconds, values) of steps that end at the times.

    The first chunk begins at `offset`. Of at most `most` stretches the highest value of each, so that no peak is lost.
    L is 1 or more.
    """
    step = -(-len(curve) // most)
    firsts = np.arange(0, len(curve), step)
    ends = np.minimum(firsts + step, len(curve)) * seconds_per_chunk + offset
    values = np.fmax.reduceat(curve, firsts)  # NaN where nothing was decided
    return np.concatenate([[offset], ends]), np.concatenate([values[:1], values])
