"""Time budgets and agreement as a user has them: commands, files, pages, and what is refused."""

import csv
import io
import json

import pytest

from lstr.pipelines.behaviour.ethogram import draw_ethogram
from lstr.pipelines.behaviour.observed import LAST_END, OF_FILE, STATED
from tests.support.browser import HOSTILE, write_greys
from tests.support.mistakes import mistake

A = {"one": [("hug", 2, 8), ("kick", 10, 12)], "two": [("kick", 1, 3)]}
B = {"one": [("hug", 2, 4.5), ("hug", 5.5, 8), ("hug", 10, 12)], "two": [("kick", 1.25, 3.25)]}


def write(path, videos, duration=20.0, classes=None):
    entries = {
        name: {"duration": duration, "annotations": [{"label": a, "segment": [s, e]} for a, s, e in actions]}
        for name, actions in videos.items()
    }
    entries = {name: {k: v for k, v in one.items() if v is not None} for name, one in entries.items()}
    path.write_text(json.dumps({"database": entries} | ({"classes": classes} if classes else {})))
    return path


@pytest.fixture
def files(tmp_path):
    return write(tmp_path / "a.json", A), write(tmp_path / "b.json", B)


def test_a_budget_of_all_and_of_each_in_bins(files, lstr):
    document = json.loads(lstr("labels", "budget", files[0], "--bin", "5s", "--json")[1])
    hug, kick = document["together"]
    assert (hug["action"], hug["count"], hug["seconds"], hug["share"]) == ("hug", 1, 6.0, 0.15)
    assert (kick["count"], kick["latency"], kick["per_minute"]) == (2, 5.5, 3.0)
    assert document["per_video"]["two"]["actions"][1]["per_minute"] == 3.0
    assert document["lengths"] == {STATED: 2} and document["observed_seconds"] == 40.0
    assert [(row["start"], row["count"], row["seconds"]) for row in document["bins"] if row["action"] == "hug"] == [
        (0.0, 1, 3.0), (5.0, 0, 3.0), (10.0, 0, 0.0), (15.0, 0, 0.0),
    ]  # fmt: skip
    assert document["transitions"]["counts"] == [[0, 1], [0, 0]]
    assert document["transitions_with_pauses"]["counts"] == [[0, 0, 1], [0, 0, 0], [0, 1, 0]]
    code, out, _ = lstr("labels", "budget", files[0])
    assert code == 0 and out.startswith("3 events in 2 videos, 40 s watched; longest: hug, 15 % of the time\n")
    rows = list(csv.DictReader(io.StringIO(lstr("labels", "budget", files[0], "--to", "csv")[1])))
    assert [(row["video"], row["action"], row["count"]) for row in rows[:3]] == [
        ("all", "hug", "1"), ("all", "kick", "2"), ("one", "hug", "1"),
    ]  # fmt: skip
    assert "<caption>time budget</caption>" in lstr("labels", "budget", files[0], "--to", "html")[1]


def test_lengths_come_from_labels_videos_or_the_last_end(tmp_path, lstr):
    labels = write(tmp_path / "a.json", {"greys": A["one"]}, duration=None)
    code, out, err = lstr("labels", "budget", labels, "--json")
    assert json.loads(out)["lengths"] == {LAST_END: 1} and json.loads(out)["observed_seconds"] == 12.0
    assert "1 of 1 videos state no length: each is taken to end with its last label" in err
    (tmp_path / "videos").mkdir()
    write_greys(tmp_path / "videos" / "greys.mp4")
    code, out, err = lstr("labels", "budget", labels, tmp_path / "videos", "--json")
    document = json.loads(out)
    assert document["lengths"] == {OF_FILE: 1} and document["observed_seconds"] == 10.0
    assert "1 labels start after the end of their video and are left out, in greys" in err
    assert [row["count"] for row in document["together"]] == [1, 0]
    instant = write(tmp_path / "i.json", {"x": [("look", 3, 3)]}, duration=None)
    assert json.loads(lstr("labels", "budget", instant, "--json")[1])["together"][0]["count"] == 1


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
    assert json.loads(out)["frames"]["together"]["kappa"] == 1.0 and json.loads(out)["videos"] == 2


