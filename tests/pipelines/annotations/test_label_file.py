"""What every --labels takes: any form, subsets by any name, ids as people write them, several files as one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lstr.errors import LabelsError
from lstr.extractors.video.inputs import find_videos
from lstr.labels.check import check
from lstr.labels.label_set import Labels, VideoLabels, read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.label_files import divide_paths, is_labels, read_label_file, read_label_files
from lstr.pipelines.annotations.videos import find_labelled_videos, footage_at, footage_of_files

VIDEOS = {
    "a": VideoLabels("training", 6.0, (Segment(1.0, 2.0, "jump"), Segment(2.5, 4.0, "wave"))),
    "b": VideoLabels("testing", 5.0, (Segment(0.5, 1.5, "jump"),)),
}


@pytest.fixture
def labels(tmp_path) -> Path:
    """Two videos in our own form."""
    path = tmp_path / "labels.json"
    database = {
        name: {
            "subset": video.subset,
            "duration": video.duration,
            "annotations": [{"label": s.label, "segment": [s.start, s.end]} for s in video.segments],
        }
        for name, video in VIDEOS.items()
    }
    path.write_text(json.dumps({"classes": ["jump", "wave"], "database": database}))
    return path


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["video,subset,start,end,label", *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", {"database": {"a": {"annotations": [{"label": "x\ud800", "segment": [1, 2]}]}}}),
        ("a.json", {"database": {"a": {"subset": "\ud800"}}}),
        ("a.json", {"classes": ["\ud800"], "database": {}}),
        ("a.json", {"LSTR": {"class_names": ["Background", "\ud800"]}}),
        ("a.json", {"results": {"a": [{"label": "\ud800", "segment": [1, 2], "score": 1}]}}),
        ("a.jsonl", {"event": "ended", "label": "\ud800", "time": 2, "start": 1, "end": 2}),
    ],
)
def test_half_a_character_is_refused_where_it_is_read(tmp_path, name, content):
    """No file in UTF-8 can hold it: a training would end, and nothing could be written."""
    (tmp_path / name).write_text(json.dumps(content) + "\n")
    with pytest.raises(LabelsError, match=r"'.*\\ud800'|class_names") as caught:
        read_label_file(tmp_path / name, lenient=True)
    assert caught.value.hint and str(caught.value).encode()


def test_a_table_as_people_write_it(tmp_path):
    path = write(tmp_path / "labels.csv", "a.mp4,Train,0:01.5,0:00:03,jump", "clips/b.MOV,test,0:01,2,jump")
    read = read_label_file(path)
    assert read.videos == {
        "a": VideoLabels("training", None, (Segment(1.5, 3.0, "jump"),)),
        "clips/b": VideoLabels("testing", None, (Segment(1.0, 2.0, "jump"),)),
    }
    assert {note.kind for note in read.notes} == {"subset name", "id with ending"}
    assert [f.severity for f in check(read)].count("note") == 3
    assert read_label_file(path, present=["a", "b"]).videos.keys() == {"a", "b"}, "no folder where none is at hand"
    assert read_label_file(path, present=["a.mp4", "b"]).videos.keys() == {"a.mp4", "b"}, "as the features call it"


def test_paths_of_another_machine_name_their_videos(tmp_path):
    rows = ["C:\\films\\a.mp4,train,1,2,jump", "D:\\films\\day 1\\b.MOV,train,1,2,jump"]
    path = write(tmp_path / "labels.csv", *rows, "/home/me/films/day 1/c.mp4,train,1,2,jump")
    assert read_label_file(path, present=["a", "day 1/b", "day 1/c"]).videos.keys() == {"a", "day 1/b", "day 1/c"}
    assert read_label_file(write(path, *rows)).videos.keys() == {"a", "b"}, "the last part where none is at hand"
    twice = write(path, "C:\\1\\a.mp4,train,1,2,jump", "C:\\2\\a.mp4,train,1,2,jump")
    assert len(read_label_file(twice).videos) == 2


def test_labels_name_files_that_differ_by_their_endings(tmp_path):
    """Their ids have the endings, which labels of one of them may have beside a folder."""
    path = write(tmp_path / "labels.csv", "C:\\films\\a.mp4,train,1,2,jump", "a.avi,train,1,2,jump")
    assert read_label_file(path, present=["a.mp4", "a.avi"]).videos.keys() == {"a.mp4", "a.avi"}


def test_labels_of_other_videos_are_an_error(small_set, tmp_path, lstr):
    """A check that finds nothing to check would say that all is well; so would a report without its labels."""
    path = write(tmp_path / "labels.csv", "other,training,1,2,walk")
    words = "no label belongs to any of the videos: the first label is of 'other', the first of 4 videos is 'scene_00'"
    for at_hand in ([small_set.videos], [small_set.features, "--set", "skip_missing=true"]):
        code, out, err = lstr("labels", "check", path, *at_hand)
        assert code == 2 and "no match" in out and words in err and "hint: name each video by its path" in err
    for command in (
        ["detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path / "out", "--set", f"labels={path}"],
    ):
        code, _, err = lstr(*command)
        assert code == 2 and words[2:] in err and "hint: " in err, err
    assert not (tmp_path / "out").exists()


def test_detections_are_labels_without_their_scores(tmp_path):
    path = tmp_path / "found.csv"
    path.write_text("video,start,end,label,score\na,1,2,jump,0.5\n")
    read = read_label_file(path)
    assert read.videos["a"].segments[0].score is None and "scores" in {note.kind for note in read.notes}


@pytest.mark.parametrize(
    ("name", "content", "words", "hint"),
    [
        ("missing.csv", None, "does not exist", "path of the labels"),
        ("a.csv", "video,start,end\na,1,2\n", "no column label", "--columns 'label=…'"),
        ("a.csv", "video,start,end,label\na,3,2,jump\n", "Video 'a'", "Swap"),
        ("a.json", "{}", 'no object "database"', "database"),
        ("a.json", '{"database": {"a": {}, "a": {}}}', "twice", "Join"),
        ("a.json", '[{"data": {"video": "a.mp4"}, "annotations": [{"result": [{"type": "timelinelabels"}]}]}]',
         "counts frames", "lstr labels convert"),
        ("a.xyz", "?", "is not JSON", "lstr labels convert"),
        ("a.mp4", b"\0\0\0\xff\xd8", "cannot be read", "CSV"),
    ],
)  # fmt: skip
def test_what_is_no_label_file(tmp_path, name, content, words, hint):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LabelsError, match=words) as caught:
        read_label_file(path)
    assert hint in caught.value.hint and caught.value.exit_code == 2


def test_every_wrong_segment_of_a_table_is_found(tmp_path):
    path = write(tmp_path / "labels.csv", "a,train,3,2,jump", "a,train,-1,2,jump", "b,,1,2,wave")
    kinds = [f.kind for f in check(read_label_file(path, lenient=True)) if f.severity == "error"]
    assert kinds == ["before the start", "negative length", "no subset"]


def test_what_a_video_says_of_itself(small_set, tmp_path):
    videos = find_labelled_videos([small_set.videos])
    assert videos == find_videos([small_set.videos]) and len(videos) == 4
    footage = footage_of_files(videos)
    assert footage.keys() == videos.keys()
    assert all(abs(one.seconds - 5.0) < 0.2 and one.rate and one.rate >= 10 for one in footage.values())
    assert (
        find_labelled_videos([small_set.features])
        == find_labelled_videos([])
        == find_labelled_videos([small_set.videos, "nothing"])
        == {}
    )
    (tmp_path / "no.mp4").write_text("?")
    assert footage_at(tmp_path / "no.mp4") is None


def test_frame_numbers_are_found_by_the_rate_of_the_videos(small_set, tmp_path, lstr):
    footage = footage_of_files(find_videos([small_set.videos]))
    labels, rows = read_labels(small_set.labels), []
    for name, video in labels.videos.items():
        times = [(round(s.start * footage[name].rate), round(s.end * footage[name].rate)) for s in video.segments]
        rows += [f"{name},training,{start},{end},walk" for start, end in times]
    path = write(tmp_path / "frames.csv", *rows)
    code, out, _ = lstr("labels", "check", path)
    assert code == 0 and "seconds or frames?" in out, "nobody knows how long the videos are"
    for others in (small_set.videos, small_set.features):
        code, out, err = lstr("labels", "check", path, others)
        assert code == 2 and "are these frames?" in out and "frame numbers in 'scene_00'" in err, (out, err)
    code, out, err = lstr("labels", "check", path, small_set.videos)
    rate = f"{footage['scene_00'].rate:g}"
    assert f"--frames {rate} " in err
    mended = tmp_path / "mended.json"
    assert lstr("labels", "convert", path, "--frames", rate, "-o", mended)[0] == 0
    assert lstr("labels", "check", mended, small_set.videos)[0] == 0
    for command in (("train", small_set.features, "-o", tmp_path / "run"), ("evaluate", small_set.checkpoint,
                    small_set.features, "--subset", "training")):  # fmt: skip
        code, _, err = lstr(*command, "--labels", path)
        assert code == 2 and "frame numbers" in err and "hint: " in err, err


def test_hints_of_a_check_work_as_they_are_typed(tmp_path, lstr, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("two").mkdir()
    Path("two/a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\njump\n")
    write(Path("two/b.csv"), "b,train,1,2,jump")
    task = {"type": "timelinelabels", "value": {"ranges": [{"start": 26, "end": 50}], "timelinelabels": ["jump"]}}
    Path("ls.json").write_text(json.dumps([{"data": {"video": "a.mp4"}, "annotations": [{"result": [task]}]}]))
    for place in ("two", "ls.json"):
        for command in (["labels", "check"], ["info"]):
            code, _, err = lstr(*command, place)
            assert code == 2 and "[[" not in err, err
            typed = " ".join(err.split()).rpartition("`lstr ")[2].partition("`")[0]
            Path("labels.json").unlink(missing_ok=True)
            assert lstr(*typed.split())[0] == 0 and Path("labels.json").exists(), err


def test_the_check_in_words(small_set, tmp_path, lstr):
    tidy = write(tmp_path / "tidy.csv", *(f"v{i},{s},{k + 0.5},{k + 1},jump" for i, s in enumerate(("train", "test"))
                                          for k in range(5)))  # fmt: skip
    text = tidy.read_text().replace("train", "training").replace("test", "testing")
    tidy.write_text(text)
    code, out, err = lstr("labels", "check", tidy)
    assert (code, err) == (0, "") and out == f"{tidy}: 2 videos, 10 segments, 1 class; nothing wrong was found\n"
    code, out, _ = lstr("labels", "check", tidy, "--json")
    assert json.loads(out) == {"videos": 2, "segments": 10, "classes": 1, "findings": []}
    code, out, _ = lstr("labels", "check", tidy, small_set.videos, "--json")
    kinds = [(f["severity"], f["kind"]) for f in json.loads(out)["findings"]]
    assert (
        code == 2 and kinds == [("error", "no match")] + [("warning", "no labels")] * 4 + [("warning", "no video")] * 2
    )


def test_a_description(small_set, tmp_path, lstr):
    code, out, _ = lstr("info", small_set.labels, "--json")
    found = json.loads(out)
    labels: Labels = read_labels(small_set.labels)
    assert code == 0 and (found["kind"], found["videos"]) == ("label file", 4)
    assert found["subsets"] == {"training": 3, "testing": 1} and found["durations"]["stated"] == 4
    for name, facts in found["per_class"].items():
        own = [s for video in labels.videos.values() for s in video.segments if s.label == name]
        assert facts["segments"] == len(own) and facts["seconds"] == pytest.approx(sum(s.end - s.start for s in own))
    assert found["segments"] == sum(facts["segments"] for facts in found["per_class"].values())
    path = write(tmp_path / "labels.csv", "a,train,3,2,jump", "a,train,1,2,jump")
    code, out, _ = lstr("info", path)
    assert code == 0 and "label file" in out and "jump segments\t2\njump seconds\t1\njump videos\t1\n" in out
    (tmp_path / "eaf").mkdir()
    convert([small_set.labels], "eaf", tmp_path / "eaf")
    assert json.loads(lstr("info", tmp_path / "eaf", "--json")[1])["videos"] == 4
    (tmp_path / "none.json").write_text("[1")
    code, out, err = lstr("info", tmp_path / "none.json")
    assert (code, out) == (2, "") and "none.json" in err


@pytest.mark.parametrize("command", [["labels", "check", "LABELS", "VIDEOS"], ["info", "LABELS"]])
def test_labels_need_no_torch(small_set, command):
    words = {"LABELS": str(small_set.labels), "VIDEOS": str(small_set.videos)}
    argv = ["lstr", *(words.get(word, word) for word in command)]
    code = f"import sys; sys.argv = {argv!r}\nfrom lstr_cli.main import main\n"
    code += "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
    code += "print([m for m in ('torch', 'sklearn', 'mmengine') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "[]"


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
    assert code == 2 and "does not exist" in err and "missing.csv" in err
    code, _, err = lstr("learn", *given, *words)
    assert code == 2 and "Give a video" in err
