"""Letters that the usual font does not have."""

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

from lstr.pipelines.pages import overlay
from lstr.pipelines.pages.overlay import FIRST_FONT, font_of, illegible_warning, letters

DIVE = "𓀀𓂀"
"""Letters that hardly a font has"""


@pytest.fixture
def machine(monkeypatch):
    """machine(fonts): this machine has these fonts beside the first one, and no others."""

    def have(*paths):
        letters.cache_clear()
        font_of.cache_clear()
        monkeypatch.setattr(overlay, "_other_fonts", lambda: [*map(str, paths)])

    yield have
    letters.cache_clear()
    font_of.cache_clear()


@pytest.fixture
def squares(tmp_path):
    """A font that has the two letters alone: the first a full square, the second a low bar."""
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "full", "low"])
    builder.setupCharacterMap({ord(DIVE[0]): "full", ord(DIVE[1]): "low", 0x105: "low"})
    drawn = {".notdef": TTGlyphPen(None).glyph()}
    for name, top in (("full", 800), ("low", 100)):
        pen = TTGlyphPen(None)
        for i, point in enumerate([(0, 0), (0, top), (1000, top), (1000, 0)]):
            (pen.lineTo if i else pen.moveTo)(point)
        pen.closePath()
        drawn[name] = pen.glyph()
    builder.setupGlyf(drawn)
    builder.setupHorizontalMetrics({name: (1000, 0) for name in drawn})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Two Squares", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "squares.ttf")
    return tmp_path / "squares.ttf"


def test_each_letter_has_a_font_that_has_it(machine, squares, tmp_path):
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    machine(tmp_path / "broken.ttf", squares)
    assert {font_of(letter) for letter in DIVE} == {str(squares)}
    assert {font_of(letter) for letter in "Dive!مé\u200d?"} == {FIRST_FONT}
    assert "𓃠" in illegible_warning(["kick", DIVE, "𓃠"])
    start, ink = len(letters("a", 20)[0]) - 2, letters(f"a{DIVE}", 20)
    middle = (start + len(ink[0])) // 2
    assert ink[:, start:middle].sum() > 5 * ink[:, middle:].sum() > 0, "the square, and the bar"
    machine()
    assert font_of(DIVE[0]) is None and illegible_warning(["kick", "é"]) == ""
    assert DIVE in illegible_warning(["kick", DIVE])
    assert not np.array_equal(letters(f"a{DIVE}", 20)[:, :30], ink[:, :30])
