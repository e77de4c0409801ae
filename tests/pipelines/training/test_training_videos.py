"""Videos of a training: which train, which choose the epoch, which a network never sees, and their cached chunks."""

from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.errors import ConfigError, ExhaustedError, LabelsError, OutputError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import sha256_of
from lstr.extractors.presets import PRESETS
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.reader import open_chunks
from lstr.labels.label_set import BACKGROUND, Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.features.chunk_cache import ChunkCache, chunk_recipe
from lstr.pipelines.features.extraction import Outcome
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.progress import Notice, Progress
from lstr.pipelines.training.training_videos import (
    MIN_VIDEOS_TO_VALIDATE,
    Filling,
    check_labels,
    chunks_of,
    fill,
    hold_out,
    look_at,
    make_pairs,
    parts_of,
    round_robin,
    unlearnt,
)
from tests.support.extraction import return_value
from tests.support.injected import inject, write_bad
from tests.support.small_set import SMALL
from tests.support.videos import write_video

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
    pairs, folds = make_pairs(labels, training, validation, n_folds, {})
    assert [pair.fold for pair in pairs] == [None, *range(1, n_folds + 1)]
    for pair in pairs:
        assert pair.training and not set(pair.training) & set(pair.validation)
        unseen = {video_id for video_id in (*training, *validation) if folds.get(video_id) == pair.fold}
        assert {*pair.training, *pair.validation} == {*training, *validation} - unseen
    assert set(folds) == {*training, *validation}
    sizes = [sum(folds[video_id] == k for video_id in training) for k in range(1, n_folds + 1)]
    assert max(sizes) - min(sizes) <= 1


def test_folds_go_round_the_sorted_recordings():
    assert round_robin({"c", "a", "d", "b"}, 3, {}) == {"a": 1, "b": 2, "c": 3, "d": 1}
    clips = [f"seq{n}_clip{k}" for n in range(5) for k in range(2)]
    folds = round_robin(clips, 3, {})
    assert all(folds[f"seq{n}_clip0"] == folds[f"seq{n}_clip1"] for n in range(5)) and set(folds.values()) == {1, 2, 3}
    with pytest.raises(ConfigError, match="5 recordings"):
        make_pairs(labels_of(dict.fromkeys(clips, "ab")), clips, [], 6, {})


def test_one_in_five_chooses_the_epoch():
    """But none that alone shows a class, and none where few are there, or none is to be spared."""
    shows = {f"v{i:02}": {"a"} for i in range(16)}
    assert hold_out(shows, shows) == ("v02", "v07", "v12")
    assert hold_out(sorted(shows)[: MIN_VIDEOS_TO_VALIDATE - 1], shows) == ()
    shows = {f"v{i:02}": {"a"} for i in range(15)} | {"v02": {"b"}, "v07": set()}
    assert hold_out(shows, shows) == ("v00", "v01", "v12")
    assert hold_out(shows, {i: {i} for i in shows}) == ()
    ids = sorted(shows)[:MIN_VIDEOS_TO_VALIDATE]
    labels = labels_of(dict.fromkeys(ids, "ab"))
    assert make_pairs(labels, ids, [], 0, {})[0][0].validation
    pairs, _ = make_pairs(labels, ids, [], 3, {}, spare=False)
    assert not any(pair.validation for pair in pairs) and pairs[0].training == tuple(ids)


def test_a_pair_whose_validation_videos_are_all_in_its_fold_does_without_them():
    labels = labels_of(dict.fromkeys(["t0", "t1", "t2", "t3", "v0"], "ab"))
    pairs, folds = make_pairs(labels, ["t0", "t1", "t2", "t3"], ["v0"], 2, {})
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
        with pytest.raises(LabelsError, match="1"):
            parts_of(labels, [given_ids], subset, evaluated)
    with pytest.raises(ConfigError):
        parts_of(labels, ["a"], "training", "training")


def test_too_little_to_learn_from():
    labels = labels_of({"x": "a", "y": "a", "z": ""})
    assert " b: 1 of 2" in check_labels(labels, ["x", "y"], "labels.json")
    assert check_labels(labels_of({"x": "a", "y": "b"}), ["x", "y"], "labels.json") == ""
    assert "'x'" in check_labels(labels, ["x"], "labels.json"), "the only one"
    with pytest.raises(LabelsError, match="2"):
        check_labels(labels_of({"x": "", "y": ""}), ["x", "y"], "labels.json")
    with pytest.raises(ConfigError, match="4 folds of 3"):
        make_pairs(labels, ["x", "y", "z"], [], 4, {})
    with pytest.raises(LabelsError, match="fold 1"):
        make_pairs(labels_of({"x": "a", "y": "", "z": ""}), ["x", "y", "z"], [], 3, {})
    labels = labels_of({"x": "a", "y": "b"})
    assert unlearnt(make_pairs(labels, ["x", "y"], [], 2, {})[0][1].training, labels) == ["a"]


