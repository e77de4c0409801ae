"""Fonts for labels in pictures: for each letter the first font of this machine that has it. OpenCV draws them."""

import threading
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.errors import few

FIRST = "sans"  # OpenCV's own, the same on every machine: Latin, Cyrillic, Arabic, Hebrew and common signs
UNSEEN = ("Cc", "Cf", "Mn", "Me", "Zl", "Zp", "Zs")  # general categories that need no glyph of their own
ODD = ("bold", "italic", "oblique", "light", "thin", "black", "mono", "serif", "condensed", "narrow", "math")
WEIGHT = 400  # of the first font, which has all weights
SHARE = 0.93  # of the size of letters is what OpenCV calls their size
_drawing = threading.Lock()


def font_of(letter: str) -> str | None:
    """The font to draw a letter with, its path or FIRST; None where no font here has it."""
    if unicodedata.category(letter) in UNSEEN or _is_drawn(letter, FIRST):
        return FIRST
    having = (path for path in _other_fonts() if ord(letter) in _letters_of(path))
    return next((font for font in having if _is_drawn(letter, font)), None)


def parts_by_font(text: str) -> list[tuple[str, str]]:
    """A text in parts of one font each; letters that no font has are in FIRST, which shows question marks."""
    return [("".join(part), font) for font, part in groupby(text, lambda letter: font_of(letter) or FIRST)]


def illegible_warning(labels: Iterable[str]) -> str:
    """A sentence that says which labels cannot be written in pictures, for no font here has a letter; else empty."""
    unknown = [label for label in labels if any(font_of(letter) is None for letter in label)]
    if not unknown:
        return ""
    named = few(unknown)
    return (
        f"no font here has all letters of {named}: pictures show question marks instead. "
        "`apt-get install fonts-noto` brings most letters."
    )


@lru_cache(maxsize=1024)
def letters(text: str, size: int) -> NDArray[np.float32]:
    """The coverage (height, width) of a line of text, 0 to 1; letters stand on the row `size`."""
    parts = [(part, font, _advance(part, font, size)) for part, font in parts_by_font(text)]
    image = np.zeros((round(size * 1.4), max(1, sum(width for _, _, width in parts)) + 2), np.uint8)
    x = 0
    for part, font, width in parts:
        _draw(image, part, font, size, (x, size))
        x += width
    return np.divide(image, 255, dtype=np.float32)


def _advance(text: str, font: str, size: int) -> int:
    """How far a part of one font goes on, in pixels."""
    return max(0, _draw(np.zeros((1, 1), np.uint8), text, font, size, (0, 0)))


def _draw(image: NDArray[np.uint8], text: str, font: str, size: int, where: tuple[int, int]) -> int:
    """Draw a part of one font in white, from the left end of its line at (column, row): the column of its end."""
    with _drawing:  # faces are shared by the threads
        end, _ = cv2.putText(image, text, where, (255,), _face_of(font), max(1, round(size * SHARE)), WEIGHT)
    return int(end[0])


@lru_cache(maxsize=8)
def _face_of(font: str) -> cv2.FontFace:
    return cv2.FontFace(font)


@cache
def _is_drawn(letter: str, font: str) -> bool:
    """Whether OpenCV draws the letter by itself: what a font lacks is a question mark, or nothing."""
    found, question = (np.zeros((60, 90), np.uint8) for _ in range(2))
    _draw(found, letter, font, 30, (20, 40))
    _draw(question, "?", font, 30, (20, 40))
    return bool(found.any()) and (letter == "?" or not np.array_equal(found, question))


@lru_cache(maxsize=1)
def _other_fonts() -> list[str]:
    """The fonts of this machine that Matplotlib finds, upright ones of usual weight first; none without it."""
    if find_spec("matplotlib") is None:
        return []
    from matplotlib.font_manager import fontManager  # which looks through the machine at its first use

    paths = {font.fname for font in fontManager.ttflist}
    return sorted(paths, key=lambda path: (sum(word in Path(path).name.lower() for word in ODD), path))


@cache
def _letters_of(path: str) -> frozenset[int]:
    """The code points that a font has glyphs for."""
    from matplotlib.font_manager import get_font

    with suppress(OSError, RuntimeError):  # a damaged file
        return frozenset(get_font(path).get_charmap())
    return frozenset()
