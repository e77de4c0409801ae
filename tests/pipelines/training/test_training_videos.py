"""Videos for training networks: subsets, folds, and the cache of their chunks."""

from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.errors import ConfigError, ExhaustedError, LabelsError
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
    Filling,
    check_labels,
    choose_validation,
    chunks_of,
    fill,
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


def labels_of(classes_of: dict[str, str], subset: str = "training") -> Labels:
    """Label videos with a segment of each class that the letters name."""
    videos = {
        i: VideoLabels(subset, 9.0, tuple(Segment(1.0, 2.0, c) for c in letters)) for i, letters in classes_of.items()
    }
    return Labels(CLASSES, videos)


@given(st.integers(2, 30), st.integers(2, 6), st.integers(0, 5))
def test_each_video_is_excluded_from_exactly_its_fold(n_training, n_folds, n_validation):
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


def test_folds_are_assigned_in_turn_to_sorted_recordings():
    assert round_robin({"c", "a", "d", "b"}, 3, {}) == {"a": 1, "b": 2, "c": 3, "d": 1}
    clips = [f"seq{n}_clip{k}" for n in range(5) for k in range(2)]
    folds = round_robin(clips, 3, {})
    assert all(folds[f"seq{n}_clip0"] == folds[f"seq{n}_clip1"] for n in range(5)) and set(folds.values()) == {1, 2, 3}
    with pytest.raises(ConfigError, match="5 recordings"):
        make_pairs(labels_of(dict.fromkeys(clips, "ab")), clips, [], 6, {})


def test_a_fifth_of_many_recordings_is_for_validation():
    """But none that is the only one of a class, and none of few recordings or with `spare=False`."""
    ids = [f"v{i:02}" for i in range(15)]
    shows = {i: {"a"} for i in ids}
    assert choose_validation(shows) == {"v02", "v07", "v12"}
    assert not choose_validation(dict.fromkeys(ids[1:], {"a"})) and not choose_validation({i: {i} for i in ids})
    assert choose_validation(shows | {"v02": {"b"}}) == {"v00", "v07", "v12"}
    clips = [f"{i}_clip{k}" for i in ids for k in range(2)]
    (pair,), _ = make_pairs(labels_of(dict.fromkeys(clips, "ab")), clips, [], 0, {})
    assert {i.split("_")[0] for i in pair.validation} == {"v02", "v07", "v12"} and len(pair.validation) == 6
    labels = labels_of(dict.fromkeys(ids, "ab"))
    assert make_pairs(labels, ids, [], 0, {})[0][0].validation
    pairs, _ = make_pairs(labels, ids, [], 3, {}, spare=False)
    assert not any(pair.validation for pair in pairs) and pairs[0].training == tuple(ids)
    labels = labels_of(dict.fromkeys(["t0", "t1", "t2", "t3", "v0"], "ab"))
    pairs, folds = make_pairs(labels, ["t0", "t1", "t2", "t3"], ["v0"], 2, {})
    assert folds["v0"] == 1 and pairs[0].validation == pairs[2].validation == ("v0",)
    assert pairs[1].training == ("t1", "t3") and pairs[1].validation == (), "its validation video is in the fold"


def test_parts_by_subset():
    """Videos for training and validation, unlabelled or unused ones, and labels without a video."""
    videos = labels_of({"a": "a", "b": "b"}).videos | labels_of({"c": "a"}, "validation").videos
    labels = Labels(CLASSES, videos | labels_of({"d": "a"}, "testing").videos)
    assert parts_of(labels, ["a", "c", "d", "x"], "training", None) == (["a"], ["c"], ["d", "x"], ["b"])
    assert parts_of(labels, ["a", "d"], "training", None)[1] == []
    assert parts_of(labels, ["a", "d"], "training", "testing")[1] == ["d"]
    for subset, evaluated, video_id in (("other", None, "a"), ("training", "testing", "a"), ("training", None, "x")):
        with pytest.raises(LabelsError, match="1"):
            parts_of(labels, [video_id], subset, evaluated)
    with pytest.raises(ConfigError):
        parts_of(labels, ["a"], "training", "training")


