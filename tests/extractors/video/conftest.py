"""Clips of noise, on clocks that follow one another and others."""

import pytest

from tests.support.clips import clip


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("clips")
    return {
        "first": clip(folder / "first.ts"),
        "next": clip(folder / "next.ts", 2),
        "in an hour": clip(folder / "hour.ts", 3602),
        "larger and slower": clip(folder / "larger.ts", 2, rate=15, size=(128, 96)),
        "longer": clip(folder / "longer.ts", seconds=6),
        "folder": folder,
    }