def test_what_nobody_labelled_is_not_watched(tmp_path, lstr):
    """As of an observation of a part of a video: its first and last 5 s were watched, and nothing seen in them."""
    part = {"one": [("Ambiguous", 0, 5), ("hug", 6, 8), ("hug", 10, 11), ("Ambiguous", 15, 20)], "two": [("hug", 0, 1)]}
    path = write(tmp_path / "part.json", part)
    code, out, err = lstr("labels", "budget", path, "--bin", "10s", "--json")
    document = json.loads(out)
    assert code == 0 and "10.0 s of 1 of 2 videos are not labelled (Ambiguous), and do not count as watched" in err
    assert document["observed_seconds"] == 30.0
    (row,), (one,) = document["together"], document["per_video"]["one"]["actions"]
    assert (row["share"], row["per_minute"], row["latency"]) == (pytest.approx(4 / 30), 6.0, 0.5)
    assert (one["observed"], one["share"], one["latency"]) == (10.0, 0.3, 1.0)
    assert [row["observed"] for row in document["per_video"]["one"]["bins"]] == [5.0, 5.0]
    assert "not labelled" not in lstr("labels", "budget", write(tmp_path / "a.json", A))[2]


def test_how_labels_were_taken_is_told(tmp_path, lstr):
    path = tmp_path / "a.csv"
    path.write_text("video,duration,start,end,label\none.mp4,20,1,2,hug,more\n")
    for words in (("budget", path), ("compare", path, path)):
        code, _, err = lstr("labels", *words)
        assert code == 0 and err.count("line 2 has more cells than the header has names: 'more' is not read") == 1, err
        assert str(path) in err and "no video has a subset" not in err


WHO = """Observation id,Media file,Total length,FPS,Subject,Behavior,Behavior type,Start (s),Stop (s)
o,one.mp4,20,25,ann,hug,STATE,2,8
o,one.mp4,20,25,ben,hug,STATE,4,6
o,one.mp4,20,25,ann,kick,STATE,10,12
o,one.mp4,20,25,No focal subject,kick,STATE,15,16
"""


def test_a_budget_by_subject(lstr, tmp_path):
    (tmp_path / "codes.csv").write_text(WHO)
    document = json.loads(lstr("labels", "budget", tmp_path / "codes.csv", "--bin", "10s", "--json")[1])
    assert document["subjects"] == ["", "ann", "ben"]
    who = [(row["action"], row["subject"], row["count"], row["seconds"]) for row in document["together_by_subject"]]
    assert who == [("kick", "", 1, 1.0), ("hug", "ann", 1, 6.0), ("kick", "ann", 1, 2.0), ("hug", "ben", 1, 2.0)]
    hug, kick = document["together"]
    assert (hug["count"], hug["seconds"], kick["count"]) == (2, 8.0, 2), "of all of them"
    ann = [row["seconds"] for row in document["bins_by_subject"] if (row["action"], row["subject"]) == ("kick", "ann")]
    assert ann == [0.0, 2.0] and len(document["per_video"]["one"]["bins_by_subject"]) == 8
    assert document["transitions_by_subject"]["ann"]["counts"] == [[0, 1], [0, 0]]
    assert document["transitions"]["counts"] == [[0, 1], [0, 0]], "never from one subject to another"
    rows = list(csv.DictReader(io.StringIO(lstr("labels", "budget", tmp_path / "codes.csv", "--to", "csv")[1])))
    assert [(row["action"], row["subject"]) for row in rows[:4]] == [
        ("hug", "all"), ("kick", "all"), ("kick", ""), ("hug", "ann"),
    ]  # fmt: skip
    for form, words in (("latex", "hug & ben"), ("html", "<td>ben</td>")):
        assert words in lstr("labels", "budget", tmp_path / "codes.csv", "--to", form)[1]
    assert "(not said)" in lstr("labels", "budget", tmp_path / "codes.csv")[1]
    assert lstr("labels", "convert", tmp_path / "codes.csv", "-o", tmp_path / "l.json")[0] == 0
    again = json.loads(lstr("labels", "budget", tmp_path / "l.json", "--json")[1])
    assert again["together_by_subject"] == document["together_by_subject"]


@pytest.mark.long
def test_the_ethogram_of_a_page_has_a_row_for_each_subject(lstr, tmp_path, show):
    (tmp_path / "codes.csv").write_text(WHO.replace("ben", HOSTILE))
    assert lstr("labels", "budget", tmp_path / "codes.csv", "-o", tmp_path / "out")[0] == 0
    page = show(tmp_path / "out" / "report.html")
    assert "By subject" in page.inner_text("main, body") and page.locator("table").count() == 8
    svg = next((tmp_path / "out").rglob("*.svg")).read_text()
    assert "hug · ann" in svg and "<script>alert" not in svg


