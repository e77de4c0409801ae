"""Drawings as files of a report and as parts of its page, which may be dark."""

from pathlib import Path

from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.reports.palette import dark, light

DARK = {light(name): dark(name) for name in ("ink", "soft", "line")}
"""What each colour that carries no data becomes on a dark page"""


def for_page(svg: bytes) -> bytes:
    """An SVG that takes the dark colours where its reader prefers them."""
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
    return svg.replace(b"<defs>", f"{style}<defs>".encode(), 1)


def keep_drawing(folder: Path, name: str, svg: bytes, png: bytes) -> bytes:
    """The SVG for a page; it is now in `folder`/figures beside its PNG. Raises OutputError."""
    for form, content in (("svg", svg), ("png", png)):
        with replacing(folder / "figures" / f"{name}.{form}") as temporary:
            temporary.write_bytes(content)
    return for_page(svg)


def short(name: str, letters: int) -> str:
    """A name of at most so many letters, the last of which is then …"""
    return name if len(name) <= letters else name[: letters - 1] + "…"
