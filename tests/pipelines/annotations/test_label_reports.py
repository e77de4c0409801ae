"""Time budgets and agreement of label files, as the commands print them."""

import json

import pytest

from tests.support.browser import write_greys
from tests.support.mistakes import mistake

A = {"one": [("hug", 2, 8), ("kick", 10, 12)], "two": [("kick", 1, 3)]}
B = {"one": [("hug", 2, 4.5), ("hug", 5.5, 8), ("hug", 10, 12)], "two": [("kick", 1.25, 3.25)]}
WITH_SUBJECTS = """Observation id,Media file,Total length,FPS,Subject,Behavior,Behavior type,Start (s),Stop (s)
o,one.mp4,20,25,ann,hug,STATE,2,8
o,one.mp4,20,25,ben,hug,STATE,4,6
o,one.mp4,20,25,ann,kick,STATE,10,12
o,one.mp4,20,25,No focal subject,kick,STATE,15,16
"""


def write(path, videos, duration=20.0, classes=None):
    entries = {
        name: {"annotations": [{"label": a, "segment": [s, e]} for a, s, e in actions]}
        | ({} if duration is None else {"duration": duration})
        for name, actions in videos.items()
    }
    path.write_text(json.dumps({"database": entries} | ({"classes": classes} if classes else {})))
    return path


@pytest.fixture
def files(tmp_path):
    return write(tmp_path / "a.json", A), write(tmp_path / "b.json", B)


def test_a_budget_of_all_videos_and_of_each(tmp_path, lstr):
    path = write(
        tmp_path / "a.json", {**A, "none": [("Ambiguous", 0, 5)]}, classes=["hug", "kick", "wave", "Ambiguous"]
    )
    title, columns, *rows = (line.split("\t") for line in lstr("labels", "budget", path)[1].splitlines())
    assert [tuple(row) for row in rows] == [
        ("all", "hug", "all", "1", "6.00", "6.00"),
        ("all", "kick", "all", "2", "4.00", "2.00"),
        ("all", "wave", "all", "0", "0.00", "–"),
        ("one", "hug", "all", "1", "6.00", "6.00"),
        ("one", "kick", "all", "1", "2.00", "2.00"),
        ("two", "kick", "all", "1", "2.00", "2.00"),
    ]
    assert columns == ["video", "action", "subject", "count", "total_s", "mean_s"]
    code, out, err = lstr("labels", "budget", path)
    assert code == 0 and "mean_s" in out and "6.00" in out and err == ""
    document = json.loads(lstr("labels", "budget", path, "--json")[1])
    assert document["rows"][2] == {
        "video": "all", "action": "wave", "subject": "all", "count": 0, "total_s": 0, "mean_s": None,
    }  # fmt: skip


def test_a_budget_by_subject_of_several_files(lstr, tmp_path):
    (tmp_path / "codes.csv").write_text(WITH_SUBJECTS)
    later = write(tmp_path / "b.json", {"two": [("kick", 1, 3)]})
    rows = json.loads(lstr("labels", "budget", tmp_path / "codes.csv", later, "--json")[1])["rows"]
    assert [(r["video"], r["action"], r["subject"], r["count"], r["total_s"]) for r in rows] == [
        ("all", "hug", "all", 2, 8), ("all", "hug", "ann", 1, 6), ("all", "hug", "ben", 1, 2),
        ("all", "kick", "all", 3, 5), ("all", "kick", "", 2, 3), ("all", "kick", "ann", 1, 2),
        ("one", "hug", "all", 2, 8), ("one", "hug", "ann", 1, 6), ("one", "hug", "ben", 1, 2),
        ("one", "kick", "all", 2, 3), ("one", "kick", "", 1, 1), ("one", "kick", "ann", 1, 2),
        ("two", "kick", "all", 1, 2), ("two", "kick", "", 1, 2),
    ]  # fmt: skip


def test_two_files_are_compared(files, lstr):
    document = json.loads(lstr("labels", "compare", *files, "--json")[1])
    assert (document["videos"], document["seconds"], document["kappa"]["chunks"]) == (2, 40.0, 160)
    together = document["events"]["together"]
    assert (together["labels"], together["detections"]) == (3, 4)
    assert together["iou"]["0.5"]["f1"] == pytest.approx(2 / 7) and together["onset"]["1.0"]["f1"] == pytest.approx(
        4 / 7
    )
    code, out, err = lstr("labels", "compare", *files)
    columns, *lines = (line.split("\t") for line in out.splitlines()[1:])
    rows = {row[0]: dict(zip(columns, row, strict=True)) for row in lines}
    assert code == 0 and err == "" and list(rows) == ["hug", "kick", "together"]
    assert list(rows["hug"]) == ["action", "A", "B", "kappa", "F1 IoU 0.3", "F1 IoU 0.5", "F1 start 1 s"]
    assert float(rows["hug"]["kappa"]) == pytest.approx(0.72, abs=0.005) and rows["together"]["B"] == "4"
    assert "0.72" in lstr("labels", "compare", *files)[1]
    same = json.loads(lstr("labels", "compare", files[0], files[0], "--json")[1])
    assert same["kappa"]["together"] == same["events"]["together"]["iou"]["0.5"]["f1"] == 1.0


