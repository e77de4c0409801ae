"""Readers take time as the file is long: sixteen times the text is never 256 times the work."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from lstr.pipelines.annotations.thumos import CLASS_LINE
from tests.support.annotated import parse

SIZE, TIMES = 1024, 16
CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
TIER = "<TIER TIER_ID='t{}'>"
ANNOTATION = "<ANNOTATION><ALIGNABLE_ANNOTATION TIME_SLOT_REF1='a' TIME_SLOT_REF2='a'/></ANNOTATION>"


def elan(size: int, nested: bool) -> str:
    """Tiers within tiers, or side by side, each with one annotation; some 100 characters are a tier."""
    tiers = (TIER.format(i) + ANNOTATION + "</TIER>" * (not nested) for i in range(size // 100))
    slots = "<TIME_ORDER><TIME_SLOT TIME_SLOT_ID='a' TIME_VALUE='1'/></TIME_ORDER>"
    inside = "".join(tiers) + "</TIER>" * (size // 100 * nested)
    return f"<ANNOTATION_DOCUMENT>{slots}{inside}</ANNOTATION_DOCUMENT>"


def seconds(read: Callable[[str], object], text: str) -> float:
    """The least processor time of three, so that a pause in one does not count."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        read(text)
        taken.append(time.process_time() - start)
    return min(taken)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        pytest.param(partial(parse, "srt"), lambda size: CUE + "<b " * size, id="srt tags"),
        pytest.param(partial(parse, "srt"), lambda size: CUE + "{\\" * size, id="srt braces"),
        pytest.param(partial(parse, "vtt"), lambda size: "WEBVTT\n\n" + CUE + "<" * size, id="vtt"),
        pytest.param(partial(parse, "srt"), lambda size: CUE + "x" + "\n0:00:00" * size, id="srt without blank lines"),
        pytest.param(partial(parse, "srt"), lambda size: CUE + "x" + "\n \n" * size, id="srt of blank lines"),
        pytest.param(partial(parse, "csv"), lambda size: f"start,end,label,{'_ms' * size}x\n", id="csv"),
        pytest.param(CLASS_LINE.findall, lambda size: f"7 a{' ' * size}b", id="thumos"),
        pytest.param(partial(parse, "eaf"), lambda size: elan(20 * size, True), id="nested elan"),
        pytest.param(partial(parse, "eaf"), lambda size: elan(100 * size, False), id="elan of many tiers"),
    ],
)
def test_work_grows_as_the_text(read, text):
    assert seconds(read, text(TIMES * SIZE)) < 80 * max(seconds(read, text(SIZE)), 1e-4)
