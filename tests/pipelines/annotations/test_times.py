"""Times of tables that count frames: numbers and time codes, by the rate of their video."""

import json

import pytest

from lstr.errors import LabelsError
from lstr.extractors.video.inputs import find_videos
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.annotations.videos import Rates, footage_of_files
from tests.support.annotated import segments

NTSC = 30000 / 1001


@pytest.mark.parametrize(
    ("code", "rate", "seconds"),
    [
        ("00:00:02:22", 25, 2 + 22 / 25),
        ("01:00:00:00", 25, 3600),
        ("00:01:00:29", NTSC, (60 * 30 + 29) / NTSC),
        ("00:01:00;02", NTSC, 60 * 30 / NTSC),
        ("00:10:00;00", NTSC, (600 * 30 - 18) / NTSC),
        ("01:00:00;00", 60000 / 1001, (3600 * 60 - 216) / (60000 / 1001)),
    ],
)
def test_a_time_code_is_a_frame_of_its_video(code, rate, seconds):
    text = f"video,start,end,label\na,{code},2:00:00,jump\n"
    read = from_csv(text, "", ConvertOptions(rate_of={"a": rate}.get)).videos["a"].segments
    assert read[0].start == pytest.approx(seconds, abs=1e-9) and read[0].end == 7200


def test_one_rate_of_all_goes_before_that_of_a_video(tmp_path):
    (tmp_path / "x.csv").write_text("video,start,end,duration,label\na,00:00:02:22,0:04,0:09,jump\n")
    read = read_annotations(tmp_path / "x.csv", ConvertOptions(frames=25, rate_of=lambda _: 50)).videos["a"]
    assert segments(read) == [(2.88, 4.0, "jump")] and read.duration == 9


def test_a_frame_that_no_second_has_is_named():
    with pytest.raises(LabelsError, match="Line 3: '00:00:02:27' is frame 27 of a second that has 25") as caught:
        from_csv("video,start,end,label\na,1,2,jump\na,00:00:02:27,3,jump\n", "", ConvertOptions(rate_of=lambda _: 25))
    assert "--frames" in caught.value.hint


@pytest.mark.parametrize("row", ["a,00:00:01:05,3,jump", "a,5,9,jump"])
def test_frames_without_a_rate_say_what_to_do(row):
    header = "video,start,end,label" if ":" in row else "video,start_frame,end_frame,label"
    with pytest.raises(LabelsError, match="counts frames") as caught:
        from_csv(f"{header}\n{row}\n", "")
    assert "--video VIDEOS" in caught.value.hint and "--frames 30" in caught.value.hint


def test_the_videos_that_are_named_say_how_many_frames_a_second_has(small_set, tmp_path, lstr):
    rate = footage_of_files(find_videos([small_set.videos]))["scene_00"].rate
    assert rate
    (tmp_path / "frames.csv").write_text(
        f"video,start_frame,end_frame,label\nscene_00.avi,{rate:g},{2 * rate:g},walk\n"
    )
    (tmp_path / "codes.csv").write_text("video,start,end,label\nfilms/scene_00,00:00:01:00,00:00:02:00,walk\n")
    for name in ("frames", "codes"):
        source, output = tmp_path / f"{name}.csv", tmp_path / f"{name}.json"
        code, _, err = lstr("labels", "check", source)
        assert code == 2 and "counts frames" in err and f"lstr labels convert {source} --video VIDEOS" in err
        assert lstr("labels", "check", source, small_set.videos)[0] == 0
        code, _, err = lstr("labels", "convert", source, "--video", small_set.videos, "-o", output)
        assert code == 0, err
        (entry,) = json.loads(output.read_text())["database"].values()
        assert entry["annotations"] == [{"label": "walk", "segment": [1.0, 2.0]}]


def test_label_studio_counts_by_the_videos_that_are_named(small_set, tmp_path):
    rates = Rates(lambda: find_videos([small_set.videos]))
    rate = rates("scene_00")
    assert rate and rates("C:\\films\\scene_01.mp4") == rate and rates("elsewhere") == rate
    region = {"type": "timelinelabels", "value": {"ranges": [{"start": 1, "end": rate}], "timelinelabels": ["walk"]}}
    tasks = [{"data": {"video": "scene_00.avi"}, "annotations": [{"result": [region]}]}]
    (tmp_path / "x.json").write_text(json.dumps(tasks))
    read = read_annotations(tmp_path / "x.json", ConvertOptions(rate_of=rates))
    assert segments(read.videos["scene_00"]) == [(0.0, 1.0, "walk")]
