"""`lstr labels convert`: from any format to any other."""

import json
from pathlib import Path

import pytest

from lstr.errors import LabelsError, OutputError
from lstr.labels.label_set import VideoLabels, read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.format import ConvertOptions, format_for
from lstr.pipelines.annotations.label_files import read_annotations
from tests.support.mistakes import mistake

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


def test_the_ending_tells_the_format():
    for name in ("labels.json", "LABELS.JSON", "a.activitynet.json"):
        assert format_for(Path(name)).name == "activitynet"
    assert format_for(Path("a.csv")).name == "csv"
    for name in ("a.jsonl", "a.mp4", "a.txt", "folder", None):
        with pytest.raises(LabelsError) as caught:
            format_for(name and Path(name))
        assert "--to" in caught.value.hint


@pytest.mark.parametrize(
    ("form", "options", "named"),
    [
        ("pdf", {}, "pdf"),
        ("npy", {}, "npy"),
        ("csv", {"source_format": "html"}, "html"),
        ("csv", {"source_format": "perframe"}, "labels.json"),
        ("thumos", {"subsets": {"training": ""}}, "subset"),
    ],
)
def test_what_cannot_be_converted_leaves_nothing(labels, tmp_path, form, options, named):
    """As a Python caller may ask for it; the command refuses unknown formats earlier."""
    with pytest.raises(LabelsError, match=named) as caught:
        convert([labels], form, tmp_path / "out", ConvertOptions(**options))
    assert caught.value.hint and not (tmp_path / "out").exists()


def test_what_is_read_is_not_replaced(labels, tmp_path):
    before = labels.read_bytes()
    (tmp_path / "same.json").symlink_to(labels)
    for output in (labels, tmp_path / "same.json"):
        with pytest.raises(OutputError) as caught:
            convert([labels], None, output)
        assert "-o" in caught.value.hint
    assert labels.read_bytes() == before


def test_detections_become_labels_to_train_on(small_set, tmp_path, lstr):
    """detect → ELAN → labels, the pre-annotation loop; the labels are those of the timeline."""
    code, *_ = lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path / "t", "-f", "json,eaf")
    assert code == 0
    files, target = sorted((tmp_path / "t").glob("*.eaf")), tmp_path / "labels.json"
    how = ("--to", "activitynet", "--as-labels", "--subset", "training", "-o", target)
    code, out, err = lstr("labels", "convert", *files, *how)
    assert (code, out) == (0, "") and "warning" not in err, err
    labels = read_labels(target)
    timeline = json.loads((tmp_path / "t" / "scene_00.json").read_text())
    assert labels.classes == tuple(timeline["classes"])
    assert sorted((s.label, s.start, s.end) for s in labels.videos["scene_00"].segments) == sorted(
        (s["label"], s["start"], s["end"]) for s in timeline["segments"]
    )


def test_subsets(labels, tmp_path, lstr):
    target = tmp_path / "out.json"
    given = ("--to", "activitynet", "--subset", "training=validation", "-o", target)
    assert lstr("labels", "convert", labels, *given)[0] == 0
    read = read_labels(target)
    assert read.videos["day 1/game"].subset == "validation" and read.videos["other"].subset == "testing"
    convert([labels], "vtt", tmp_path / "vtt")
    _, _, err = lstr("labels", "convert", tmp_path / "vtt", "--to", "activitynet", "-o", target)
    assert "--subset testing" in err


def test_spellings_become_one_class(tmp_path, lstr):
    (tmp_path / "x.csv").write_text("video,start,end,label\na,1,2,High jump\na,3,4,high_jump\na,5,6,run\n")
    words = ("labels", "convert", tmp_path / "x.csv", "--to", "csv", "--rename")
    code, out, err = lstr(*words, "High jump=high_jump")
    assert code == 0 and out.count("high_jump") == 2 and "High jump" not in out, err
    mistake(lstr(*words, "leap=jump"), 2, "'leap'", "'High jump', 'high_jump', 'run'")
    mistake(lstr(*words, "leap"), 2, "OLD=NEW")


