"""Label files as `--labels` takes them: any format, subsets by any name, ids as people write them, several files."""

import json
from pathlib import Path

import pytest

from lstr.extractors.video.inputs import find_videos
from lstr.labels.check import check
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.label_files import divide_paths, is_labels, read_label_file, read_label_files
from lstr.pipelines.annotations.videos import footage_of_files
from tests.support.errors import assert_error

CUE = "1\n00:00:01,000 --> 00:00:02,000\nfall\n"


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["video,subset,start,end,label", *rows]) + "\n")
    return path


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """A day as a table, another as JSON, and a correction of one video of the first as the page downloads it."""
    rows = "a.mp4,training,9,1,2,fall\nb,testing,8,1,2,fall\n"
    (tmp_path / "day1.csv").write_text(f"video,subset,duration,start,end,label\n{rows}")
    (tmp_path / "day2.json").write_text('{"database": {"c": {"annotations": [{"label": "sit", "segment": [1, 2]}]}}}')
    corrected = {"b": {"subset": "", "annotations": [{"label": "sit", "segment": [3, 4]}]}}
    (tmp_path / "b.labels.json").write_text(json.dumps({"classes": ["Background", "sit"], "database": corrected}))
    return [tmp_path / name for name in ("day1.csv", "day2.json", "b.labels.json")]


A, B = "C:\\films\\a.mp4", "D:\\films\\day 1\\b.MOV"


@pytest.mark.parametrize(
    ("ids", "present", "expected"),
    [
        (["a.mp4", "clips/b.MOV"], ["a", "b"], {"a", "b"}),
        (["a.mp4", "clips/b.MOV"], ["a.mp4", "b"], {"a.mp4", "b"}),  # as the features call it
        ([A, B, "/home/me/films/day 1/c.mp4"], ["a", "day 1/b", "day 1/c"], {"a", "day 1/b", "day 1/c"}),
        ([A, B], [], {"a", "b"}),
        (["Käfig 0", "C:\\é.mp4"], ["Ka\u0308fig 0", "e\u0301"], {"Ka\u0308fig 0", "e\u0301"}),  # as macOS names files
        ([A, "a.avi"], ["a.mp4", "a.avi"], {"a.mp4", "a.avi"}),  # files that differ by their endings
    ],
)
def test_ids_are_matched_to_the_videos(tmp_path, ids, present, expected):
    path = write(tmp_path / "labels.csv", *(f"{video_id},train,1,2,jump" for video_id in ids))
    labels = read_label_file(path, present=present)
    assert labels.videos.keys() == expected
    assert ("id with ending" in {note.kind for note in labels.notes}) == (expected != {*ids})


