"""The contract of the label formats: files are read back, those of other programs are read, damaged ones are errors."""

import io
import json
import re
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.errors import LabelsError, LstrError
from lstr.labels.check import check
from lstr.labels.label_set import THUMOS_CLASSES, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, ConvertOptions, format_named, writable
from lstr.pipelines.annotations.label_files import read_annotations, read_label_file
from lstr.pipelines.annotations.thumos import CLASS_LIST, thumos_numbers
from tests.support.annotated import ANNOTATED, AWKWARD, CLASSES, parse, scored, segments, videos, write

AT_25 = ConvertOptions(frames=25)
SCORES = {"with scores": st.sampled_from([0.125, 0.5, 0.8125, 1.0]), "without": st.none()}


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("name", writable())
def test_files_are_recognised_and_read_back(tmp_path_factory, name, scores):
    form, folder = format_named(name), tmp_path_factory.mktemp(name)

    @settings(max_examples=25, deadline=None)
    @given(videos(SCORES[scores]))
    def check_set(drawn):
        annotated = AnnotationSet({f"v{i}": video for i, video in enumerate(drawn)})
        holds = form.holds_with_scores if form.holds_with_scores and "scores" in annotated.extras() else form.holds
        place = Path(tempfile.mkdtemp(dir=folder))
        output = place / f"out{form.suffix}" if form.holds_many else place
        assert form.lost(annotated) == annotated.extras() - holds and form.write(output, annotated, DEFAULTS)
        held = {i: v for i, v in annotated.videos.items() if v.segments or "videos without segments" in holds}
        if not any(video.segments for video in annotated.videos.values()) and "videos without segments" not in holds:
            return
        read = read_annotations(output).videos
        for video_id, video in held.items():
            compare = scored if "scores" in holds else segments
            assert compare(read[video_id]) == compare(video)
            for fact in ("subset", "duration"):
                assert f"{fact}s" not in holds or getattr(read[video_id], fact) == getattr(video, fact)

    check_set()


CUE = "1\n00:00:01,000 --> 00:00:02,000\njump\n"
JUMP = [(1.0, 2.0, "jump")]
# notes, styles, settings, tags, entities, no hours
VTT = (
    "WEBVTT - some title\nKind: captions\n\nNOTE 00:01.000 --> 00:02.000 is a comment\n\n"
    "STYLE\n::cue { color: red }\n\nintro\n00:01.500 --> 00:00:02.000 align:start position:0%\n"
    "<v Anna><c.big>long &amp; high</c>\njump\n"
)
# of a run that was killed: the active action lasts until the last complete line
KILLED = (
    '{"chunk": 0, "time": 0.25, "label": "jump", "score": 0.9, "top": [], "latency_ms": 1}\n'
    '{"event": "started", "label": "jump", "time": 0.25, "start": 0.0, "score": 0.9}\n'
    '{"event": "expected", "label": "wave", "time": 0.25, "start": 0.5, "score": 0.6}\n'
    '{"chunk": 1, "time": 0.5, "label": "jump", "score": 0.9, "top": [], "latency_ms": 1}\n{"chunk": 2, "ti'
)


def label_studio_task(video: str, *annotations: tuple, **entries) -> dict:
    """Return a task of Label Studio; each annotation is (first frame, annotator, whether it was skipped)."""
    content = []
    for start, annotator, skipped in annotations:
        value = {"ranges": [{"start": start, "end": 50}], "timelinelabels": ["jump"]}
        result = [{"type": "timelinelabels", "value": value}, {"type": "choices", "value": {"choices": ["sharp"]}}]
        content.append({"completed_by": annotator, "was_cancelled": skipped, "result": result})
    return {"data": {"video": video}, "annotations": content, **entries}


@pytest.mark.parametrize(
    ("form", "content", "expected"),
    [
        ("vtt", VTT, [(1.5, 2.0, "long & high jump")]),
        *(
            ("vtt", f"WEBVTT\n\n{block}\nid: 0:01.500 0:02.500\n\n{CUE}", JUMP)
            for block in ("NOTE", "STYLE", "REGION", "NOTE so", "at 00:01.500")
        ),
        ("srt", "1\n00:00:01,5 --> 00:00:02,000\n<b>jump</b>\n", [(1.5, 2.0, "jump")]),
        ("jsonl", KILLED, [(0.0, 0.5, "jump")]),
        ("activitynet", {"database": {"v": {"annotations": [{"label": "jump", "segment": [1, 2]}]}}}, JUMP),
        ("activitynet", {"results": {"v": [{"label": "jump", "segment": [1, 2], "score": 0.5}]}}, JUMP),
    ],
)
def test_files_of_other_programs(form, content, expected):
    assert segments(parse(form, content).first[1]) == expected


