"""`lstr labels convert`: from any format to any other."""

import json
from pathlib import Path

import pytest

from lstr.errors import LabelsError, OutputError
from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.annotations.label_files import read_annotations, read_label_file
from tests.support.annotated import segments
from tests.support.errors import assert_error

TWO = AnnotationSet(
    {
        "day 1/game": VideoLabels("training", 10.0, (Segment(1, 2.5, "jump"), Segment(2, 4, "wave"))),
        "other": VideoLabels("testing", 8.0, (Segment(0.25, 1, "wave"),)),
    },
    ("wave", "jump"),
)


@pytest.fixture
def labels(tmp_path) -> Path:
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(to_activitynet(TWO)))
    return path


@pytest.mark.parametrize(
    ("form", "options", "value"),
    [
        ("pdf", {}, "pdf"),
        ("npy", {}, "npy"),
        ("csv", {"source_format": "html"}, "html"),
        ("csv", {"source_format": "perframe"}, "labels.json"),
        ("thumos", {"subsets": {"training": ""}}, "subset"),
    ],
)
def test_a_failed_conversion_writes_nothing(labels, tmp_path, form, options, value):
    """From Python; the command refuses unknown formats earlier."""
    with pytest.raises(LabelsError, match=value):
        convert([labels], form, tmp_path / "out", ConvertOptions(**options))
    assert not (tmp_path / "out").exists()


def test_a_source_is_not_overwritten(labels, tmp_path):
    before = labels.read_bytes()
    (tmp_path / "SAME.JSON").symlink_to(labels)
    for output in (labels, tmp_path / "SAME.JSON"):
        with pytest.raises(OutputError):
            convert([labels], None, output)
    assert labels.read_bytes() == before


def test_detections_become_labels_to_train_on(small_set, tmp_path, lstr):
    """Pre-annotation: detect, correct the ELAN files, train on them. The labels are those of the timeline."""
    code, *_ = lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path / "t", "-f", "json,eaf")
    assert code == 0
    files, output = sorted((tmp_path / "t").glob("*.eaf")), tmp_path / "labels.json"
    options = ("--to", "activitynet", "--as-labels", "--subset", "training", "-o", output)
    code, out, err = lstr("labels", "convert", *files, *options)
    assert (code, out) == (0, "") and "warning" not in err, err
    timeline = json.loads((tmp_path / "t" / "scene_00.json").read_text())
    assert read_label_file(output).classes == tuple(timeline["classes"])
    expected = sorted((s["start"], s["end"], s["label"]) for s in timeline["segments"])
    assert segments(read_label_file(output).videos["scene_00"]) == expected


def test_subsets(labels, tmp_path, lstr):
    output = tmp_path / "out.json"
    options = ("--to", "activitynet", "-o", output)
    for subset, text in (("testing", "Every video"), ("trial=testing", "'trial'")):
        assert_error(lstr("labels", "convert", labels, *options, "--subset", subset), 2, text)
    assert lstr("labels", "convert", labels, *options, "--subset", "training=validation")[0] == 0
    assert [video.subset for video in read_label_file(output).videos.values()] == ["validation", "testing"]
    convert([labels], "vtt", tmp_path / "vtt")
    _, _, err = lstr("labels", "convert", tmp_path / "vtt", *options)
    assert "--subset testing" in err


def test_frame_numbers_of_any_format_become_seconds(labels):
    annotated = convert([labels], "csv", None, ConvertOptions(frames=10)).annotated
    assert segments(annotated.videos["other"]) == [(0.025, 0.1, "wave")]


def test_classes_are_merged_by_renaming(tmp_path, lstr):
    (tmp_path / "x.csv").write_text("video,start,end,label\na,1,2,High jump\na,3,4,high_jump\na,5,6,run\n")
    words = ("labels", "convert", tmp_path / "x.csv", "--to", "csv", "-o", "-", "--rename")
    code, out, err = lstr(*words, "High jump=high_jump")
    assert code == 0 and out.count("high_jump") == 2 and "High jump" not in out, err
    assert_error(lstr(*words, "leap=jump"), 2, "'leap'", "'High jump', 'high_jump', 'run'")
    assert_error(lstr(*words, "leap"), 2, "OLD=NEW")


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["missing.vtt", "--to", "csv"], "missing.vtt"),
        (["LABELS", "--to", "mp4", "-o", "out"], "'mp4'"),
        (["LABELS", "-o", "a.txt"], "--to"),
        (["LABELS"], "--to"),
        (["LABELS", "LABELS", "--to", "csv"], "'day 1/game'"),
        (["LABELS", "--to", "vtt"], "-o DIR"),
        (["mixed", "--to", "csv"], "csv, vtt"),
        (["mixed/up.csv", "--to", "vtt", "-o", "out"], "../up"),
        (["book.ods", "--to", "csv"], "CSV"),
    ],
)
def test_errors_of_the_command(labels, tmp_path, monkeypatch, lstr, arguments, value):
    monkeypatch.chdir(tmp_path)
    Path("mixed").mkdir()
    Path("mixed/a.vtt").write_text("WEBVTT\n")
    Path("mixed/up.csv").write_text("video,start,end,label\n../up,1,2,jump\n")
    Path("book.ods").write_text("no")
    words = [str(labels) if word == "LABELS" else word for word in arguments]
    assert_error(lstr("labels", "convert", *words), 2, value)


@pytest.mark.parametrize(
    ("file", "video_id"), [("other.mp4", "other"), ("day 1/game.mp4", "day 1/game"), ("GAME.mp4", None)]
)
def test_a_video_file_belongs_to_the_video_of_its_name_or_the_only_video(labels, tmp_path, file, video_id):
    options = ConvertOptions(video=tmp_path / file)
    annotated = convert([labels], "eaf", tmp_path / "eaf", options).annotated
    media = {name: video.media for name, video in annotated.videos.items() if video.media}
    assert media == ({video_id: str(tmp_path / file)} if video_id else {})
    (tmp_path / "a.csv").write_text("start,end,label\n1,2,jump\n")
    annotated = convert([tmp_path / "a.csv"], "eaf", tmp_path / "a.eaf", options).annotated
    assert annotated.videos["a"].media == str(tmp_path / file)


@pytest.mark.parametrize("text", ["", "Day 3, camera 2\n", '"Day 3\n'])
def test_other_text_files_in_a_folder_are_ignored(tmp_path, text):
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\njump\n")
    (tmp_path / "notes.txt").write_text(text)
    assert read_annotations(tmp_path).videos.keys() == {"a"}