def test_files_of_elan_and_frames_become_one_json(labels, tmp_path, lstr):
    """Without a word about formats; the JSON becomes a table on standard output."""
    assert lstr("labels", "convert", labels, "--to", "eaf", "-o", tmp_path / "eaf")[0] == 0
    target = tmp_path / "new.json"
    code, out, err = lstr("labels", "convert", *sorted((tmp_path / "eaf").rglob("*.eaf")), "-o", target)
    assert (code, out) == (0, "") and "error" not in err, err
    assert json.loads(target.read_text())["database"].keys() == {"game", "other"}
    (tmp_path / "frames.csv").write_text("video,subset,start,end,label\na,train,82,112,jump\n")
    code, out, err = lstr("labels", "convert", tmp_path / "frames.csv", "--frames", 30, "-o", target)
    assert code == 0, err
    (entry,) = json.loads(target.read_text())["database"].values()
    assert entry["subset"] == "training" and entry["annotations"][0]["segment"] == [82 / 30, 112 / 30]
    code, out, _ = lstr("labels", "convert", target, "--to", "csv", "-o", "-")
    assert code == 0 and out.startswith("video,subset,start,end")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["missing.vtt", "--to", "csv"], "missing.vtt"),
        (["LABELS", "--to", "mp4", "-o", "out"], "'mp4'"),
        (["LABELS", "LABELS", "--to", "csv"], "'day 1/game'"),
        (["odd.xyz", "--to", "csv"], "odd.xyz"),
        (["bad.vtt", "--to", "csv"], "WEBVTT"),
        (["LABELS", "--to", "thumos"], "-o DIR"),
        (["LABELS", "--to", "vtt"], "-o DIR"),
        (["zeros.vtt", "--to", "vtt"], "UTF-8"),
        (["bad.json", "--to", "vtt"], "JSON"),
        (["empty", "--to", "vtt"], "empty"),
        (["mixed", "--to", "csv"], "csv, vtt"),
        (["mixed/up.csv", "--to", "vtt", "-o", "out"], "../up"),
        (["book.ods", "--to", "csv"], "CSV"),
        (["book.xlsx", "--to", "csv"], "CSV"),
    ],
)
def test_mistakes(labels, tmp_path, monkeypatch, lstr, arguments, named):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "mixed"):
        Path(name).mkdir()
    texts = {"odd.xyz": "?", "bad.vtt": "1\n", "bad.json": "{", "book.ods": "no", "book.xlsx": "no"}
    texts |= {"mixed/a.vtt": "WEBVTT\n", "mixed/up.csv": "video,start,end,label\n../up,1,2,jump\n"}
    for name, text in texts.items():
        Path(name).write_text(text)
    Path("zeros.vtt").write_bytes("WEBVTT\n\n00:00:01,0 --> 00:00:02,0\nZürich\0\n".encode("latin-1"))
    words = [str(labels) if word == "LABELS" else word for word in arguments]
    mistake(lstr("labels", "convert", *words), 2, named)


@pytest.mark.parametrize(
    ("file", "named"), [("other.mp4", "other"), ("day 1/game.mp4", "day 1/game"), ("GAME.mp4", None)]
)
def test_a_file_is_of_the_video_that_it_is_called_as_or_of_the_only_one(labels, tmp_path, file, named):
    done = convert([labels], "eaf", tmp_path / "eaf", ConvertOptions(video=tmp_path / file))
    found = {name: video.media for name, video in done.annotated.videos.items() if video.media}
    assert found == ({named: str(tmp_path / file)} if named else {})
    (tmp_path / "a.csv").write_text("start,end,label\n1,2,jump\n")
    done = convert([tmp_path / "a.csv"], "eaf", tmp_path / "a.eaf", ConvertOptions(video=tmp_path / file))
    assert done.annotated.videos["a"].media == str(tmp_path / file)


@pytest.mark.parametrize("text", ["nothing\n", "", "so 1\n", "Day 3, camera 2\n"])
def test_a_text_that_is_no_annotation_does_not_make_a_folder_of_two_formats(tmp_path, text):
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\njump\n")
    (tmp_path / "notes.txt").write_text(text)
    assert read_annotations(tmp_path).videos.keys() == {"a"}