SEGMENT = {"label": "fall", "start": 0.5, "end": 1.5, "score": 0.5}
TIMELINE = {"format": "lstr-timeline/1", "source": "v", "duration": 4, "classes": ["fall"], "segments": [SEGMENT]}
BROKEN_CUES = [  # of SubRip, and the line with the error
    (6, f"{CUE}\n2\n00:00:04,270 -> 00:00:07,430\nsit\n"),
    (7, f"{CUE} \t\n\n\n00:00:04,270 00:00:07,430\nsit\n"),
    (6, f"{CUE}\r\n2\r\n00:00:04,270 --> 7\r\nsit\r\n"),
    (5, f"{CUE}2\n00:00:04,270 --> 00:00:07,430\nsit\n"),
]


@pytest.mark.parametrize(
    ("form", "content", "value"),
    [
        *(("srt", text, f"Line {line}") for line, text in BROKEN_CUES),
        *(("vtt", f"WEBVTT\n\n{text}", f"Line {line + 2}") for line, text in BROKEN_CUES),
        ("vtt", "1\n00:00:01.000 --> 00:00:02.000\nx", "WEBVTT"),
        ("vtt", "WEBVTT\n\nlate --> later\nx", "late"),
        ("srt", "a letter", ""),
        ("csv", "start,end,label\n2,1,jump\n", "'x'"),
        ("json", {"format": "lstr-timeline/1"}, ""),
        ("json", TIMELINE | {"segments": [SEGMENT | {"start": None}]}, "start"),
        ("json", TIMELINE | {"segments": [SEGMENT | {"score": []}]}, "score"),
        ("jsonl", "{}\n" + KILLED, "Line 1 "),
        ("jsonl", json.dumps({"event": "ended", "label": "\ud800", "time": 2, "start": 1, "end": 2}), "ud800"),
        ("activitynet", {"results": {"v": [{"label": "jump", "segment": [1, 2], "score": "high"}]}}, "high"),
        ("activitynet", {"results": [], "external_data": {}}, ""),
        ("boris", "[" * 100_000, "JSON"),
        ("eaf", "no xml", ""),
        ("eaf", "<other/>", ""),
        ("eaf", write("eaf", ANNOTATED).replace('TIME_VALUE="0"', ""), ""),
        ("eaf", "<ANNOTATION_DOCUMENT><MEDIA_DESCRIPTOR TIME_ORIGIN='soon'/></ANNOTATION_DOCUMENT>", "'soon'"),
        ("labelstudio", [label_studio_task("v.mp4", (1, 1, False))], ""),  # the frame rate is unknown
        ("labelstudio", [7], ""),
        ("labelstudio", [{"data": []}], ""),
        ("labelstudio", [{"data": {"id": "v"}, "annotations": [7]}], ""),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path, form, content, value):
    path = tmp_path / f"x{format_named(form).suffix}"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(LabelsError) as caught:
        read_annotations(path, ConvertOptions(source_format=form))
    assert value in str(caught.value) and path.name in str(caught.value)


def test_wrong_segments_are_kept_for_a_check(tmp_path):
    (tmp_path / "a.csv").write_text("start,end,label\n2,1,jump\n")
    annotated = read_annotations(tmp_path / "a.csv", lenient=True)
    assert segments(annotated.videos["a"]) == [(2, 1, "jump")]


NINES = "9" * 400
ODD = (NINES, f"-{NINES}", "9" * 5000, "1e400", "-1e400", "NaN", "Infinity", "-5", "1e300", "null", '"x"', "[1]")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)")
TWO_CLASSES = VideoLabels("training", 10.0, (Segment(1.25, 3.5, "A"), Segment(4.75, 6.125, "B")), "v0.mp4")


