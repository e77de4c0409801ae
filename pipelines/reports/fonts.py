"""Fonts for labels in pictures: for each letter the first font of this machine that has it. OpenCV draws them."""

import threading
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.errors import few
from lstr.pipelines.reports.font_file import letters_in

FIRST = "sans"  # OpenCV's own, the same on every machine: Latin, Cyrillic, Arabic, Hebrew and common signs
UNSEEN = ("Cc", "Cf", "Mn", "Me", "Zl", "Zp", "Zs")  # general categories that need no glyph of their own
FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "/Library/Fonts", "/System/Library/Fonts")
OWN_FOLDERS = (".fonts", ".local/share/fonts", "Library/Fonts")
"""Where fonts are on Linux and macOS, and in a person's home"""
SUFFIXES = (".ttf", ".otf", ".ttc")
ODD = ("bold", "italic", "oblique", "light", "thin", "black", "mono", "serif", "condensed", "narrow", "math")
WEIGHT = 400  # of the first font, which has all weights
SHARE = 0.93  # of the size of letters is what OpenCV calls their size
BASE = 1.0  # of the size, above the line that letters stand on
_drawing = threading.Lock()


def font_of(letter: str) -> str | None:
    """The font to draw a letter with, its path or FIRST; None where no font here has it."""
    if unicodedata.category(letter) in UNSEEN or _is_drawn(letter, FIRST):
        return FIRST
    having = (str(path) for path in _other_fonts() if ord(letter) in _letters_of(path))
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
    """The coverage (height, width) of a line of text, 0 to 1; letters stand on the row `base_of(size)`."""
    parts = [(part, font, _advance(part, font, size)) for part, font in parts_by_font(text)]
    image = np.zeros((round(size * 1.4), max(1, sum(width for _, _, width in parts)) + 2), np.uint8)
    x = 0
    for part, font, width in parts:
        _draw(image, part, font, size, (x, base_of(size)))
        x += width
    return np.divide(image, 255, dtype=np.float32)


def base_of(size: int) -> int:
    """The row of a picture of letters that they stand on."""
    return round(size * BASE)


def width_of(text: str, size: float) -> float:
    """How wide a line of text is, in the unit of its size."""
    fine = 64
    return sum(_advance(part, font, fine) for part, font in parts_by_font(text)) * size / fine


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
def _other_fonts() -> list[Path]:
    """The fonts of this machine that can be drawn with, upright ones of usual weight first."""
    places = [*map(Path, FOLDERS), *(Path.home() / folder for folder in OWN_FOLDERS)]
    if (plotting := find_spec("matplotlib")) and plotting.origin:  # which brings Greek and signs
        places.append(Path(plotting.origin).parent / "mpl-data" / "fonts" / "ttf")
    found = {path for place in places for path in place.rglob("*") if path.suffix.lower() in SUFFIXES}
    return sorted(found, key=lambda path: (sum(word in path.name.lower() for word in ODD), path.name, path))


@cache
def _letters_of(path: Path) -> frozenset[int]:
    return letters_in(path)
