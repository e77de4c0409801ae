"""Several spellings of one class are asked about."""

import pytest

from lstr.labels.check import check
from lstr.labels.label_set import Labels, VideoLabels
from lstr.labels.segment import Segment


def questions(*names: str) -> list[str]:
    segments = tuple(Segment(at, at + 0.5, name) for at, name in enumerate(names))
    labels = Labels(("Background", *dict.fromkeys(names)), {"a": VideoLabels("training", None, segments)})
    return [found.detail for found in check(labels) if found.kind == "spellings"]


@pytest.mark.parametrize(
    "names",
    [
        ("Fall", "fall", "FALL"),
        ("Stürzen", "stu\u0308rzen", "sturzen"),
        ("high jump", "high_jump", "HighJump"),
        ("Straße", "STRASSE"),
    ],
)
def test_case_accents_and_spaces_make_no_other_class(names):
    (question,) = questions(names[0], *names, "other")
    assert question.startswith(f"are these one class? {names[0]!r} (2), ")
    assert all(repr(name) in question for name in names) and f"={names[0]}" in question
    assert "-o labels.json" not in question, "FILE may be that one, and a project with comments and keys"


@pytest.mark.parametrize(
    "names", [("fall", "falls"), ("か", "が"), ("कि", "की"), ("-", "_"), ("Background", "background")]
)
def test_other_words_are_other_classes(names):
    assert not questions(*names)