def test_labels_of_other_videos_are_an_error(small_set, tmp_path, lstr):
    path = write(tmp_path / "labels.csv", "other,training,1,2,walk")
    for present in ([small_set.videos], [small_set.features, "--set", "skip_missing=true"]):
        code, out, err = lstr("labels", "check", path, *present, "--json")
        kinds = [(finding["severity"], finding["kind"]) for finding in json.loads(out)["findings"]]
        assert code == 2 and kinds[0] == ("error", "no match") and "'other'" in err
    detect = ("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path / "out")
    assert_error(lstr(*detect, "--set", f"labels={path}"), 2, "'other'", "'scene_00'")
    assert not (tmp_path / "out").exists()


def test_evaluation_takes_labels_of_any_format(small_set, tmp_path, lstr, run):
    """A table with clock times, other names of subsets and no classes has the scores of the labels."""
    rows = []
    for name, video in read_label_file(small_set.labels).videos.items():
        subset = {"training": "train", "testing": "test"}[video.subset]
        rows += [f"{name}.avi,{subset},0:{s.start:06.3f},0:00:{s.end:06.3f},{s.label}" for s in video.segments]
    documents = []
    evaluate = ("evaluate", small_set.checkpoint, small_set.features, "--json", "--set", "resamples=0", "--labels")
    for path in (small_set.labels, write(tmp_path / "labels.csv", *rows)):
        documents.append({**json.loads(run(*evaluate, path)[0]), "seconds": 0, "labels": ""})
    assert documents[0] == documents[1]
    without_subsets = write(tmp_path / "no subsets.csv", "scene_00,,1,2,walk")
    assert_error(lstr(*evaluate, without_subsets), 2, "--subset training")


def test_frame_numbers_are_detected_by_the_rate_of_the_videos(small_set, tmp_path, lstr):
    footage, rows = footage_of_files(find_videos([small_set.videos])), []
    for name, video in read_label_file(small_set.labels).videos.items():
        times = [(round(s.start * footage[name][1]), round(s.end * footage[name][1])) for s in video.segments]
        rows += [f"{name},training,{start},{end},walk" for start, end in times]
    path, rate = write(tmp_path / "frames.csv", *rows), f"{footage['scene_00'][1]:g}"
    code, out, _ = lstr("labels", "check", path, "--json")
    assert code == 0 and json.loads(out)["findings"], "the lengths of the videos are unknown"
    for present in (small_set.videos, small_set.features):
        code, _, err = lstr("labels", "check", path, present)
        assert code == 2 and "'scene_00'" in err and (present == small_set.features or f"--frames {rate} " in err)
    assert_error(lstr("train", small_set.features, "-o", tmp_path / "run", "--labels", path), 2, "frame")
    evaluate = ("evaluate", small_set.checkpoint, small_set.features, "--subset", "training")
    assert_error(lstr(*evaluate, "--labels", path), 2, "frame")
    assert lstr("labels", "convert", path, "--frames", rate, "-o", tmp_path / "fixed.json")[0] == 0
    assert lstr("labels", "check", tmp_path / "fixed.json", small_set.videos)[0] == 0


def test_info_and_check_as_json(small_set, tmp_path, lstr):
    convert([small_set.labels], "eaf", tmp_path / "eaf")
    info, labels = json.loads(lstr("info", small_set.labels, "--json")[1]), read_label_file(small_set.labels)
    assert (info["kind"], info["videos"], info["durations"]["stated"]) == ("label file", 4, 4)
    assert info["subsets"] == {"training": 3, "testing": 1}
    lengths = [s.end - s.start for video in labels.videos.values() for s in video.segments if s.label == "walk"]
    assert info["per_class"]["walk"]["segments"] == len(lengths)
    assert info["per_class"]["walk"]["seconds"] == pytest.approx(sum(lengths))
    assert json.loads(lstr("info", tmp_path / "eaf", "--json")[1])["segments"] == info["segments"]
    rows = [f"{subset},{subset},{k + 0.5},{k + 1},jump" for subset in ("training", "testing") for k in range(5)]
    checked = json.loads(lstr("labels", "check", write(tmp_path / "tidy.csv", *rows), "--json")[1])
    per_class = {"jump": {"segments": 10, "seconds": 5, "videos": 2}}
    assert checked == {"videos": 2, "segments": 10, "classes": 1, "per_class": per_class, "findings": []}


def test_the_last_of_several_files_counts(files, tmp_path):
    """Subset and duration come from earlier files; without a subset, a video is for training."""
    labels = read_label_files(files, present={"a", "b", "c"})
    subsets = {name: video.subset for name, video in labels.videos.items()}
    assert subsets == {"a": "training", "b": "testing", "c": "training"} and labels.has_subsets
    assert labels.videos["b"].segments == (Segment(3.0, 4.0, "sit"),) and labels.videos["b"].duration == 8
    assert labels.classes == ("Background", "fall", "sit")
    assert all(part in str(check(labels)) for part in ("take the labels of the last file: 'b'", "unless an earlier"))
    assert read_label_files(files[::-1]).videos["b"].segments == (Segment(1.0, 2.0, "fall"),)
    assert read_label_files(files[:1]).notes and not read_label_files(files[1:2]).has_subsets
    moved = write(tmp_path / "moved.csv", "b,train,1,2,fall", "c,train,1,2,fall")
    assert read_label_files([*files, moved]).videos["b"].subset == "training"
    assert read_label_files([*files[:2], moved]).classes == ("Background", "fall"), "no video shows sit"


def test_videos_and_labels_in_the_paths_of_a_command(files, tmp_path):
    for name in ("videos", "sidecars", "annotations"):
        (tmp_path / name).mkdir()
    for name in ("videos/a.mp4", "sidecars/a.mp4", "sidecars/a.srt", "one.mov", "clip.dat"):
        (tmp_path / name).write_text("1\n")
    (tmp_path / "annotations" / "a.srt").write_text(CUE)
    names = ("videos", "sidecars", "one.mov", "annotations", "dya1.csv", "study.xlsx", "clip.dat")
    videos, sidecars, clip, annotations, missing, book, other = (str(tmp_path / name) for name in names)
    day1, day2, _ = map(str, files)
    address = "https://example.org/x.json/"
    for paths, expected in (
        ([videos, day1, day2], ([videos], [day1, day2])),
        ([day1, videos, clip], ([videos, clip], [day1])),
        ([videos, sidecars, annotations, day1], ([videos, sidecars], [annotations, day1])),
        ([videos, sidecars], ([videos], [sidecars])),
        ([videos, missing, day1], ([videos], [missing, day1])),
        ([videos, book, day1], ([videos], [book, day1])),
        ([address, other, day1], ([address, other], [day1])),
        ([videos], ([], [videos])),
    ):
        assert divide_paths(paths) == expected


def test_hidden_files_are_ignored(tmp_path, lstr):
    """macOS writes one next to each file on a disk of another system."""
    for name in ("._project.eaf", "._day.csv", "._book.xls"):
        (tmp_path / name).write_bytes(b"\x00\x05\x16\x07Mac OS X\xa3")
    assert not is_labels(str(tmp_path))
    assert_error(lstr("labels", "check", tmp_path), 2, str(tmp_path))
    write(tmp_path / "day.csv", "a,,1,2,fall")
    assert is_labels(str(tmp_path)) and lstr("labels", "check", tmp_path)[0] == 0


@pytest.mark.long
def test_learn_and_check_take_several_label_files(small_set, tmp_path, lstr, run):
    rows = [f"scene_0{i},training,{s},{s + 1},{label}" for i in range(3) for s, label in ((1, "walk"), (3, "run"))]
    first, second = write(tmp_path / "a.csv", *rows), tmp_path / "srt"
    second.mkdir()
    for name in ("scene_01", "scene_03"):
        (second / f"{name}.srt").write_text(CUE.replace("fall", "walk"))
    code, out, err = lstr("labels", "check", first, second, small_set.features, "--json")
    document = json.loads(out)
    assert code == 0 and (document["videos"], document["segments"], document["classes"]) == (4, 6, 2), err
    settings = [f"--set={setting}" for setting in ("epochs=1", "draws=16", "crop=32", "short_side=40")]
    words = ("-o", tmp_path / "m.lstr", "--set", "recipe.flow_algorithm=dis", "--dry-run", *settings)
    assert "4 training" in run("learn", first, small_set.videos, second, *words)[1]
    wrong = write(tmp_path / "more.csv", "scene_01,,5,2.5,walk")
    code, _, err = lstr("learn", small_set.videos, first, wrong, *words)
    assert code == 2 and f"lstr labels check {first} {wrong}" in err
    assert_error(lstr("learn", small_set.videos, tmp_path / "missing.csv", first, *words), 2, "missing.csv")
    assert_error(lstr("learn", first, second, *words), 2, "video")
