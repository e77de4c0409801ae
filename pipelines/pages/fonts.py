"""Fonts for labels in images and videos: for each letter the first font of this machine that has it. OpenCV draws."""

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

FIRST = "sans"  # built into OpenCV, the same on every machine: Latin, Cyrillic, Arabic, Hebrew and common signs
INVISIBLE = ("Cc", "Cf", "Mn", "Me", "Zl", "Zp", "Zs")  # general categories that need no glyph of their own
ODD = ("bold", "italic", "oblique", "light", "thin", "black", "mono", "serif", "condensed", "narrow", "math")
WEIGHT = 400  # of the first font, which has all weights
SHARE = 0.93  # of the size of letters that OpenCV calls their size
_drawing = threading.Lock()  # threads share the faces


@cache
def font_of(letter: str) -> str | None:
    """Return the font to draw a letter with, its path or FIRST; None if no font has it."""
    if unicodedata.category(letter) in INVISIBLE:
        return FIRST
    for font in (FIRST, *(path for path in _other_fonts() if ord(letter) in _letters_of(path))):
        # OpenCV draws a letter that a font lacks as a question mark, or not at all
        found, question = (np.zeros((60, 90), np.uint8) for _ in range(2))
        _draw(found, letter, font, 30, (20, 40))
        _draw(question, "?", font, 30, (20, 40))
        if found.any() and (letter == "?" or not np.array_equal(found, question)):
            return font
    return None


def parts_by_font(text: str) -> list[tuple[str, str]]:
    """Split a text into parts of one font each; letters without a font are in FIRST, which draws question marks."""
    return [("".join(part), font) for font, part in groupby(text, lambda letter: font_of(letter) or FIRST)]


def illegible_warning(labels: Iterable[str]) -> str:
    """Return a sentence naming the labels that cannot be drawn because no font has a letter; else empty."""
    unknown = [label for label in labels if any(font_of(letter) is None for letter in label)]
    if not unknown:
        return ""
    return (
        f"no font here has all letters of {few(unknown)}: pictures show question marks instead. "
        "`apt-get install fonts-noto` brings most letters."
    )


@lru_cache(maxsize=1024)
def letters(text: str, size: int) -> NDArray[np.float32]:
    """Return the coverage (height, width) of a line of text, 0 to 1; its baseline is the row `size`."""
    parts, width = [], 0
    for part, font in parts_by_font(text):
        parts.append((part, font, width))
        width += max(0, _draw(np.zeros((1, 1), np.uint8), part, font, size, (0, 0)))
    image = np.zeros((round(size * 1.4), max(1, width) + 2), np.uint8)
    for part, font, x in parts:
        _draw(image, part, font, size, (x, size))
    return np.divide(image, 255, dtype=np.float32)


def _draw(image: NDArray[np.uint8], text: str, font: str, size: int, where: tuple[int, int]) -> int:
    """Draw text in white, from the left end of its baseline at (column, row); return the column of its end."""
    with _drawing:
        end, _ = cv2.putText(image, text, where, (255,), _face_of(font), max(1, round(size * SHARE)), WEIGHT)
    return int(end[0])


@lru_cache(maxsize=8)
def _face_of(font: str) -> cv2.FontFace:
    return cv2.FontFace(font)


@lru_cache(maxsize=1)
def _other_fonts() -> list[str]:
    """Return the fonts that Matplotlib finds, upright ones of usual weight first; empty without Matplotlib."""
    if find_spec("matplotlib") is None:
        return []
    from matplotlib.font_manager import fontManager  # it searches the machine at its first use

    paths = {font.fname for font in fontManager.ttflist}
    return sorted(paths, key=lambda path: (sum(word in Path(path).name.lower() for word in ODD), path))


@cache
def _letters_of(path: str) -> frozenset[int]:
    """Return the code points of a font."""
    from matplotlib.font_manager import get_font

    with suppress(OSError, RuntimeError):  # a damaged file
        return frozenset(get_font(path).get_charmap())
    return frozenset()
