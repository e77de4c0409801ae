"""Letters that the usual font does not have."""

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from matplotlib.font_manager import findfont

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
def other(tmp_path):
    """A font that has the two letters alone: the first looks like an M, the second like a full stop."""
    font = TTFont(findfont("DejaVu Sans"))
    font["cmap"].tables = [table for table in font["cmap"].tables if table.format == 12]
    for table in font["cmap"].tables:
        table.cmap = {ord(DIVE[0]): "M", ord(DIVE[1]): "period", 0x105: "period"}
    font.save(tmp_path / "other.ttf")
    return tmp_path / "other.ttf"


def test_each_letter_has_a_font_that_has_it(machine, other, tmp_path):
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    machine(tmp_path / "broken.ttf", other)
    assert {font_of(letter) for letter in DIVE} == {str(other)}
    assert {font_of(letter) for letter in "Dive!مé\u200d?"} == {FIRST_FONT}
    assert "𓃠" in illegible_warning(["kick", DIVE, "𓃠"])
    start, ink = len(letters("a", 20)[0]) - 2, letters(f"a{DIVE}", 20)
    assert ink[: len(ink) // 2, start:].sum() > 0
    machine()
    assert font_of(DIVE[0]) is None and illegible_warning(["kick", "é"]) == ""
    assert DIVE in illegible_warning(["kick", DIVE])
    assert not np.array_equal(letters(f"a{DIVE}", 20)[:, :30], ink[:, :30])
