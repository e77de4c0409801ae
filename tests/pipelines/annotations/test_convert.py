"""From any form to any other, and the command that does it."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.errors import LabelsError, OutputError
from lstr.labels.label_set import VideoLabels, read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.format import (
    DEFAULTS,
    ConvertOptions,
    all_formats,
    format_for,
    format_named,
    readable,
    writable,
)
from lstr.pipelines.annotations.label_files import read_annotations
from tests.support.annotated import scored, segments, sets

TWO = AnnotationSet(
    {
        "day 1/game": VideoLabels("training", 10.0, (Segment(1, 2.5, "jump"), Segment(2, 4, "wave"))),
        "other": VideoLabels("testing", 8.0, (Segment(0.25, 1, "wave"),)),
    },
    ("wave", "jump"),
)

TEXTS = {form.name: form for form in all_formats() if form.writes}


SCORES = {"with scores": st.sampled_from([0.125, 0.5, 0.8125, 1.0]), "without": st.none()}


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("name", TEXTS)
def test_a_format_keeps_what_it_says_it_holds(tmp_path_factory, name, scores):
    """Any videos, written and recognised again by the names of the files, as a user gives them back."""
    form, folder = format_named(name), tmp_path_factory.mktemp(name)

    @settings(max_examples=25, deadline=None)
    @given(sets(1000, score=SCORES[scores]))
    def check(annotated):
        holds = form.holds_with_scores if form.holds_with_scores and "scores" in annotated.extras() else form.holds
        place = Path(tempfile.mkdtemp(dir=folder))
        output = place / f"out{form.suffix}" if form.holds_many else place
        named = AnnotationSet({f"v{i}": video for i, video in enumerate(annotated.videos.values())})
        assert form.lost(named) == named.extras() - holds and form.write(output, named, DEFAULTS)
        if not any(video.segments for video in named.videos.values()) and "videos without segments" not in holds:
            return
        back = read_annotations(output)
        for video_id, video in named.videos.items():
            if not video.segments and "videos without segments" not in holds:
                continue
            found = back.videos[video_id]
            assert segments(found) == segments(video)
            if "scores" in holds:
                assert scored(found) == scored(video)
            for fact in ("subset", "duration"):
                assert f"{fact}s" not in holds or getattr(found, fact) == getattr(video, fact)

    check()


def test_formats_are_listed():
    """The formats that other programs read and write, as the documentation has them."""
    assert set(TEXTS) == {"csv", "vtt", "eaf", "activitynet", "thumos"} == set(writable())
    read_alone = {"json", "jsonl", "srt", "boris", "borisevents", "binary", "tsv", "labelstudio", "perframe"}
    assert set(readable()) == {*TEXTS, *read_alone}


@pytest.fixture
def labels(tmp_path) -> Path:
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(to_activitynet(TWO)))
    return path


def test_what_is_read_is_not_replaced(labels, tmp_path):
    """A slip of the hand replaced labels by what another form has a place for, without a word."""
    before = labels.read_bytes()
    (tmp_path / "same.json").symlink_to(labels)
    for output in (labels, tmp_path / "same.json"):
        with pytest.raises(OutputError, match="is a source, and would be replaced") as caught:
            convert([labels], None, output)
        assert "-o" in caught.value.hint
    assert labels.read_bytes() == before


def test_detections_become_labels_to_train_on(small_set, tmp_path, lstr):
    """detect → ELAN → labels, the pre-annotation loop; the labels are those of the timeline."""
    code, *_ = lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path / "t", "-f", "json,eaf")
    assert code == 0
    files = sorted((tmp_path / "t").glob("*.eaf"))
    target = tmp_path / "labels.json"
    code, out, err = lstr(
        "labels", "convert", *files, "--to", "activitynet", "--as-labels", "--subset", "training", "-o", target
    )
    assert (code, out) == (0, "") and "warning" not in err, err
    labels = read_labels(target)
    timeline = json.loads((tmp_path / "t" / "scene_00.json").read_text())
    assert labels.classes == tuple(timeline["classes"])
    assert sorted((s.label, s.start, s.end) for s in labels.videos["scene_00"].segments) == sorted(
        (s["label"], s["start"], s["end"]) for s in timeline["segments"]
    )


def test_what_is_lost_is_said(labels, lstr):
    code, out, err = lstr("labels", "convert", labels, "--to", "csv")
    assert code == 0 and out.startswith("video,subset,duration,start") and "no place" not in err
    code, out, err = lstr("labels", "convert", labels, "--to", "vtt")
    assert code == 2 and "error: vtt is written to files here." in err and "-o DIR" in err


def test_subsets(labels, tmp_path, lstr):
    target = tmp_path / "out.json"
    arguments = ["--subset", "training=validation", "-o", target]
    assert lstr("labels", "convert", labels, "--to", "activitynet", *arguments)[0] == 0
    read = read_labels(target)
    assert read.videos["day 1/game"].subset == "validation" and read.videos["other"].subset == "testing"
    convert([labels], "vtt", tmp_path / "vtt")
    _, _, err = lstr("labels", "convert", tmp_path / "vtt", "--to", "activitynet", "-o", target)
    assert "No video has a subset" in err and "--subset testing" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing.vtt", "--to", "csv"], 2, "does not exist"),
        (["LABELS", "--to", "pdf"], 2, "'pdf' is not one of"),
        (["LABELS", "--to", "csv", "--from", "html"], 2, "'html' is not one of"),
        (["LABELS", "LABELS", "--to", "csv"], 2, "annotated twice"),
        (["odd.xyz", "--to", "csv"], 2, "cannot be recognised"),
        (["bad.vtt", "--to", "csv"], 2, "begin with WEBVTT"),
        (["LABELS", "--to", "thumos"], 2, "add -o DIR"),
        (["LABELS", "--to", "mp4", "-o", "out"], 2, "'mp4' is not one of"),
        (["zeros.vtt", "--to", "vtt"], 2, "not UTF-8"),
        (["bad.json", "--to", "vtt"], 2, "not JSON"),
        (["empty", "--to", "vtt"], 2, "holds no annotations"),
        (["mixed", "--to", "csv"], 2, "mixed holds csv, vtt."),
        (["mixed/up.csv", "--to", "vtt", "-o", "out"], 2, "leads out of its folder"),
    ],
)
def test_mistakes(labels, tmp_path, monkeypatch, lstr, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    Path("odd.xyz").write_text("?")
    Path("bad.vtt").write_text("1\n")
    Path("bad.json").write_text("{")
    Path("zeros.vtt").write_bytes("WEBVTT\n\n00:00:01,0 --> 00:00:02,0\nZürich\0\n".encode("latin-1"))
    Path("empty").mkdir()
    Path("mixed").mkdir()
    Path("mixed/a.vtt").write_text("WEBVTT\n")
    Path("mixed/up.csv").write_text("video,start,end,label\n../up,1,2,jump\n")
    result, out, err = lstr("labels", "convert", *[str(labels) if a == "LABELS" else a for a in arguments])
    assert (result, out) == (code, "") and words in err and "hint: " in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "start,end,label\n2,1,jump\n"),
        ("a.vtt", "WEBVTT\n\n00:00:02.000 --> 00:00:01.000\njump\n"),
        ("a.json", '{"results": {"a": [{"label": "jump", "segment": [2, 1], "score": 0.5}]}}'),
    ],
)
def test_a_wrong_segment_is_named_with_its_video(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(LabelsError, match="Video 'a': the segment ends at 1.0 s, before its start 2.0 s") as caught:
        read_annotations(tmp_path / name)
    assert caught.value.hint
    kept = read_annotations(tmp_path / name, ConvertOptions(lenient=True)).videos["a"].segments
    assert [(s.start, s.end) for s in kept] == [(2, 1)]


@pytest.mark.parametrize(
    ("output", "form"),
    [
        ("labels.json", "activitynet"),
        ("LABELS.JSON", "activitynet"),
        ("a.labelstudio.json", "activitynet"),
        ("a.activitynet.json", "activitynet"),
        ("a.csv", "csv"),
        ("a.jsonl", None),
        ("a.mp4", None),
        ("a.txt", None),
        ("folder", None),
        (None, None),
    ],
)
def test_the_ending_tells_the_format(output, form):
    if form:
        assert format_for(Path(output)).name == form
        return
    with pytest.raises(LabelsError) as caught:
        format_for(output and Path(output))
    assert "--to" in caught.value.hint


def test_the_first_command_of_a_newcomer(labels, tmp_path, lstr):
    """Files of ELAN to one JSON, without a word about formats; frames become seconds on the way."""
    assert lstr("labels", "convert", labels, "--to", "eaf", "-o", tmp_path / "eaf")[0] == 0
    files = sorted((tmp_path / "eaf").rglob("*.eaf"))
    target = tmp_path / "new.json"
    code, out, err = lstr("labels", "convert", *files, "-o", target)
    assert (code, out) == (0, "") and "error" not in err, err
    assert json.loads(target.read_text())["database"].keys() == {"game", "other"}
    (tmp_path / "frames.csv").write_text("video,subset,start,end,label\na,train,82,112,jump\n")
    code, out, err = lstr("labels", "convert", tmp_path / "frames.csv", "--frames", 30, "-o", target)
    assert code == 0, err
    video = read_labels(target).videos["a"]
    assert video.subset == "training" and video.segments == (Segment(82 / 30, 112 / 30, "jump"),)
    assert json.loads(target.read_text())["database"]["a"]["subset"] == "training", "not only when it is read"
    code, out, _ = lstr("labels", "convert", target, "--to", "csv", "-o", "-")
    assert code == 0 and out.startswith("video,subset,start,end")


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("other.mp4", {"other": "other.mp4"}),
        ("day 1/game.mp4", {"day 1/game": "day 1/game.mp4"}),
        ("GAME.mp4", {}),
    ],
)
def test_a_file_is_of_the_video_that_it_is_called_as_alone(labels, tmp_path, file, named):
    done = convert([labels], "eaf", tmp_path / "eaf", ConvertOptions(video=tmp_path / file))
    assert {i: v.media for i, v in done.annotated.videos.items() if v.media} == {
        name: str(tmp_path / path) for name, path in named.items()
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nStoß\n"),
        ("b.txt", "video\tstart\tend\tlabel\na\t1,5\t2\tStoß\n"),
        ("Stoß_val.txt", "Maß 1 2\n"),
    ],
)
@pytest.mark.parametrize(
    ("codec", "mark", "called"),
    [("cp1252", "", "Windows-1252"), ("utf-16-le", "\ufeff", "UTF-16"), ("utf-16-be", "\ufeff", "UTF-16")],
)
def test_forms_without_an_encoding_are_read_as_windows_saves_them(tmp_path, name, text, codec, mark, called):
    (tmp_path / name).write_bytes((mark + text.replace("\n", "\r\n")).encode(codec))
    for place in (tmp_path / name, tmp_path):
        read = read_annotations(place)
        assert read.classes == ("Stoß",) and called in read.notes[0].sentence


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.srt", "a.txt"])
@pytest.mark.parametrize(
    "content",
    [
        "video\tstart\tend\tlabel\r\na\t1\t2\tjump\r\n".encode("utf-16-le"),
        "video\tstart\tend\tlabel\r\na\t1\t2\tStoß\r\n".encode("utf-16-be"),
        "video,start,end,label\na,1,2,jump\n".encode("utf-32"),
        "video,start,end,label\na,1,2,jump\n".encode("utf-16") + b"\0",
        "\ufeffvideo,start,end,label\na,1,2,\ud800\n".encode("utf-16-le", "surrogatepass"),
        b"video,start,end,label\na,1,2,ju\0mp\n",
    ],
)
def test_zeros_without_a_mark_are_no_text(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LabelsError, match=f"{name} (has bytes of zero|is not UTF-8)") as caught:
        read_annotations(tmp_path / name)
    assert "UTF-8" in caught.value.hint and "\0" not in str(caught.value)


@pytest.mark.parametrize("subset", [[], {}, 0, False])
def test_a_subset_that_is_no_text_is_refused(tmp_path, subset):
    (tmp_path / "a.json").write_text(json.dumps({"database": {"v": {"subset": subset, "annotations": []}}}))
    with pytest.raises(LabelsError, match="video 'v': subset is"):
        convert([tmp_path / "a.json"], "csv")


@pytest.mark.parametrize("text", ["nothing\n", "", "so 1\n", "Day 3, camera 2\n"])
def test_a_text_that_is_no_annotation_does_not_make_a_folder_of_two_forms(tmp_path, text):
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\njump\n")
    (tmp_path / "notes.txt").write_text(text)
    assert read_annotations(tmp_path).videos.keys() == {"a"}


def test_a_file_of_any_name_is_of_the_only_video(tmp_path):
    (tmp_path / "a.csv").write_text("start,end,label\n1,2,jump\n")
    done = convert([tmp_path / "a.csv"], "eaf", tmp_path / "a.eaf", ConvertOptions(video=tmp_path / "b.mp4"))
    assert done.annotated.videos["a"].media == str(tmp_path / "b.mp4")


def test_a_failed_conversion_leaves_nothing(tmp_path):
    (tmp_path / "a.csv").write_text("video,start,end,label\nx,1,2,jump\n")
    with pytest.raises(LabelsError):
        convert([tmp_path / "a.csv"], "thumos", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_format_that_does_not_exist(labels, tmp_path):
    """As a Python caller may ask for it; the command refuses earlier."""
    for arguments, words in (
        ((labels, "pdf"), "'pdf' is not a format"),
        ((labels, "npy", tmp_path / "out"), "npy cannot be made of annotations"),
        ((labels, "csv", None, ConvertOptions(source_format="html")), "html cannot be read back"),
        ((labels, "csv", None, ConvertOptions(source_format="perframe")), "no per-chunk targets"),
    ):
        with pytest.raises(LabelsError, match=words) as caught:
            convert([arguments[0]], *arguments[1:])
        assert caught.value.hint
