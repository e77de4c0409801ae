"""The chunk cache: what goes in comes out, room is made in order of use, damage is seen."""

import os
import shutil

import numpy as np
import pytest

from lstr.errors import OutputError, VideoError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import sha256_of
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.reader import open_chunks
from lstr.pipelines.features.chunk_cache import ChunkCache, chunk_recipe
from lstr.pipelines.features.folder import open_features
from tests.support.extraction import returned


@pytest.fixture(scope="module")
def workers():
    with FlowWorkers(2) as pool:
        yield pool


@pytest.fixture
def videos(small_set, tmp_path):
    """Copies of the small set's videos, to be changed."""
    shutil.copytree(small_set.videos, tmp_path / "videos")
    return find_videos([tmp_path / "videos"])


@pytest.fixture
def recipe(small_set):
    return chunk_recipe(open_features(small_set.features).recipe)


def fill(cache, source, workers, keep=()):
    opened = open_chunks(source, cache.recipe["long_side"])
    return returned(cache.fill(sha256_of(source), source, opened, workers, [sha256_of(other) for other in keep]))


def find(cache, source):
    return cache.find(sha256_of(source))


def test_what_goes_in_comes_out(videos, recipe, workers, tmp_path):
    cache, source = ChunkCache(tmp_path / "cache", recipe), videos["scene_00"]
    assert find(cache, source) is None
    filled = fill(cache, source, workers)
    found = find(ChunkCache(tmp_path / "cache", recipe), source)
    assert found.record == filled.record and len(found) == 20
    for chunk in open_chunks(source, recipe["long_side"])[2]:
        frames, flow = found.read(chunk.index)
        np.testing.assert_array_equal(frames[recipe["rgb_frame"]], chunk.frames[recipe["rgb_frame"]])
        np.testing.assert_array_equal(flow, workers.submit(chunk.frames).result())


def test_another_file_or_recipe_is_not_found(videos, recipe, workers, tmp_path):
    cache, source = ChunkCache(tmp_path / "cache", recipe), videos["scene_00"]
    fill(cache, source, workers)
    assert find(ChunkCache(tmp_path / "cache", recipe | {"long_side": 64}), source) is None
    moved = source.rename(source.with_name("moved.mp4"))
    os.utime(moved, (0, 0))
    assert find(cache, moved) is not None
    moved.write_bytes(moved.read_bytes() + b"\0")
    assert find(cache, moved) is None


@pytest.mark.parametrize("harm", ["gone", "record cut"])
def test_half_an_entry_is_none(videos, recipe, workers, tmp_path, harm):
    cache, source = ChunkCache(tmp_path / "cache", recipe), videos["scene_00"]
    array = fill(cache, source, workers).path
    record = array.with_suffix(".json")
    array.unlink() if harm == "gone" else record.write_bytes(record.read_bytes()[: record.stat().st_size // 2])
    assert find(cache, source) is None
    assert len(fill(cache, source, workers)) == 20
    assert find(cache, source) is not None


def test_what_was_used_longest_ago_goes_first(videos, recipe, workers, tmp_path):
    sources = [videos[f"scene_{i:02d}"] for i in range(4)]
    each = fill(ChunkCache(tmp_path / "cache", recipe), sources[0], workers).path.stat().st_size
    cache = ChunkCache(tmp_path / "cache", recipe, size=3 * each)
    for age, source in zip((300, 100, 200), sources, strict=False):
        record = (find(cache, source) or fill(cache, source, workers)).path.with_suffix(".json")
        os.utime(record, (record.stat().st_mtime - age,) * 2)
    fill(cache, sources[3], workers)
    assert [find(cache, source) is not None for source in sources] == [False, True, True, True]


def test_the_videos_of_a_job_never_push_each_other_out(videos, recipe, workers, tmp_path):
    sources = list(videos.values())
    each = fill(ChunkCache(tmp_path / "cache", recipe), sources[0], workers).path.stat().st_size
    cache = ChunkCache(tmp_path / "cache", recipe, size=int(1.5 * each))
    with pytest.raises(OutputError, match="GB"):
        fill(cache, sources[1], workers, keep=sources)
    assert find(cache, sources[0]) is not None


def test_a_damaged_video_leaves_nothing(videos, recipe, workers, tmp_path):
    cache, source = ChunkCache(tmp_path / "cache", recipe), videos["scene_00"]
    content = source.read_bytes()
    source.write_bytes(content[: len(content) // 2])
    with pytest.raises(VideoError):
        fill(cache, source, workers)
    assert not list((tmp_path / "cache").rglob("*.npy"))
