"""The labelled piece of time, and its JSON."""

from lstr.labels.segment import Segment


def test_the_json_of_a_segment():
    labelled, detected = Segment(0.25, 1.5, "kick"), Segment(0.25, 1.5, "kick", 0.75)
    assert list(labelled.to_dict().items()) == [("label", "kick"), ("start", 0.25), ("end", 1.5)]
    assert detected.to_dict() == {"label": "kick", "start": 0.25, "end": 1.5, "score": 0.75}
    assert [Segment.from_dict(segment.to_dict()) for segment in (labelled, detected)] == [labelled, detected]
