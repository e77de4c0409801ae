"""The labelled piece of time, and its JSON."""

from lstr.labels.segment import Segment, mistake


def test_the_json_of_a_segment():
    labelled, detected = Segment(0.25, 1.5, "kick"), Segment(0.25, 1.5, "kick", 0.75)
    assert list(labelled.to_dict().items()) == [("label", "kick"), ("start", 0.25), ("end", 1.5)]
    assert detected.to_dict() == {"label": "kick", "start": 0.25, "end": 1.5, "score": 0.75}
    assert [Segment.from_dict(segment.to_dict()) for segment in (labelled, detected)] == [labelled, detected]


def test_a_wrong_segment_exists_so_that_it_can_be_named():
    wrong = {
        "negative length": Segment(2, 1, "A"),
        "before the start": Segment(-1, 1, "A"),
        "unknown class": Segment(0, 1, "B"),
    }
    for kind, segment in wrong.items():
        found = mistake(segment, ("A",))
        assert found is not None and found.kind == kind and found.hint
    assert mistake(Segment(1, 1, "A"), ("A",)) is None, "of no length, which is odd and usable"
