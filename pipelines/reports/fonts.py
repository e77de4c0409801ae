"""Fonts for labels in pictures: for each letter the first font of this machine that has it."""

import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lstr.errors import few

FIRST = "DejaVuSans.ttf"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew and signs
UNSEEN = ("Cc", "Cf", "Mn", "Me", "Zl", "Zp", "Zs")  # general categories that need no glyph of their own


def font_of(letter: str) -> Path | None:
    """The font to draw a letter with; None where no font here has it."""
    if unicodedata.category(letter) in UNSEEN or ord(letter) in _letters_of(first_font()):
        return first_font()
    return next((path for path in _other_fonts() if ord(letter) in _letters_of(path)), None)


def parts_by_font(text: str) -> list[tuple[str, Path]]:
    """A text in parts of one font each; letters that no font has are in the first font, which shows them as boxes."""
    return [("".join(part), path) for path, part in groupby(text, lambda letter: font_of(letter) or first_font())]


def families(texts: Iterable[str]) -> list[str]:
    """Names of the fonts that some texts need, the first font's first, for matplotlib's `font.family`."""
    needed = [path for text in texts for _, path in parts_by_font(text)]
    return [_name_of(path) for path in dict.fromkeys([first_font(), *needed])]


def illegible_warning(labels: Iterable[str]) -> str:
    """A sentence that says which labels cannot be written in pictures, for no font here has a letter; else empty."""
    boxes = [label for label in labels if any(font_of(letter) is None for letter in label)]
    if not boxes:
        return ""
    named = few(boxes)
    return (
        f"no font here has all letters of {named}: pictures show boxes instead. "
        "`apt-get install fonts-noto` brings most letters."
    )


def first_font() -> Path:
    """The font that draws whatever it can."""
    from matplotlib import get_data_path

    return Path(get_data_path()) / "fonts" / "ttf" / FIRST


@lru_cache(maxsize=1024)
def letters(text: str, size: int) -> NDArray[np.float32]:
    """The coverage (height, width) of a line of text, 0 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    parts = [(part, ImageFont.truetype(str(path), size)) for part, path in parts_by_font(text)]
    widths = [font.getlength(part) for part, font in parts]
    image = Image.new("L", (max(1, round(sum(widths)) + 2), round(size * 1.4)))
    base = parts[0][1].getmetrics()[0] if parts else 0
    for (part, font), x in zip(parts, accumulate(widths, initial=0), strict=False):
        ImageDraw.Draw(image).text((x, base), part, fill=255, font=font, anchor="ls")
    return (np.asarray(image, np.float32) / 255).astype(np.float32)


@lru_cache(maxsize=1)
def _other_fonts() -> list[Path]:
    """The fonts of this machine that can be drawn with, upright ones of usual weight first."""
    from matplotlib import font_manager

    odd = ("bold", "italic", "oblique", "light", "thin", "black", "mono", "serif", "condensed", "narrow")
    found = map(Path, font_manager.findSystemFonts())
    return sorted(found, key=lambda path: (sum(word in path.name.lower() for word in odd), path.name))


@cache
def _name_of(path: Path) -> str:
    """A font's name, by which matplotlib knows it from now on."""
    from matplotlib import font_manager

    font_manager.fontManager.addfont(path)
    return font_manager.FontProperties(fname=path).get_name()


@cache
def _letters_of(path: Path) -> frozenset[int]:
    """The code points that a font has glyphs for; none where it cannot be drawn with at any size."""
    from matplotlib.ft2font import FT2Font
    from PIL import ImageFont

    try:
        ImageFont.truetype(str(path), 12)  # a font of coloured bitmaps has one size alone
        return frozenset(FT2Font(str(path)).get_charmap())
    except (OSError, RuntimeError, ValueError):
        return frozenset()
