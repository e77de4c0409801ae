"""Which videos train, which choose the epoch, and which a pair never sees."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.errors import ConfigError, LabelsError
from lstr.labels.label_set import BACKGROUND, Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.training.network_run import Training
from lstr.pipelines.training.recogniser import settle
from lstr.pipelines.training.training_videos import (
    MIN_VIDEOS_TO_VALIDATE,
    check_labels,
    hold_out,
    make_pairs,
    parts_of,
    round_robin,
    unlearnt,
)

CLASSES = (BACKGROUND, "a", "b")


def labels_of(shows: dict[str, str], subset: str = "training") -> Labels:
    """Videos by id with a segment of each class that is a letter of the value."""
    videos = {i: VideoLabels(subset, 9.0, tuple(Segment(1.0, 2.0, c) for c in letters)) for i, letters in shows.items()}
    return Labels(CLASSES, videos)


@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 5))
def test_each_video_is_unseen_by_one_pair_and_by_no_other(n_training, n_folds, n_validation):
    training = [f"t{i:02}" for i in range(max(n_training, n_folds))]
    validation = [f"v{i}" for i in range(n_validation)]
    labels = labels_of(dict.fromkeys([*training, *validation], "ab"))
    pairs, folds = make_pairs(labels, training, validation, n_folds)
    assert [pair.fold for pair in pairs] == [None, *range(1, n_folds + 1)]
    for pair in pairs:
        assert pair.training and not set(pair.training) & set(pair.validation)
        unseen = {video_id for video_id in (*training, *validation) if folds.get(video_id) == pair.fold}
        assert {*pair.training, *pair.validation} == {*training, *validation} - unseen
    assert set(folds) == {*training, *validation}
    sizes = [sum(folds[video_id] == k for video_id in training) for k in range(1, n_folds + 1)]
    assert max(sizes) - min(sizes) <= 1


def test_folds_go_round_the_sorted_ids():
    assert round_robin({"c", "a", "d", "b"}, 3) == {"a": 1, "b": 2, "c": 3, "d": 1}


def test_one_in_five_chooses_the_epoch():
    shows = {f"v{i:02}": {"a"} for i in range(16)}
    assert hold_out(shows, shows) == ("v02", "v07", "v12")
    assert hold_out(sorted(shows)[: MIN_VIDEOS_TO_VALIDATE - 1], shows) == ()


def test_what_alone_shows_a_class_is_not_held_out():
    shows = {f"v{i:02}": {"a"} for i in range(15)} | {"v02": {"b"}, "v07": set()}
    assert hold_out(shows, shows) == ("v00", "v01", "v12")
    assert hold_out(shows, {i: {i} for i in shows}) == ()


def test_a_pair_whose_validation_videos_are_all_in_its_fold_does_without_them():
    labels = labels_of(dict.fromkeys(["t0", "t1", "t2", "t3", "v0"], "ab"))
    pairs, folds = make_pairs(labels, ["t0", "t1", "t2", "t3"], ["v0"], 2)
    assert folds["v0"] == 1 and pairs[0].validation == pairs[2].validation == ("v0",)
    assert pairs[1].training == ("t1", "t3") and pairs[1].validation == ()


def test_what_each_video_is_for():
    videos = labels_of({"a": "a", "b": "b"}).videos | labels_of({"c": "a"}, "validation").videos
    labels = Labels(CLASSES, videos | labels_of({"d": "a"}, "testing").videos)
    parts = parts_of(labels, ["a", "c", "d", "x"], "training", None)
    assert parts == (["a"], ["c"], ["d", "x"], ["b"])
    assert parts_of(labels, ["a", "d"], "training", None)[1] == []
    assert parts_of(labels, ["a", "d"], "training", "testing")[1] == ["d"]
    for subset, evaluated, given_ids in (("other", None, "a"), ("training", "testing", "a"), ("training", None, "x")):
        with pytest.raises(LabelsError, match="None of the 1 videos"):
            parts_of(labels, [given_ids], subset, evaluated)
    with pytest.raises(ConfigError, match="training"):
        parts_of(labels, ["a"], "training", "training")


def test_too_little_to_learn_from():
    labels = labels_of({"x": "a", "y": "a", "z": ""})
    assert "no training video shows b: 1 of 2" in check_labels(labels, ["x", "y"], "labels.json")
    assert check_labels(labels_of({"x": "a", "y": "b"}), ["x", "y"], "labels.json") == ""
    alone = check_labels(labels, ["x"], "labels.json")
    assert "only training video is 'x'" in alone and "; no training video" in alone
    with pytest.raises(LabelsError, match="labels no action in the 1 training video[.]"):
        check_labels(labels, ["z"], "labels.json")
    with pytest.raises(LabelsError, match="labels no action in the 2"):
        check_labels(labels_of({"x": "", "y": ""}), ["x", "y"], "labels.json")
    with pytest.raises(ConfigError, match="4 folds of 3"):
        make_pairs(labels, ["x", "y", "z"], [], 4)
    with pytest.raises(LabelsError, match="Without fold 1"):
        make_pairs(labels_of({"x": "a", "y": "", "z": ""}), ["x", "y", "z"], [], 3)
    labels = labels_of({"x": "a", "y": "b"})
    assert unlearnt(make_pairs(labels, ["x", "y"], [], 2)[0][1].training, labels) == ["a"]


def test_networks_share_the_time_that_is_left():
    """One that took longer than its part, for an epoch is trained whole, leaves less to the others."""
    networks = settle(("fast", "both", "dis"), {}, None, "cpu")
    training = Training(networks, labels_of({}), {}, [], {}, seconds=100.0)
    assert training.seconds_of("flow", ["flow"] * 4, 0.0) == pytest.approx(25)
    assert training.seconds_of("flow", ["flow"] * 3, 40.0) == pytest.approx(20)
    assert training.seconds_of("flow", ["flow"], 130.0) > 0
    both = [training.seconds_of(stream, ["flow", "rgb"], 0.0) for stream in ("flow", "rgb")]
    assert sum(both) == pytest.approx(100) and both[0] != both[1]
    assert replace(training, seconds=None).seconds_of("flow", ["flow"], 0.0) is None


def test_clips_of_one_recording_are_in_one_fold():
    ids = [f"seq{n}_clip{k}" for n in range(5) for k in range(2)]
    folds = round_robin(ids, 3)
    assert all(folds[f"seq{n}_clip0"] == folds[f"seq{n}_clip1"] for n in range(5)) and set(folds.values()) == {1, 2, 3}
    labels = labels_of(dict.fromkeys(ids, "ab"))
    with pytest.raises(ConfigError, match="10 training videos of 5 recordings"):
        make_pairs(labels, ids, [], 6)


def test_no_video_is_spared_where_none_is_to_be():
    ids = [f"v{n:02}" for n in range(MIN_VIDEOS_TO_VALIDATE)]
    labels = labels_of(dict.fromkeys(ids, "ab"))
    assert make_pairs(labels, ids, [], 0)[0][0].validation
    pairs, _ = make_pairs(labels, ids, [], 3, spare=False)
    assert not any(pair.validation for pair in pairs) and pairs[0].training == tuple(ids)
