"""Videos' chunks in the cache before a training: made, kept, made again, or named as failed."""

from contextlib import closing
from dataclasses import replace

import pytest

from lstr.errors import ExhaustedError, OutputError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import sha256_of
from lstr.extractors.presets import PRESETS
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.reader import open_chunks
from lstr.files.arrays import RowFile
from lstr.pipelines.failures import Failure, FailureLog
from lstr.pipelines.features.chunk_cache import ChunkCache, chunk_recipe
from lstr.pipelines.features.extraction import Outcome
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.progress import Notice, Progress
from lstr.pipelines.scenes import SceneConfig, render_scenes
from lstr.pipelines.training.run_folder import RunFolder
from lstr.pipelines.training.training_videos import Filling, chunks_of, fill, look_at
from tests.support.extraction import returned
from tests.support.injected import SIZE, inject, write_bad
from tests.support.small_set import SMALL
from tests.support.videos import write_video


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    root = tmp_path_factory.mktemp("videos")
    render_scenes(root, SceneConfig(n_videos=2, n_testing=1, seconds=4.0, width=96, height=64))
    (root / "videos" / "text.mp4").write_text("no video")
    return find_videos([root / "videos"])


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
        result = yield from fill(returned(look_at(videos, cache, failed)), cache, workers, failed)
        events.append(result)

    with closing(tell()) as filling:
        for event in filling:
            progress(event) if isinstance(event, Progress) else events.append(event)
    assert isinstance(events[0], Filling) and events[-2] == Filling({})
    return events[1:-2], events[-1]


def states(events):
    return [event.state for event in events if isinstance(event, Outcome)]


def test_made_once_then_kept_then_made_again(videos, cache, failed):
    """Without flow, for an RGB network alone: three planes a chunk."""
    sound = returned(look_at(videos, cache, failed))
    assert [video.n_chunks for video in sound.values()] == [16, 16]
    assert [event.id for event in failed.events] == ["text"]
    assert "not a readable video" in failed.events[0].reason and failed.events[0].hint
    shown = []
    events, made = filled(videos, cache, progress=shown.append)
    assert states(events) == ["done", "done"] and shown[-1] == Progress("scene_01", 16, 16)
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
    assert states(events) == ["done", "kept"]
    assert Notice("scene_00 was damaged in the cache and computed again.") in events
    assert returned(made["scene_00"].verify("scene_00"))


def test_a_cache_that_is_too_small_is_told_before_anything_is_made(videos, cache, tmp_path, failed):
    small = ChunkCache(tmp_path / "small", cache.recipe, 10**5)
    with pytest.raises(OutputError, match=r"The chunks of 2 videos need .* GB") as told:
        returned(look_at(videos, small, failed))
    assert "--set cache_size=1GB" in told.value.hint


def test_what_is_stopped_within_a_video_keeps_those_before(videos, cache, failed):
    def stop(event):
        if event.what == "scene_01" and event.done > 3:
            raise KeyboardInterrupt

    with FlowWorkers(1, "dis") as workers, pytest.raises(KeyboardInterrupt):
        dis = ChunkCache(cache.root, cache.recipe | {"flow_algorithm": "dis-medium"})
        filled(videos, dis, workers, stop)
    sound = returned(look_at(videos, dis, failed))
    assert [dis.find(video.sha256) is not None for video in sound.values()] == [True, False]
    assert not list(dis.root.rglob(".*tmp*"))
    assert states(filled(videos, cache)[0]) == ["kept", "done"]  # flow is no hindrance to RGB


def test_chunks_are_those_of_the_features(small_set):
    """So that `lstr extract` finds what was made to train its networks."""
    assert chunks_of(SMALL) == chunk_recipe(open_features(small_set.features).recipe)


@pytest.mark.parametrize("stage", ["probe", "flow", "write"])
def test_an_unforeseen_error_is_one_videos_failure(tmp_path, monkeypatch, stage, failed):
    """At whatever stage; the others are in the cache, and what would end the run still does."""
    both = {"bad": write_bad(tmp_path / "bad.mp4"), "good": write_video(tmp_path / "good.mp4", range(0, 600, 20))}
    made = ChunkCache(tmp_path / "cache", chunks_of(replace(PRESETS["fast"], flow_algorithm="dis")))
    with monkeypatch.context() as patch, FlowWorkers(1, "dis") as workers:
        inject(patch.setattr, stage, ZeroDivisionError("nobody foresaw it"))
        if stage == "write":  # a row's file is named by the hash of the video there
            append = RowFile.append
            patch.setattr(
                RowFile, "append", lambda rows, row: row.shape[1:] == SIZE[::-1] and 1 / 0 or append(rows, row)
            )
        cached = returned(fill(returned(look_at(both, made, failed)), made, workers, failed))
    (event,) = failed.events
    assert event.id == "bad" and "ZeroDivisionError" in event.reason and list(cached) == ["good"]
    assert "Traceback" in (failed.folder / "logs" / "bad.log").read_text()
    with FlowWorkers(1, "dis") as workers:
        assert states(filled(both, made, workers)[0]) == ["done", "kept"]
    inject(monkeypatch.setattr, "decode", MemoryError())
    made.drop(made.find(sha256_of(both["bad"])))
    with FlowWorkers(1, "dis") as workers, pytest.raises(ExhaustedError):
        filled(both, made, workers)


def test_a_folder_that_only_tells_of_failures_is_free(tmp_path):
    """A training whose videos all failed can be begun again."""
    log = FailureLog(tmp_path)
    event = log.add("a/v", tmp_path / "v.mp4", Failure("It broke.", "", "Traceback …"))
    log.finish(["a/v"])
    RunFolder(tmp_path).check_free(resume=False)
    assert (tmp_path / "logs" / "a" / "v.log").read_text() == "Traceback …" and "a/v.log" in event.hint
