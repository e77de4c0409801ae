"""Ids that are nearly those at hand."""

import time

import pytest

from lstr.labels.check import missing
from lstr.labels.near_ids import NearIds


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("seq3", "seq03"),
        ("Seq03", "seq03"),
        ("SEQ0003", "seq03"),
        ("sq03", "seq03"),
        ("seqq03", "seq03"),
        ("sek03", "seq03"),
        ("seq04", ""),
        ("seq13", ""),
        ("sx03", ""),
        ("day 1/gme", "day 1/game"),
        ("day 2/game", ""),
        ("b", ""),
        ("", ""),
    ],
)
def test_an_id_one_letter_off_is_meant_and_no_other_number_is(name, meant):
    assert NearIds(["seq03", "day 1/game", "a"]).meant_by(name) == meant


def test_a_finding_names_the_id_that_no_label_has_yet():
    found = {
        f.video: f.detail for f in missing(["seq3", "seq04", "seq5"], ["seq03", "seq04", "seq05x"], "video", "note")
    }
    assert found == {"seq3": "not found; do you mean 'seq03'?", "seq5": "not found; do you mean 'seq05x'?"}
    assert [f.detail for f in missing(["seq4", "seq04"], ["seq04"], "video", "note")] == ["not found"]


def test_thousands_of_ids_are_looked_up_at_once():
    start = time.process_time()
    near = NearIds(f"recording_{i:05}_camera" for i in range(5000))
    assert near.meant_by("recording_4999_camera") == "recording_04999_camera"
    assert sum(bool(near.meant_by(f"other_{i}")) for i in range(5000)) == 0
    assert time.process_time() - start < 5
