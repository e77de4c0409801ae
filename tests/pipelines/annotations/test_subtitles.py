"""Subtitles: as other parsers read them, and back."""

import io

import pytest
import webvtt

from lstr.errors import LabelsError
from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from tests.support.annotated import ONE, parse, segments, write


def test_webvtt_py_reads_the_vtt():
    captions = webvtt.from_buffer(io.StringIO(write("vtt", ONE))).captions
    assert [(c.start, c.end) for c in captions[-2:]] == [
        ("00:59:59.750", "01:01:01.500"), ("01:01:01.500", "01:01:02.000")
    ]  # fmt: skip
    assert captions[0].text == "wave" and captions[0].identifier == "1 score=0.875"
    assert captions[2].raw_text == "&lt;script&gt;" and len(captions) == 7


def test_what_others_write():
    """Notes, styles, settings, tags, entities, hours left out, CRLF, a byte order mark kept out by the reader."""
    text = (
        "WEBVTT - some title\r\nKind: captions\r\n\r\nNOTE 00:01.000 --> 00:02.000 is no cue\r\n\r\n"
        "STYLE\r\n::cue { color: red }\r\n\r\nintro\r\n00:01.500 --> 00:00:02.000 align:start position:0%\r\n"
        "<v Anna><c.big>long &amp; high</c>\r\njump\r\n"
    )
    assert parse("vtt", text).first[1].segments == (Segment(1.5, 2.0, "long & high jump"),)
    bold = parse("srt", "1\n00:00:01,5 --> 00:00:02,000\n<b>jump</b>\n")
    assert bold.first[1].segments == (Segment(1.5, 2.0, "jump"),)


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("vtt", "1\n00:00:01.000 --> 00:00:02.000\nx", "begin with WEBVTT"),
        ("vtt", "WEBVTT\n\nlate --> later\nx", "not a cue's times"),
        ("srt", "a letter", "holds no cue"),
    ],
)
def test_what_is_no_subtitle(form, text, words):
    with pytest.raises(LabelsError, match=words) as caught:
        parse(form, text)
    assert caught.value.hint


CUE = "1\n00:00:01,000 --> 00:00:02,000\njump\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{CUE}\n2\n00:00:04,270 -> 00:00:07,430\nsit\n", "Line 6: '00:00:04,270 -> "),
        (f"{CUE} \t\n\n\n00:00:04,270 00:00:07,430\nsit\n", "Line 7: "),
        (f"{CUE}\n2\n 0:0:4,2\nsit", "Line 6: "),
        (f"{CUE}\r\n2\r\n00:00:04,270 --> 7\r\nsit\r\n", "Line 6: "),
        (f"{CUE}2\n00:00:04,270 --> 00:00:07,430\nsit\n", "Line 5: no blank line is before this cue"),
    ],
)
def test_damaged_times_of_a_cue_are_named_by_their_line(text, words):
    for form, whole, more in (("srt", text, 0), ("vtt", f"WEBVTT\n\n{text}", 2)):
        line = words[5 : words.index(":")]
        with pytest.raises(LabelsError, match=words.replace(f"Line {line}", f"Line {int(line) + more}")) as caught:
            parse(form, whole)
        assert caught.value.hint


@pytest.mark.parametrize("block", ["NOTE", "STYLE", "REGION", "NOTE so", "at 00:01.500"])
def test_blocks_of_other_text_are_left_out(block):
    video = parse("vtt", f"WEBVTT\n\n{block}\nid: 0:01.500 0:02.500\n\n{CUE}")
    assert segments(video.first[1]) == [(1.0, 2.0, "jump")]


def test_a_cue_ends_after_it_starts():
    moment = VideoLabels(segments=(Segment(2.0, 2.0, "blink"),))
    assert parse("vtt", write("vtt", AnnotationSet({"a": moment}))).first[1].segments[0].end > 2.0