@pytest.mark.parametrize("name", writable())
def test_odd_numbers_are_read_or_an_error(tmp_path, name):
    """Labels with an odd number, for example in a comment, can be checked and converted to targets."""
    text, path = write(name, AnnotationSet({"v0": TWO_CLASSES})), tmp_path / f"v0{format_named(name).suffix}"
    places = list(NUMBER.finditer(text))
    n_errors = 0
    for place in places[:: len(places) // 20 | 1]:
        for i, odd in enumerate(ODD):
            path.write_text(text[: place.start()] + odd + text[place.end() :])
            try:
                labels = read_label_file(path, lenient=(i + place.start()) % 2 == 0)
                check(labels)
                for video in labels.videos.values():
                    assert len(targets(video, labels.classes, 40)) == 40
            except LstrError as error:
                n_errors += 1
                assert error.hint and str(path) in str(error) and len(str(error)) < 700
    assert len(places) >= 4 and n_errors > 20


@pytest.mark.parametrize("codec", ["cp1252", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nStoß\n"),
        ("b.txt", "video\tstart\tend\tlabel\na\t1,5\t2\tStoß\n"),
        ("Stoß_val.txt", "Maß 1 2\n"),
    ],
)
def test_encodings_of_windows_are_read_with_a_note(tmp_path, name, text, codec):
    mark = "\ufeff" if codec.startswith("utf-16") else ""
    (tmp_path / name).write_bytes((mark + text.replace("\n", "\r\n")).encode(codec))
    for place in (tmp_path / name, tmp_path):
        annotated = read_annotations(place)
        assert annotated.classes == ("Stoß",) and annotated.notes[0].kind == "encoding"


@pytest.mark.parametrize("name", ["a.csv", "a.srt", "a.txt"])
@pytest.mark.parametrize(
    "content",
    [
        "video\tstart\tend\tlabel\r\na\t1\t2\tStoß\r\n".encode("utf-16-be"),
        "video,start,end,label\na,1,2,jump\n".encode("utf-16") + b"\0",
        "\ufeffvideo,start,end,label\na,1,2,\ud800\n".encode("utf-16-le", "surrogatepass"),
        "video,start,end,label\na,1,2,Zürich\0\n".encode("latin-1"),
        b"video,start,end,label\na,1,2,ju\0mp\n",
    ],
)
def test_zero_bytes_without_a_byte_order_mark_are_not_text(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabelsError, match=name) as caught:
        read_annotations(tmp_path / name)
    assert "UTF-8" in caught.value.hint and "\0" not in str(caught.value)


ELAN = "<ANNOTATION_DOCUMENT><TIME_ORDER><TIME_SLOT TIME_SLOT_ID='a' TIME_VALUE='1'/></TIME_ORDER>"
ANNOTATION = "<ANNOTATION><ALIGNABLE_ANNOTATION TIME_SLOT_REF1='a' TIME_SLOT_REF2='a'/></ANNOTATION>"


@pytest.mark.parametrize(
    ("form", "start", "repeated", "end"),
    [
        ("srt", CUE, "<b ", ""),
        ("srt", CUE, "{\\", ""),
        ("srt", f"{CUE}x", "\n0:00:00", ""),
        ("srt", f"{CUE}x", "\n \n", ""),
        ("vtt", f"WEBVTT\n\n{CUE}", "<", ""),
        ("csv", "start,end,label,", "_ms", "x\n"),
        ("eaf", ELAN, f"<TIER>{ANNOTATION}</TIER>", "</ANNOTATION_DOCUMENT>"),
    ],
)
def test_processor_time_is_not_quadratic(form, start, repeated, end):
    """Sixteen times the text must not take 256 times as long; the shortest processor time of three counts."""

    def seconds(n: int) -> float:
        times = []
        for _ in range(3):
            before = time.process_time()
            parse(form, start + repeated * n + end)
            times.append(time.process_time() - before)
        return min(times)

    assert seconds(8192) < 80 * max(seconds(512), 1e-4)


def test_webvtt_py_reads_the_vtt():
    captions = webvtt.from_buffer(io.StringIO(write("vtt", ANNOTATED))).captions
    times = [(c.start, c.end) for c in captions[-2:]]
    assert times == [("00:59:59.750", "01:01:01.500"), ("01:01:01.500", "01:01:02.000")]
    assert captions[0].text == "wave" and captions[0].identifier == "1 score=0.875"
    assert captions[2].raw_text == "&lt;script&gt;" and len(captions) == 7
    moment = AnnotationSet({"a": VideoLabels(segments=(Segment(2.0, 2.0, "blink"),))})
    assert parse("vtt", write("vtt", moment)).first[1].segments[0].end > 2.0, "a cue ends after it starts"


def test_activitynet_results():
    document = to_activitynet(ANNOTATED)
    assert document.keys() == {"version", "results", "external_data"}  # as ActivityNet's evaluation requires
    assert document["results"]["a b"][0] == {"label": "wave", "score": 0.875, "segment": [0.0, 1.25]}


@pytest.mark.parametrize(("fps", "chunk"), [(4, 0.25), (5, 0.2)])
def test_a_folder_of_targets_has_any_rate(tmp_path, fps, chunk):
    with pytest.raises(LabelsError):
        read_annotations(tmp_path, ConvertOptions(source_format="perframe"))
    classes = ["Background", "jump", "wave", "Ambiguous"]
    info = {"class_names": classes, "fps": fps, "train_session_set": ["a/1"]}
    (tmp_path / "data_info.json").write_text(json.dumps({"MINE": info, "OTHER": info}))
    (tmp_path / "target_perframe" / "a").mkdir(parents=True)
    targets = np.eye(4, dtype=np.float32)[[3, 1, 1, 2, 0, 0]]
    targets[1, 2] = 1
    np.save(tmp_path / "target_perframe" / "a" / "1.npy", targets)
    annotated = read_annotations(tmp_path)
    chunks = [(0, 1, "Ambiguous"), (1, 2, "wave"), (1, 3, "jump"), (3, 4, "wave")]
    expected = [(round(start * chunk, 9), round(end * chunk, 9), label) for start, end, label in chunks]
    ((video_id, video),) = annotated.videos.items()
    assert segments(video) == expected and annotated.classes == ("jump", "wave", "Ambiguous")
    assert (video_id, video.subset, video.duration) == ("a/1", "training", pytest.approx(6 * chunk))


def test_thumos_has_a_file_per_class_and_subset(tmp_path):
    paths = format_named("thumos").write(tmp_path, ANNOTATED.without_scores(), DEFAULTS)
    assert (tmp_path / "wave_train.txt").read_text() == "a%20b 0 1.25\na%20b 0.5 2\n" and len(paths) == 7
    annotated = read_annotations(tmp_path)
    assert segments(annotated.videos["a b"]) == segments(AWKWARD) and annotated.classes == CLASSES
    (tmp_path / "Diving_val.txt").write_text("1 2\n")
    with pytest.raises(LabelsError):
        read_annotations(tmp_path / "Diving_val.txt")


def test_thumos_detections_have_the_official_numbers(tmp_path):
    classes = THUMOS_CLASSES[1:-1]
    assert thumos_numbers(classes)["CliffDiving"] == 22 and thumos_numbers(classes)["VolleyballSpiking"] == 97
    assert thumos_numbers(("wave", "jump")) == {"wave": 1, "jump": 2}
    video = VideoLabels(segments=(Segment(1.5, 3, "Diving", 0.5),))
    format_named("thumos").write(tmp_path, AnnotationSet({"video_test_0000004": video}, classes), DEFAULTS)
    assert (tmp_path / "detections.txt").read_text() == "video_test_0000004 1.5 3 26 0.5\n"
    assert (tmp_path / CLASS_LIST).read_text().startswith("7 BaseballPitch\n9 BasketballDunk\n")
    (tmp_path / "a.txt").write_text("v 1 2 7 0.5\n")
    (tmp_path / CLASS_LIST).unlink()
    with pytest.raises(LabelsError, match="'7'"):
        read_annotations(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("media", "names"),
    [
        (["/data/upload/3/ab12cd00-a-b.mp4", "/data/upload/3/ab12cd01-c.mp4"], ["a-b", "c"]),
        (["/data/upload/3/ab12cd00-a.mp4", "/data/upload/3/ab12cd01-a.mp4"], ["ab12cd00-a", "ab12cd01-a"]),
        (["/films/ab12cd00-a.mp4", "s3://films/ab12cd01-b.mp4"], ["ab12cd00-a", "ab12cd01-b"]),
    ],
)
def test_uploads_to_label_studio_are_named_after_their_files(media, names):
    tasks = [label_studio_task(path, (26, 1, False), predictions=[{"result": []}]) for path in media]
    annotated = parse("labelstudio", tasks, options=AT_25)
    assert list(annotated.videos) == names and segments(annotated.first[1]) == JUMP


def test_the_last_annotation_of_label_studio_counts_and_skipped_tasks_do_not():
    annotations = {"a": ((1, 1, False), (26, 2, False), (30, 3, True)), "b": ((1, 1, True),), "c": ()}
    tasks = [label_studio_task(f"{name}.mp4", *of) for name, of in annotations.items()]
    annotated = parse("labelstudio", tasks, options=AT_25)
    assert annotated.videos.keys() == {"a"} and segments(annotated.videos["a"]) == JUMP
    kinds = ["several annotations", "skipped", "not annotated", "other regions"]
    assert [note.kind for note in annotated.notes] == kinds
    assert all(f"'{name}'" in note.sentence for name, note in zip("abc", annotated.notes, strict=False))
