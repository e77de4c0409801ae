"""Several label files as one, and which of the words of a command are label files."""

import json
from pathlib import Path

import pytest

from lstr.labels.check import check
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.label_files import divide_paths, is_labels, read_label_files


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """A day as a table, another in our form, and a correction of one video of the first as the page downloads it."""
    (tmp_path / "day1.csv").write_text(
        "video,subset,duration,start,end,label\na.mp4,training,9,1,2,fall\nb,testing,8,1,2,fall\n"
    )
    second = {"c": {"annotations": [{"label": "sit", "segment": [1, 2]}]}}
    (tmp_path / "day2.json").write_text(json.dumps({"database": second}))
    corrected = {"b": {"subset": "", "annotations": [{"label": "sit", "segment": [3, 4]}]}}
    (tmp_path / "b.labels.json").write_text(json.dumps({"classes": ["Background", "sit"], "database": corrected}))
    return [tmp_path / name for name in ("day1.csv", "day2.json", "b.labels.json")]


def test_the_last_file_counts_and_no_subset_means_training(files):
    read = read_label_files(files, present={"a", "b", "c"})
    assert {name: video.subset for name, video in read.videos.items()} == {
        "a": "training",
        "b": "testing",
        "c": "training",
    }
    assert read.videos["b"].segments == (Segment(3.0, 4.0, "sit"),) and read.videos["b"].duration == 8
    assert read.classes == ("Background", "fall", "sit") and read.has_subsets
    notes = [f.detail for f in check(read) if f.severity == "note"]
    assert any("several files the last counts: 'b' in" in text for text in notes)
    assert read_label_files(files[::-1]).videos["b"].segments == (Segment(1.0, 2.0, "fall"),)


def test_one_file_is_read_as_before(files):
    assert read_label_files(files[:1]).notes and not read_label_files(files[1:2]).has_subsets


def test_a_later_subset_goes_before_an_earlier_one(files, tmp_path):
    (tmp_path / "moved.csv").write_text("video,subset,start,end,label\nb,train,1,2,fall\n")
    assert read_label_files([*files, tmp_path / "moved.csv"]).videos["b"].subset == "training"


def test_videos_and_labels_are_told_apart(files, tmp_path):
    for name in ("videos", "sidecars", "annotations"):
        (tmp_path / name).mkdir()
    for name in ("videos/a.mp4", "sidecars/a.mp4", "sidecars/a.srt", "one.mov", "clip.dat"):
        (tmp_path / name).write_text("1\n")
    (tmp_path / "annotations" / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nfall\n")
    videos, sidecars, one, annotations = (str(tmp_path / n) for n in ("videos", "sidecars", "one.mov", "annotations"))
    day1, day2, _ = map(str, files)
    typo, address, other = str(tmp_path / "dya1.csv"), "https://example.org/x.json/", str(tmp_path / "clip.dat")
    for given, expected in (
        ([videos, day1], ([videos], [day1])),
        ([videos, day1, day2], ([videos], [day1, day2])),
        ([day1, videos, one], ([videos, one], [day1])),
        ([videos, sidecars, annotations, day1], ([videos, sidecars], [annotations, day1])),
        ([videos, sidecars], ([videos], [sidecars])),
        ([videos, typo, day1], ([videos], [typo, day1])),
        ([videos, str(tmp_path / "study.xlsx"), day1], ([videos], [str(tmp_path / "study.xlsx"), day1])),
        ([address, other, day1], ([address, other], [day1])),
        ([videos], ([], [videos])),
    ):
        assert divide_paths(given) == expected


def test_hidden_files_are_no_labels(tmp_path, lstr):
    """macOS puts one beside each file on a disk of another system."""
    for name in ("._project.eaf", "._day.csv", "._book.xls"):
        (tmp_path / name).write_bytes(b"\x00\x05\x16\x07Mac OS X\xa3")
    assert not is_labels(str(tmp_path))
    code, _, err = lstr("labels", "check", tmp_path)
    assert code and "holds no annotations" in err, err
    (tmp_path / "day.csv").write_text("video,start,end,label\na,1,2,fall\n")
    assert is_labels(str(tmp_path)) and lstr("labels", "check", tmp_path)[0] == 0


def test_a_check_takes_folders_of_labels_beside_videos(small_set, files, tmp_path, lstr):
    names = ["scene_00", "scene_01", "scene_02", "scene_03"]
    (tmp_path / "srt").mkdir()
    for name in names[1:]:
        (tmp_path / "srt" / f"{name}.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nwalk\n")
    files[0].write_text("video,start,end,label\nscene_00,1,2,walk\n")
    for at_hand in (small_set.videos, small_set.features):
        code, out, err = lstr("labels", "check", files[0], tmp_path / "srt", at_hand)
        assert code == 0 and "4 videos, 4 segments, 1 class" in out and "not found" not in out, err


@pytest.mark.long
def test_learn_and_check_take_several(small_set, files, tmp_path, lstr):
    names = ["scene_00", "scene_01", "scene_02"]
    text = "".join(f"{name},1,2,walk\n{name},3,4,run\n" for name in names)
    files[0].write_text(f"video,start,end,label\n{text}")
    (tmp_path / "more.csv").write_text("video,start,end,label\nscene_01,1,2.5,walk\nscene_03,1,2,run\n")
    given = (files[0], tmp_path / "more.csv")
    code, out, err = lstr("labels", "check", *given, small_set.videos)
    assert code == 0 and "4 videos, 6 segments, 2 classes" in out and "'scene_01' in" in out, err
    assert lstr("labels", "check", *given, small_set.features)[0] == 0
    settings = [word for one in ("epochs=1", "draws=16", "crop=32", "short_side=40") for word in ("--set", one)]
    words = ("-o", tmp_path / "m.lstr", "--set", "recipe.flow_algorithm=dis", "--dry-run", *settings)
    code, _, err = lstr("learn", given[0], small_set.videos, given[1], *words)
    assert code == 0 and "videos: 4 training" in err and "left out" not in err, err
    assert "the last counts" in err
    (tmp_path / "more.csv").write_text("video,start,end,label\nscene_01,5,2.5,walk\n")
    code, _, err = lstr("learn", small_set.videos, *given, *words)
    assert code == 2 and f"lstr labels check {given[0]} {given[1]} --json" in err
    code, _, err = lstr("learn", small_set.videos, tmp_path / "missing.csv", given[0], *words)
    assert code == 2 and "no label file" in err and "missing.csv" in err
    code, _, err = lstr("learn", *given, *words)
    assert code == 2 and "Give a video" in err
