"""How figures for a paper and a page are drawn: matplotlib, text as text, the same in light and dark."""

import io
import warnings
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.reports.palette import dark, light

INK, SOFT, LINE = map(light, ("ink", "soft", "line"))
DARK = {light(name): dark(name) for name in ("ink", "soft", "line")}
"""What each colour that carries no data becomes on a dark page"""
WIDTH = 4.2  # inches: letters of 9 points stay legible where a phone shows the page 400 pixels wide
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
    """The figure's SVG for a page; it is now in `folder`/figures beside its PNG. Raises OutputError."""
    svg = render(figure, "svg")
    for form, content in (("svg", svg), ("png", render(figure, "png"))):
        with replacing(folder / "figures" / f"{name}.{form}") as temporary:
            temporary.write_bytes(content)
    return for_page(svg)


def for_page(svg: bytes) -> bytes:
    """An SVG that takes the dark colours where its reader prefers them."""
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
    return svg.replace(b"<defs>", f"{style}<defs>".encode(), 1)
