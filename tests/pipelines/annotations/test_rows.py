"""Rows of tables that have more cells than the header, by a decimal comma or by something else."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.errors import LabelsError
from lstr.pipelines.annotations.csv_tables import from_csv
from tests.support.annotated import segments

PLAIN = "video,start,end,label"


@pytest.mark.parametrize(
    ("rows", "line", "cell"),
    [
        ("a,2,5,4,0,fall", 2, "0"),
        ("a,2,4,fall\na,2,5,4,fall", 3, "fall"),
        ('a,"2,5",4,0,fall', 2, "fall"),
        ("a,2,4,fall, hard", 2, " hard"),
        ("a,2,4,fall,,much", 2, ""),
    ],
)
def test_cells_without_a_header_are_named_by_their_line(rows, line, cell):
    """2,5 to 4,0 was read as 2 to 5 s of the action '4'."""
    words = f"^Line {line} has more cells than the header has names, the first of which is {cell!r}"
    with pytest.raises(LabelsError, match=words) as caught:
        from_csv(f"{PLAIN}\n{rows}\n", "x")
    assert "semicolons" in caught.value.hint and "first line" in caught.value.hint


@pytest.mark.parametrize(
    "table",
    [
        f"{PLAIN}\na,1,2,jump,,\n",
        f'{PLAIN}\na,"1,0","2,0",jump\n',
        f"{PLAIN},,\na,1,2,jump,4,5\n",
        "video;start;end;label\na;1,0;2,0;jump",
    ],
)
def test_empty_cells_and_quoted_commas_are_read(table):
    assert segments(from_csv(table, "a").videos["a"]) == [(1.0, 2.0, "jump")]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.text('a1,;" ', min_size=1).filter(str.strip))))
def test_no_table_as_csv_writes_it_is_refused(rows):
    out = io.StringIO()
    csv.writer(out).writerows([PLAIN.split(","), *[("v", start, start + length, text) for start, length, text in rows]])
    videos = from_csv(out.getvalue(), "").videos
    found = [label for video in videos.values() for *_, label in segments(video)]
    assert sorted(found) == sorted(text.strip() for *_, text in rows)