@pytest.fixture
def videos(small_set, tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    return find_videos([small_set.videos / "scene_00.mp4", small_set.videos / "scene_01.mp4", tmp_path / "text.mp4"])


@pytest.fixture
def cache(tmp_path):
    return ChunkCache(tmp_path / "cache", chunks_of(PRESETS["fast"].narrowed(("rgb",))))


@pytest.fixture
def failed(tmp_path):
    return FailureLog(tmp_path / "weights")


def filled(videos, cache, workers=None, progress=lambda event: None):
    """What was told of each video, and the chunks by id."""
    failed, events = FailureLog(None, keeps_list=False), []

    def tell():
        result = yield from fill(return_value(look_at(videos, cache, failed)), cache, workers, failed)
        events.append(result)

    with closing(tell()) as filling:
        for event in filling:
            progress(event) if isinstance(event, Progress) else events.append(event)
    assert isinstance(events[0], Filling) and events[-2] == Filling({})
    return events[1:-2], events[-1]


def states(events):
    return [event.state for event in events if isinstance(event, Outcome)]


def test_chunks_are_made_once_then_kept_then_made_again(small_set, videos, cache, failed, tmp_path):
    """Without flow, for an RGB network alone: three planes a chunk."""
    sound = return_value(look_at(videos, cache, failed))
    assert [video.n_chunks for video in sound.values()] == [20, 20]
    assert [event.id for event in failed.events] == ["text"] and failed.events[0].hint
    small = ChunkCache(tmp_path / "small", cache.recipe, 10**5)
    with pytest.raises(OutputError, match="2 videos") as told:  # before anything is made
        return_value(look_at(videos, small, failed))
    assert "--set cache_size=1GB" in told.value.hint
    shown = []
    events, made = filled(videos, cache, progress=shown.append)
    assert states(events) == ["done", "done"] and shown[-1] == Progress("scene_01", 20, 20)
    first, second = made.values()
    assert first.chunks.shape[1] == 3 and first.record["sha256"] != second.record["sha256"]
    for chunk in open_chunks(videos["scene_00"], 320)[2]:
        frames, flow = first.read(chunk.index)
        assert (frames[3] == chunk.frames[3]).all() and flow.shape[0] == 0
    assert states(filled(videos, cache)[0]) == ["kept", "kept"]
    content = bytearray(first.path.read_bytes())
    content[-1] ^= 1
    first.path.write_bytes(content)
    events, made = filled(videos, cache)
    assert states(events) == ["done", "kept"] and any(isinstance(event, Notice) for event in events)
    assert return_value(made["scene_00"].verify("scene_00"))
    assert chunks_of(SMALL) == chunk_recipe(open_features(small_set.features).recipe), "extraction finds them too"


def test_what_is_stopped_within_a_video_keeps_those_before(videos, cache, failed):
    def stop(event):
        if event.what == "scene_01" and event.done > 3:
            raise KeyboardInterrupt

    dis = ChunkCache(cache.root, cache.recipe | {"flow_algorithm": "dis-medium"})
    with FlowWorkers(1, "dis") as workers, pytest.raises(KeyboardInterrupt):
        filled(videos, dis, workers, stop)
    sound = return_value(look_at(videos, dis, failed))
    assert [dis.find(video.sha256) is not None for video in sound.values()] == [True, False]
    assert not list(dis.root.rglob(".*tmp*"))
    assert states(filled(videos, cache)[0]) == ["kept", "done"]  # flow is no hindrance to RGB


@pytest.mark.parametrize("stage", ["probe", "flow"])
def test_an_unforeseen_error_is_one_videos_failure(tmp_path, monkeypatch, stage, failed):
    """The others are in the cache, and what would end the run still does."""
    both = {"bad": write_bad(tmp_path / "bad.mp4"), "good": write_video(tmp_path / "good.mp4", range(0, 600, 20))}
    made = ChunkCache(tmp_path / "cache", chunks_of(replace(PRESETS["fast"], flow_algorithm="dis")))
    with FlowWorkers(1, "dis") as workers:
        with monkeypatch.context() as patch:
            inject(patch.setattr, stage, ZeroDivisionError("nobody foresaw it"))
            cached = return_value(fill(return_value(look_at(both, made, failed)), made, workers, failed))
        (event,) = failed.events
        assert event.id == "bad" and "ZeroDivisionError" in event.reason and list(cached) == ["good"]
        assert "Traceback" in (failed.folder / "logs" / "bad.log").read_text()
        assert states(filled(both, made, workers)[0]) == ["done", "kept"]
        inject(monkeypatch.setattr, "decode", MemoryError())
        made.drop(made.find(sha256_of(both["bad"])))
        with pytest.raises(ExhaustedError):
            filled(both, made, workers)