def test_two_files_are_compared(files, lstr, tmp_path):
    document = json.loads(lstr("labels", "compare", *files, "--json")[1])
    kinds = document["kinds"]["together"]
    assert {name: n for name, n in kinds["labels"].items() if n} == {"correct": 1, "fragmented": 1, "wrong_action": 1}
    assert {name: n for name, n in kinds["detections"].items() if n} == {
        "correct": 1, "fragment": 2, "wrong_action": 1,
    }  # fmt: skip
    assert document["frames"]["chunks"] == 160 and document["events"]["together"]["matched"]["0.25"]["pairs"] == 2
    assert document["per_video"]["two"]["kappa"] == pytest.approx(0.8611, abs=1e-4)
    code, out, _ = lstr("labels", "compare", *files)
    assert code == 0 and "; 1 of A in pieces in B; 1 another action\n" in out
    assert r"hug & 24 & 28 & 20 & 0.93 & 0.73 & 0.72 \\" in lstr("labels", "compare", *files, "--to", "latex")[1]
    (row,) = (r for r in csv.DictReader(io.StringIO(lstr("labels", "compare", *files, "--to", "csv")[1]))
              if r["action"] == "together")  # fmt: skip
    assert (row["A in pieces"], row["B piece of one"], row["events A"], row["events B"]) == ("1", "2", "3", "4")
    assert len(row) == len(set(row)) == 31
    same = json.loads(lstr("labels", "compare", files[0], files[0], "--json")[1])
    assert same["frames"]["together"]["kappa"] == 1.0 and same["events"]["together"]["mean_iou"] == 1.0


def test_events_are_compared_where_both_are_sure_and_whoever_acts(tmp_path, lstr):
    a = write(tmp_path / "a.json", {"one": [("hug", 2, 8), ("Ambiguous", 10, 20)]})
    b = write(tmp_path / "b.json", {"one": [("hug", 2, 8), ("kick", 11, 13)]}, classes=["hug", "kick"])
    for sides in ((a, b), (b, a)):
        code, out, err = lstr("labels", "compare", *sides, "--json")
        found = json.loads(out)
        assert code == 0 and "who acts" not in err
        assert found["events"]["together"]["matched"]["0.5"]["f1"] == found["frames"]["together"]["kappa"] == 1.0
        kinds = found["kinds"]["together"]
        assert sum(kinds["labels"].values()) == sum(kinds["detections"].values()) == 1 == kinds["labels"]["correct"]
    (tmp_path / "codes.csv").write_text(WHO)
    assert "say who acts, which is not compared" in lstr("labels", "compare", tmp_path / "codes.csv", b)[2]


def test_what_detect_wrote_is_read_as_labels_are(files, lstr, tmp_path):
    """A folder with a timeline, its lines, its scores and a page of each video."""
    assert lstr("labels", "convert", files[1], "--to", "json", "-o", tmp_path / "timeline")[0] == 0
    assert lstr("labels", "convert", files[1], "--to", "jsonl", "-o", tmp_path / "timeline")[0] == 0
    (tmp_path / "timeline" / "index.html").write_text("<html>")
    (tmp_path / "timeline" / "._one.json").write_bytes(b"\x00\x05\x16\x07Mac OS X\xa3")  # as macOS leaves them
    found = [json.loads(lstr("labels", "compare", files[0], other, "--json")[1]) for other in
             (files[1], tmp_path / "timeline")]  # fmt: skip
    assert found[0]["kinds"] == found[1]["kinds"] and found[0]["frames"] == found[1]["frames"]
    assert json.loads(lstr("labels", "budget", tmp_path / "timeline", "--json")[1])["videos"] == 2


@pytest.mark.long
def test_pages_and_files_of_reports(files, lstr, tmp_path, show):
    write(tmp_path / "c.json", {**B, HOSTILE: []}, classes=["hug", "kick", HOSTILE])
    code, _, err = lstr("labels", "compare", files[0], tmp_path / "c.json", "-o", tmp_path / "out")
    assert code == 0 and "report: " in err, err
    names = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert names == {
        "report.html", "agreement.json", "agreement.csv", "by-video.csv",
        "01-one.svg", "01-one.png", "02-two.svg", "02-two.png",
    }  # fmt: skip
    assert lstr("labels", "budget", tmp_path / "c.json", "-o", tmp_path / "budget", "--bin", "4s")[0] == 0
    assert len(list(csv.DictReader((tmp_path / "budget" / "budget.csv").open()))) == 3 * (1 + 5 + 3 * (1 + 5))
    for folder, n_tables in (("out", 5), ("budget", 7)):
        for width in (1280, 390):
            page = show(tmp_path / folder / "report.html", width)
            assert page.locator("table").count() == n_tables and page.locator("h1").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "only tables scroll sideways"


