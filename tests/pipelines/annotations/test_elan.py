"""ELAN: as pympi reads it, and back."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pympi
import pytest

from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.label_files import read_annotations, read_label_file
from tests.support.annotated import ANNOTATED, CLASSES, parse, scored, segments, write


def test_pympi_reads_a_tier_per_class_and_scores_below(tmp_path):
    path = tmp_path / "a.eaf"
    path.write_text(write("eaf", ANNOTATED), encoding="utf-8")
    eaf = pympi.Elan.Eaf(str(path))
    tiers = {name: eaf.get_annotation_data_for_tier(name) for name in eaf.get_tier_names()}
    assert set(CLASSES) < set(tiers) and tiers["idle"] == []
    assert [row[:3] for row in tiers["wave"]] == [(0, 1250, "wave")]
    assert [row[:3] for row in tiers["wave (2)"]] == [(500, 2000, "wave")], "a tier cannot overlap with itself"
    assert tiers["東京"][0][:2] == (3599750, 3661500)
    assert eaf.get_ref_annotation_data_for_tier("<script> score")[0][2] == "0.5"
    assert set(eaf.get_linguistic_type_names()) == {"action", "score"}
    assert eaf.get_child_tiers_for("wave") == ["wave score"]
    media = eaf.media_descriptors[0]
    assert media["MEDIA_URL"] == Path("videos/a b.mp4").absolute().as_uri() and media["MIME_TYPE"] == "video/mp4"


def test_tiers_have_distinct_names():
    video = VideoLabels(segments=(Segment(0, 2, "a", 0.5), Segment(1, 3, "a", 0.5), Segment(1, 2, "a (2)", 0.5)))
    text = write("eaf", AnnotationSet({"x": video}, ("a", "a (2)", "a score")))
    names = [tier.get("TIER_ID") for tier in ET.fromstring(text.encode()).iter("TIER")]
    assert len(names) == len(set(names)) and scored(parse("eaf", text).videos["x"]) == scored(video)


def test_characters_that_xml_does_not_allow_are_replaced():
    text = write("eaf", AnnotationSet({"a": VideoLabels(segments=(Segment(0, 1, "a\x00b"),))}))
    assert parse("eaf", text).classes == ("a\N{REPLACEMENT CHARACTER}b",)


def elan(media: str) -> str:
    """Return a file with one annotation, without a value, in the tier `jump`, and a note below it."""
    return f"""<ANNOTATION_DOCUMENT><HEADER>{media}</HEADER><TIME_ORDER>
    <TIME_SLOT TIME_SLOT_ID="t1" TIME_VALUE="500"/><TIME_SLOT TIME_SLOT_ID="t2" TIME_VALUE="900"/></TIME_ORDER>
    <TIER TIER_ID="jump"><ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a" TIME_SLOT_REF1="t1" TIME_SLOT_REF2="t2">
    <ANNOTATION_VALUE></ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION></TIER>
    <TIER TIER_ID="note" PARENT_REF="jump"><ANNOTATION><REF_ANNOTATION ANNOTATION_ID="b" ANNOTATION_REF="a">
    <ANNOTATION_VALUE>nice</ANNOTATION_VALUE></REF_ANNOTATION></ANNOTATION></TIER></ANNOTATION_DOCUMENT>"""


def medium(name: str, origin: str = "") -> str:
    return f'<MEDIA_DESCRIPTOR MEDIA_URL="file:///films/{name}" {origin and f"TIME_ORIGIN={origin!r}"}/>'


SEVERAL = medium("sound.wav", "9000") + medium("front.mp4", "2250") + medium("side.mp4")


@pytest.mark.parametrize(
    ("name", "media", "start", "has_note"),
    [("front", medium("front.mp4", "2250"), 2.75, False), ("front", SEVERAL, 2.75, True), ("side", SEVERAL, 0.5, True)],
)
def test_times_are_relative_to_the_start_of_the_video(tmp_path, name, media, start, has_note):
    """ELAN cuts a medium before its time origin; annotations begin there at 0."""
    (tmp_path / f"{name}.eaf").write_text(elan(media))
    annotated = read_annotations(tmp_path / f"{name}.eaf")
    assert segments(annotated.videos[name]) == [(start, round(start + 0.4, 9), "jump")]
    notes = {note.kind: note.sentence for note in annotated.notes}
    assert ("several media" in notes) == has_note and "2.25 s" in notes.get("several media", "2.25 s")
    assert "'note'" in notes["without times"]


@pytest.mark.parametrize(
    ("present", "expected"), [({"clip 1"}, "clip 1"), ({"day/clip 1"}, "a_JS"), ({"a_JS", "clip 1"}, "a_JS")]
)
def test_the_medium_names_the_video_if_no_video_has_the_name_of_the_file(tmp_path, present, expected):
    (tmp_path / "a_JS.eaf").write_text(elan('<MEDIA_DESCRIPTOR MEDIA_URL="file:///C:/films/clip%201.mp4"/>'))
    labels = read_label_file(tmp_path / "a_JS.eaf", present=present)
    assert list(labels.videos) == [expected]
    assert any(note.kind == "id of the media" for note in labels.notes) == (expected != "a_JS")
