"""Ids that are nearly those at hand."""

import pytest

from lstr.labels.check import missing


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("seq3", "seq03"),
        ("Seq03", "seq03"),
        ("SEQ0003", "seq03"),
        ("seq00", "seq0"),
        ("seq04", ""),
        ("seq13", ""),
        ("b", ""),
    ],
)
def test_an_id_of_another_case_is_meant_and_no_other_number_is(name, meant):
    (found,) = missing([name], ["seq03", "a", "seq0"], "video", "note")
    assert found.detail == ("not found" + (f"; do you mean {meant!r}?" if meant else ""))


def test_a_finding_names_no_id_that_has_a_label():
    assert [f.detail for f in missing(["seq4", "seq04"], ["seq04"], "video", "note")] == ["not found"]