def test_lengths_come_from_labels_videos_or_the_last_end(tmp_path, lstr):
    labels = write(tmp_path / "a.json", {"greys": A["one"]}, duration=None)
    code, out, err = lstr("labels", "compare", labels, labels, "--json")
    assert code == 0 and json.loads(out)["seconds"] == 12.0 and "the length of greys is unknown" in err
    (tmp_path / "videos").mkdir()
    write_greys(tmp_path / "videos" / "greys.mp4")
    code, out, err = lstr("labels", "compare", labels, labels, tmp_path / "videos", "--json")
    assert json.loads(out)["seconds"] == 10.0 and "unknown" not in err
    assert json.loads(out)["events"]["together"]["labels"] == 1, "the other starts after the end"


def test_both_observers_count_frames_at_the_rates_of_the_videos(tmp_path, lstr):
    """The first table was read, and the same as the second was refused; `far` has the rate of the others."""
    (tmp_path / "videos").mkdir()
    write_greys(tmp_path / "videos" / "greys.mp4")
    text = "video,start_frame,end_frame,label\ngreys,24,48,hug\nfar,24,48,hug\n"
    sides = [tmp_path / name for name in ("a.csv", "b.csv")]
    for side in sides:
        side.write_text(text)
    code, out, err = lstr("labels", "compare", *sides, tmp_path / "videos", "--json")
    assert code == 0, err
    assert json.loads(out)["kappa"]["together"] == 1.0 and json.loads(out)["videos"] == 2


def test_events_are_compared_where_neither_side_is_ambiguous(tmp_path, lstr):
    a = write(tmp_path / "a.json", {"one": [("hug", 2, 8), ("Ambiguous", 10, 20)]})
    b = write(tmp_path / "b.json", {"one": [("hug", 2, 8), ("kick", 11, 13)]}, classes=["hug", "kick"])
    for sides in ((a, b), (b, a)):
        found = json.loads(lstr("labels", "compare", *sides, "--json")[1])
        assert found["events"]["together"]["iou"]["0.5"]["f1"] == found["kappa"]["together"] == 1.0


def test_what_detect_wrote_is_read_as_labels_are(files, lstr, tmp_path):
    """A folder with timelines, and files of other formats beside them."""
    for name, actions in B.items():
        segments = [{"label": label, "start": start, "end": end, "score": 0.9} for label, start, end in actions]
        timeline = {"format": "lstr-timeline/1", "source": name, "duration": 20.0, "segments": segments}
        timeline["classes"] = ["Background", "hug", "kick"]
        (tmp_path / "timeline").mkdir(exist_ok=True)
        (tmp_path / "timeline" / f"{name}.json").write_text(json.dumps(timeline))
    (tmp_path / "timeline" / "index.html").write_text("<html>")
    (tmp_path / "timeline" / "one.csv").write_text("video,start,end,label,score\none,1,2,hug,0.5\n")
    (tmp_path / "timeline" / "._one.json").write_bytes(b"\x00\x05\x16\x07Mac OS X\xa3")  # as macOS leaves them
    found = [json.loads(lstr("labels", "compare", files[0], other, "--json")[1]) for other in
             (files[1], tmp_path / "timeline")]  # fmt: skip
    assert found[0]["events"] == found[1]["events"] and found[0]["kappa"] == found[1]["kappa"]
    assert len(json.loads(lstr("labels", "budget", tmp_path / "timeline", "--json")[1])["rows"]) == 4


def test_what_cannot_be_compared_is_an_error_with_a_hint(files, lstr, tmp_path):
    other = write(tmp_path / "other.json", {"three": A["one"]})
    mistake(lstr("labels", "compare", files[0], other), 2, "have no video in common", "name each video alike")
    renamed = write(tmp_path / "renamed.json", {"one": [("Hug", 2, 8), ("Kicks", 10, 12)]})
    mistake(lstr("labels", "compare", files[0], renamed), 2, "No action is in both", "--rename OLD=NEW")
    renamed = write(tmp_path / "renamed.json", {"one": [("hug", 2, 8), ("Kicks", 10, 12)]})
    code, out, err = lstr("labels", "compare", files[0], renamed)
    assert code == 0 and "labels of them: two" in err and "only in A: kick" in err and "only in B: Kicks" in err
    mistake(lstr("labels", "budget", write(tmp_path / "none.json", {"one": []})), 2, "No action is labelled")
    mistake(lstr("labels", "compare", files[0], tmp_path / "gone.json"), 2, "gone.json")
    (tmp_path / "none").mkdir()
    mistake(lstr("labels", "compare", *files, tmp_path / "none"), 2, "holds no video")