def test_missing_actions_are_reported_or_refused():
    labels = labels_of({"x": "a", "y": "a", "z": ""})
    assert unlearnt(["x", "y"], labels) == ["b"] and unlearnt(["x", "y"], labels_of({"x": "a", "y": "b"})) == []
    check_labels(labels, ["x"], "labels.json")
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


def fill_cache(videos, cache, failed, workers=None):
    """Return the events of filling the cache, the states of the videos, and their chunks by id."""
    events: list = []
    cached = return_value(fill(return_value(look_at(videos, cache, failed)), cache, workers, failed), events.append)
    return events, [event.state for event in events if isinstance(event, Outcome)], cached


def test_chunks_are_cached_and_damaged_ones_recomputed(small_set, videos, cache, failed):
    """Chunks for an RGB network alone are three planes, without flow."""
    readable = return_value(look_at(videos, cache, failed))
    assert [video.n_chunks for video in readable.values()] == [20, 20]
    assert [event.id for event in failed.events] == ["text"] and failed.events[0].hint
    events, states, cached = fill_cache(videos, cache, failed)
    assert states == ["done", "done"]
    assert isinstance(events[0], Filling) and events[-1] == Filling({})
    assert [event for event in events if isinstance(event, Progress)][-1] == Progress("scene_01", 20, 20)
    first, second = cached.values()
    assert first.chunks.shape[1] == 3 and first.record["sha256"] != second.record["sha256"]
    for chunk in open_chunks(videos["scene_00"], 320)[2]:
        frames, flow = first.read(chunk.index)
        assert (frames[3] == chunk.frames[3]).all() and flow.shape[0] == 0
    assert fill_cache(videos, cache, failed)[1] == ["kept", "kept"]
    content = bytearray(first.path.read_bytes())
    content[-1] ^= 1
    first.path.write_bytes(content)
    events, states, _ = fill_cache(videos, cache, failed)
    assert states == ["done", "kept"] and any(isinstance(event, Notice) and event.warning for event in events)
    assert chunks_of(SMALL) == chunk_recipe(open_features(small_set.features).recipe), "extraction uses them too"


def test_a_stop_does_not_lose_chunks_of_earlier_videos(videos, cache, failed):
    with_flow = ChunkCache(cache.root, cache.recipe | {"flow_algorithm": "dis-medium"})
    readable = return_value(look_at(videos, with_flow, failed))
    with FlowWorkers(1, "dis") as workers, closing(fill(readable, with_flow, workers, failed)) as events:
        next(event for event in events if isinstance(event, Progress) and event.what == "scene_01" and event.done > 3)
    assert [with_flow.find(video.sha256) is not None for video in readable.values()] == [True, False]
    assert not list(with_flow.root.rglob(".*tmp*"))
    assert fill_cache(videos, cache, failed)[1] == ["kept", "done"], "RGB networks use chunks with flow"


@pytest.mark.parametrize("stage", ["probe", "flow"])
def test_an_unexpected_error_skips_a_video_and_exhausted_memory_ends_the_run(tmp_path, monkeypatch, stage, failed):
    videos = {"bad": write_bad(tmp_path / "bad.mp4"), "good": write_video(tmp_path / "good.mp4", range(0, 600, 20))}
    cache = ChunkCache(tmp_path / "cache", chunks_of(replace(PRESETS["fast"], flow_algorithm="dis")))
    with FlowWorkers(1, "dis") as workers:
        with monkeypatch.context() as patch:
            inject(patch.setattr, stage, ZeroDivisionError("injected"))
            cached = fill_cache(videos, cache, failed, workers)[2]
        (event,) = failed.events
        assert event.id == "bad" and "ZeroDivisionError" in event.reason and list(cached) == ["good"]
        assert "Traceback" in (failed.folder / "logs" / "bad.log").read_text()
        assert fill_cache(videos, cache, failed, workers)[1] == ["done", "kept"]
        inject(monkeypatch.setattr, "decode", MemoryError())
        cache.find(sha256_of(videos["bad"])).drop()
        with pytest.raises(ExhaustedError):
            fill_cache(videos, cache, failed, workers)
