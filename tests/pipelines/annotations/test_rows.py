"""Rows of tables that have more cells than the header, by a decimal comma or by something else."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.pipelines.annotations.annotation import AnnotationError
from lstr.pipelines.annotations.formats import read_annotations
from lstr.pipelines.annotations.tables import from_csv
from tests.support.annotated import segments

PLAIN = "video,start,end,label"


@pytest.mark.parametrize(
    ("header", "rows", "line", "number"),
    [
        (PLAIN, "a,2,5,4,0,fall", 2, "2,5"),
        (PLAIN, "a,2,4,fall\na,2,5,4,fall", 3, "5,4"),
        (PLAIN, "a,2,4,5,fall", 2, "4,5"),
        (PLAIN, "a,2,5,,fall", 2, "2,5"),
        (PLAIN, "a,2,5,4,0,", 2, "2,5"),
        (PLAIN, "a, 2,5, 4,0, fall,,", 2, "2,5"),
        (PLAIN, 'a,"2,5",4,0,fall', 2, "4,0"),
        (PLAIN, 'a,2,5,4,0,"fall, hard"', 2, "2,5"),
        (PLAIN, "a,2,5,4,0,fall, hard", 2, "2,5"),
        (PLAIN, "a,2,4,fall, hard\nb,2,5,4,0,fall", 3, "2,5"),
        (PLAIN, "a,2.5,4,0,fall", 2, "4,0"),
        (PLAIN, "a,0:02,5,0:04,0,fall", 2, "0:02,5"),
        (PLAIN, "a,2,5,4,0,3\na,2,4,3", 2, "2,5"),
        (f"{PLAIN},remark", "a,2,5,4,0,fall,nice", 2, "2,5"),
        (f"{PLAIN},remark", "a,2,4,fall\na,2,5,4,0,fall", 3, "2,5"),
        (f"{PLAIN},score", "a,2,4,fall,0,87", 2, "0,87"),
        (f"{PLAIN},subset", "a,2,5,4,0,fall,training", 2, "2,5"),
        ("video,duration,start,end,label", "a,5,33,2,73,3,73,fall", 2, "5,33"),
        ("video,fps,start,end,label", "a,29,97,2,5,4,0,fall", 2, "29,97"),
        ("video,start,duration,label", "a,2,5,4,0,fall", 2, "2,5"),
        ("label,start,end", "fall,2,5,4,0", 2, "2,5"),
        ("video,start1,end1,label1,start2,end2,label2", "a,2,5,4,0,fall,5,0,6,0,sit", 2, "2,5"),
        ("video,fall_start,fall_end", "a,2,5,4,0", 2, "2,5"),
        (PLAIN, 'a,2,5,4,0,fall\nb,1,2,"fall', 2, "2,5"),
    ],
)
def test_a_decimal_comma_between_commas_is_named_by_its_line(header, rows, line, number):
    """2,5 to 4,0 was read as 2 to 5 s of the action '4'."""
    with pytest.raises(AnnotationError, match=f"^Line {line} has more cells .* where {number} is one number") as caught:
        from_csv(f"{header}\n{rows}\n", "x")
    assert "semicolons" in caught.value.hint and "quotation marks" in caught.value.hint


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        (PLAIN, "a,1,2,jump,nice", "'nice'"),
        (PLAIN, "a,1,2,jump,5,3", "'5,3'"),
        (PLAIN, "a,1,2,jump,,", ""),
        (PLAIN, 'a,"1,0","2,0",jump', ""),
        (f"{PLAIN},note", "a,1,2,jump,5,3", "'3'"),
        (f"{PLAIN},,", "a,1,2,jump,4,5", ""),
        ("label,start,end", "jump,1,2,0.9", "'0.9'"),
        ("label,start,end", "jump,1,2,x", "'x'"),
        (PLAIN.replace(",", ";"), "a;1,0;2,0;jump;5;6", "'5;6'"),
    ],
)
def test_what_else_a_row_has_too_much_is_said_and_not_read(header, row, said):
    read = from_csv(f"{header}\n{row}\n", "a")
    assert segments(read.videos["a"]) == [(1.0, 2.0, "jump")]
    assert [note.sentence for note in read.notes] == [
        f"line 2 has more cells than the header has names: {said} is not read"
    ] * bool(said)


def test_labels_that_are_numbers_stay_so():
    table = f"{PLAIN}\na,1,2,3\na,1,2,3,nice\n"
    assert segments(from_csv(table, "").videos["a"]) == [(1.0, 2.0, "3")] * 2


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.text('a1,;" ', min_size=1).filter(str.strip))))
def test_no_table_as_csv_writes_it_is_refused(rows):
    out = io.StringIO()
    csv.writer(out).writerows([PLAIN.split(","), *[("v", start, start + length, text) for start, length, text in rows]])
    videos = from_csv(out.getvalue(), "").videos
    found = [label for video in videos.values() for *_, label in segments(video)]
    assert sorted(found) == sorted(text.strip() for *_, text in rows)


def test_the_file_is_named(tmp_path):
    (tmp_path / "t.csv").write_text(f"{PLAIN}\na,2,5,4,0,fall\n")
    with pytest.raises(AnnotationError, match=r"t\.csv: Line 2 has more cells"):
        read_annotations(tmp_path / "t.csv")
