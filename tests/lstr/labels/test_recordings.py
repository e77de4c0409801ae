"""Clips of one recording are found by their names, and other videos are left apart."""

import json

import pytest

from lstr.labels.video_ids import recording_of


@pytest.mark.parametrize(
    "clip, recording",
    [
        ("seq3_clip2", "seq3"),
        ("seq3-Clip-02", "seq3"),
        ("seq3_clip2_part1", "seq3"),
        ("day 1/seq3_clip2", "day 1/seq3"),
        ("fall-01-cam0", "fall-01"),
        ("fall-01-cam1", "fall-01"),
        ("fall-01-cam0-rgb", "fall-01"),
        ("game_part2", "game"),
        ("v_Archery_g01_c02", "v_Archery_g01"),
        ("v_Archery_g02_c02", "v_Archery_g02"),
        ("-abc_EFGH12_000010_000020", "-abc_EFGH12"),
    ],
)
def test_clips(clip, recording):
    assert recording_of(clip) == recording


@pytest.mark.parametrize(
    "video",
    ["fall-01", "seq1", "seq10", "kick_clip1", "clip1", "cam0", "run3/cam1", "scene_00", "video_test_0000270", ""],
)
def test_whole_videos(video):
    assert recording_of(video) == video


def test_no_two_videos_of_the_real_sets_are_joined(shared):
    for file in ("urfall/labels.json", "ut_interaction/labels.json", "thumos14/thumos14_segments.json"):
        videos = json.loads((shared / "data" / file).read_text())["database"]
        assert len({recording_of(video) for video in videos}) == len(videos) > 9