def test_an_ethogram_shows_moments_and_names():
    from lstr.labels.segment import Segment

    sides = {"A": [Segment(1, 1, "$x$")], "B": [Segment(2, 3, HOSTILE)]}
    svg = draw_ethogram("a_b", sides, ["$x$", HOSTILE], 7200.0).svg().decode()
    assert "$x$" in svg and "&lt;script" in svg and "<script" not in svg and "a_b" in svg


def test_what_cannot_be_compared_is_said_with_what_to_do(files, lstr, tmp_path):
    other = write(tmp_path / "other.json", {"three": A["one"]})
    mistake(lstr("labels", "compare", files[0], other), 2, "have no video in common", "'one'", "name each video alike")
    renamed = write(tmp_path / "renamed.json", {"one": [("Hug", 2, 8), ("Kicks", 10, 12)]})
    mistake(
        lstr("labels", "compare", files[0], renamed), 2, "No action is in both",
        "--set class.rename=Hug=hug --set class.rename=Kicks=kick",
    )  # fmt: skip
    words = ("--set", "class.rename=Hug=hug", "--set", "class.rename=Kicks=kick")
    code, out, err = lstr("labels", "compare", files[0], renamed, *words, "--json")
    assert json.loads(out)["frames"]["together"]["kappa"] == 1.0 and "does not have it: two of " in err
    code, _, err = lstr("labels", "compare", files[0], renamed, *words[:2])
    assert code == 0 and "only in A: kick; only in B: Kicks; if two names mean one action" in err
    mistake(lstr("labels", "compare", *files, "--set", "class.rename=x=y"), 2, "has a class 'x'", "hug, kick")
    empty = write(tmp_path / "empty.json", {})
    for words in (("budget", empty), ("compare", files[0], empty)):
        mistake(lstr("labels", *words), 2, "empty.json names no video", "lstr labels check")
    nothing = write(tmp_path / "nothing.json", {"one": []}, duration=None, classes=["hug"])
    mistake(lstr("labels", "budget", nothing), 2, "nobody says how long", "give the videos")
    mistake(lstr("labels", "budget", write(tmp_path / "none.json", {"one": []})), 2, "No action is labelled")
    mistake(lstr("labels", "compare", files[0], tmp_path / "gone.json"), 2, "There is no label file", "check the path")
    (tmp_path / "none").mkdir()
    mistake(lstr("labels", "budget", files[0], tmp_path / "none"), 2, "There is no video in")
    mistake(lstr("labels", "budget", files[0], "--bin", "0.001"), 2, "20000 bins", "--bin 60")
    mistake(lstr("labels", "budget", files[0], "--json", "--to", "csv"), 2, "two forms of one result")


def test_real_labels_shifted_and_in_pieces(shared, lstr, tmp_path):
    """UT-Interaction with every hug in two pieces and all else a second late."""
    path = shared / "data" / "ut_interaction" / "labels.json"
    content = json.loads(path.read_text())
    for entry in content["database"].values():
        changed = []
        for one in entry["annotations"]:
            start, end = one["segment"]
            middle = (start + end) / 2
            parts = [(start, middle - 0.5), (middle + 0.5, end)] if one["label"] == "hug" else [(start + 1, end)]
            changed += [{"label": one["label"], "segment": list(part)} for part in parts]
        entry["annotations"] = changed
    (tmp_path / "b.json").write_text(json.dumps(content))
    kinds = json.loads(lstr("labels", "compare", path, tmp_path / "b.json", "--json")[1])["kinds"]
    assert kinds["per_class"]["hug"]["labels"]["fragmented"] == 10
    assert kinds["per_class"]["hug"]["detections"]["fragment"] == 20
    assert kinds["together"]["labels"]["edges"] == 50 == kinds["together"]["start"]["late"]
    assert kinds["together"]["start"]["median"] == pytest.approx(1.0) and kinds["together"]["end"]["late"] == 0
    assert sum(kinds["together"]["labels"].values()) == 60
