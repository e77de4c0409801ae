"""`lstr labels budget` and `lstr labels compare`."""

import json

import pytest

from tests.support.browser import write_greys
from tests.support.errors import assert_error

A = {"one": [("hug", 2, 8), ("kick", 10, 12)], "two": [("kick", 1, 3)]}
B = {"one": [("hug", 2, 4.5), ("hug", 5.5, 8), ("hug", 10, 12)], "two": [("kick", 1.25, 3.25)]}
WITH_SUBJECTS = """Observation id,Media file,Total length,FPS,Subject,Behavior,Behavior type,Start (s),Stop (s)
o,one.mp4,20,25,ann,hug,STATE,2,8
o,one.mp4,20,25,ben,hug,STATE,4,6
o,one.mp4,20,25,No focal subject,kick,STATE,15,16
"""


def write(path, videos, classes=None, **facts):
    entries = {
        name: {"annotations": [{"label": label, "segment": times} for label, *times in segments], **facts}
        for name, segments in videos.items()
    }
    path.write_text(json.dumps({"database": entries} | ({"classes": classes} if classes else {})))
    return path


@pytest.fixture
def files(tmp_path):
    return write(tmp_path / "a.json", A, duration=20.0), write(tmp_path / "b.json", B, duration=20.0)


def compare(run, *paths) -> dict:
    return json.loads(run("labels", "compare", *paths, "--json")[0])


def test_a_budget_of_all_videos_and_of_each(tmp_path, lstr):
    classes = ["hug", "kick", "wave", "Ambiguous"]
    path = write(tmp_path / "a.json", {**A, "none": [("Ambiguous", 0, 5)]}, classes)
    code, out, err = lstr("labels", "budget", path)
    title, columns, *rows = (tuple(line.split("\t")) for line in out.splitlines())
    assert (code, err) == (0, "") and rows[:3] == [
        ("all", "hug", "all", "1", "6.00", "6.00"),
        ("all", "kick", "all", "2", "4.00", "2.00"),
        ("all", "wave", "all", "0", "0.00", "–"),
    ]
    document = json.loads(lstr("labels", "budget", path, "--json")[1])
    assert tuple(document["rows"][0]) == columns and len(document["rows"]) == 6
    assert list(document["rows"][2].values()) == ["all", "wave", "all", 0, 0, None]


def test_a_budget_by_subject_of_several_files(lstr, tmp_path):
    (tmp_path / "codes.csv").write_text(WITH_SUBJECTS)
    other = write(tmp_path / "b.json", {"two": [("kick", 1, 3)]})
    rows = json.loads(lstr("labels", "budget", tmp_path / "codes.csv", other, "--json")[1])["rows"]
    assert [(r["video"], r["action"], r["subject"], r["count"], r["total_s"]) for r in rows] == [
        ("all", "hug", "all", 2, 8), ("all", "hug", "ann", 1, 6), ("all", "hug", "ben", 1, 2),
        ("all", "kick", "all", 2, 3), ("all", "kick", "", 2, 3),
        ("one", "hug", "all", 2, 8), ("one", "hug", "ann", 1, 6), ("one", "hug", "ben", 1, 2),
        ("one", "kick", "all", 1, 1), ("one", "kick", "", 1, 1),
        ("two", "kick", "all", 1, 2), ("two", "kick", "", 1, 2),
    ]  # fmt: skip


def test_two_files_are_compared(files, lstr, run):
    document = compare(run, *files)
    assert (document["videos"], document["seconds"], document["kappa"]["chunks"]) == (2, 40.0, 160)
    together = document["events"]["together"]
    assert (together["labels"], together["detections"]) == (3, 4)
    assert together["iou"]["0.5"]["f1"] == pytest.approx(2 / 7)
    assert together["onset"]["1.0"]["f1"] == pytest.approx(4 / 7)
    code, out, err = lstr("labels", "compare", *files)
    columns, *lines = (line.split("\t") for line in out.splitlines()[1:])
    rows = {row[0]: dict(zip(columns, row, strict=True)) for row in lines}
    assert code == 0 and err == "" and list(rows) == ["hug", "kick", "together"]
    assert float(rows["hug"]["kappa"]) == pytest.approx(0.72, abs=0.005) and rows["together"]["B"] == "4"


def test_lengths_and_rates_come_from_labels_videos_or_the_last_end(tmp_path, lstr, run):
    """Both observers may count frames; `far` has the rate of the other videos."""
    labels = write(tmp_path / "a.json", {"greys": A["one"]})
    code, out, err = lstr("labels", "compare", labels, labels, "--json")
    assert code == 0 and json.loads(out)["seconds"] == 12.0 and "greys" in err
    (tmp_path / "videos").mkdir()
    write_greys(tmp_path / "videos" / "greys.mp4")
    document = compare(run, labels, labels, tmp_path / "videos")
    assert document["seconds"] == 10.0 and document["events"]["together"]["labels"] == 1, "the other starts at the end"
    table = tmp_path / "frames.csv"
    table.write_text("video,start_frame,end_frame,label\ngreys,24,48,hug\nfar,24,48,hug\n")
    document = compare(run, table, table, tmp_path / "videos")
    assert document["kappa"]["together"] == 1.0 and document["videos"] == 2


def test_events_are_compared_where_neither_side_is_ambiguous(tmp_path, run):
    a = write(tmp_path / "a.json", {"one": [("hug", 2, 8), ("Ambiguous", 10, 20)]}, duration=20.0)
    b = write(tmp_path / "b.json", {"one": [("hug", 2, 8), ("kick", 11, 13)]}, duration=20.0)
    for sides in ((a, b), (b, a)):
        document = compare(run, *sides)
        assert document["events"]["together"]["iou"]["0.5"]["f1"] == document["kappa"]["together"] == 1.0


def test_detections_are_compared_like_labels(files, lstr, run, tmp_path):
    folder = tmp_path / "timeline"
    folder.mkdir()
    for name, actions in B.items():
        segments = [{"label": label, "start": start, "end": end, "score": 0.9} for label, start, end in actions]
        timeline = {"format": "lstr-timeline/1", "source": name, "duration": 20.0, "segments": segments}
        (folder / f"{name}.json").write_text(json.dumps(timeline | {"classes": ["Background", "hug", "kick"]}))
    (folder / "index.html").write_text("<html>")
    (folder / "one.csv").write_text("video,start,end,label,score\none,1,2,hug,0.5\n")
    labels, detections = compare(run, *files), compare(run, files[0], folder)
    assert labels["events"] == detections["events"] and labels["kappa"] == detections["kappa"]
    assert len(json.loads(lstr("labels", "budget", folder, "--json")[1])["rows"]) == 4


def test_labels_without_a_common_video_or_action_cannot_be_compared(files, lstr, tmp_path):
    other = tmp_path / "other.json"
    assert_error(lstr("labels", "compare", files[0], write(other, {"three": A["one"]})), 2)
    assert_error(lstr("labels", "compare", files[0], write(other, {"one": [("Hug", 2, 8)]})), 2, "--rename OLD=NEW")
    code, _, err = lstr("labels", "compare", files[0], write(other, {"one": [("hug", 2, 8), ("Kicks", 10, 12)]}))
    assert code == 0 and all(name in err for name in ("two", "kick", "Kicks"))
    assert_error(lstr("labels", "budget", write(other, {"one": []})), 2)
    assert_error(lstr("labels", "compare", files[0], tmp_path / "missing.json"), 2, "missing.json")
    (tmp_path / "none").mkdir()
    assert_error(lstr("labels", "compare", *files, tmp_path / "none"), 2, "none")
