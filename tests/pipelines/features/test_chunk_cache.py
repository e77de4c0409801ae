"""The chunk cache: equal features without computing flow, and damage that only costs time."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lstr.errors import OutputError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.run import RunOptions
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.reader import open_chunks
from lstr.pipelines.features.chunk_cache import ChunkCache, caches_of, chunk_recipe
from lstr.pipelines.features.extraction import ExtractOptions
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import create_output
from lstr.pipelines.features.video import open_worker
from tests.support.extraction import assert_same_features, extract_all, return_value
from tests.support.finetuned import SMALL


@pytest.fixture(scope="module")
def workers():
    with FlowWorkers(1, "dis") as pool:
        yield pool


@pytest.fixture(scope="module")
def twostream():
    return build_twostream(SMALL, WeightSources(), "cpu", "float32").copy(options=RunOptions(threads=1))


@pytest.fixture(scope="module")
def filled(finetuned, twostream, workers, tmp_path_factory):
    """A cache with the first two of the three videos."""
    root = tmp_path_factory.mktemp("cache")
    for video_id in ("scene_00", "scene_01"):
        fill(ChunkCache(root, chunk_recipe(twostream.recipe)), finetuned.videos[video_id], workers)
    return root


@pytest.fixture
def copied(filled, tmp_path):
    """A copy of the cache, which a test may change."""
    return shutil.copytree(filled, tmp_path / "copied cache")


@pytest.fixture
def submitted(monkeypatch):
    """The chunks that the test computes flow for."""
    chunks, submit = [], FlowWorkers.submit
    monkeypatch.setattr(FlowWorkers, "submit", lambda self, frames: (chunks.append(frames), submit(self, frames))[1])
    return chunks


@pytest.fixture(scope="module")
def uncached(finetuned, twostream, workers, tmp_path_factory):
    """A folder of features that were extracted without a cache."""
    return extract(finetuned.videos, tmp_path_factory.mktemp("uncached"), twostream, workers)[0]


def fill(cache, source, workers, keep=()):
    opened = open_chunks(source, cache.recipe["long_side"])
    return return_value(cache.fill(sha256_of(source), source, opened, workers, [sha256_of(other) for other in keep]))


def extract(videos, path, twostream, workers, cache=None):
    """Extract videos; return the feature folder and the outcomes."""
    outcomes = extract_all(videos, create_output(path, twostream.recipe, {}), twostream, workers, cache)
    return open_features(path), outcomes


def test_the_cache_is_keyed_by_file_and_recipe(finetuned, twostream, copied, tmp_path):
    source = Path(shutil.copy(finetuned.videos["scene_00"], tmp_path / "renamed.mp4"))
    (cache,) = caches_of(copied, chunk_recipe(twostream.recipe))
    assert len(cache.find(sha256_of(source))) == 16
    assert ChunkCache(copied, cache.recipe | {"long_side": 64}).find(sha256_of(source)) is None
    assert caches_of(copied, chunk_recipe(replace(twostream.recipe, long_side=64))) == []
    for stream in ("rgb", "flow"):
        assert [c.path for c in caches_of(copied, chunk_recipe(twostream.recipe.narrowed([stream])))] == [cache.path]
    source.write_bytes(source.read_bytes() + b"\0")
    assert cache.find(sha256_of(source)) is None


def test_the_least_recently_used_video_is_removed_first(finetuned, twostream, workers, copied):
    sources, recipe = list(finetuned.videos.values()), chunk_recipe(twostream.recipe)
    records = [ChunkCache(copied, recipe).find(sha256_of(s)).path.with_suffix(".json") for s in sources[:2]]
    size = int(2.5 * records[0].with_suffix(".npy").stat().st_size)
    with pytest.raises(OutputError):  # no video of the same job is removed
        fill(ChunkCache(copied, recipe, size), sources[2], workers, keep=sources)
    for age, record in zip((100, 200), records, strict=True):
        os.utime(record, (record.stat().st_mtime - age,) * 2)
    cache = ChunkCache(copied, recipe, size)
    fill(cache, sources[2], workers)
    assert [cache.find(sha256_of(source)) is not None for source in sources] == [True, False, True]


@pytest.mark.long
def test_features_of_cached_chunks_are_equal(finetuned, twostream, workers, filled, uncached, submitted, tmp_path):
    folder, outcomes = extract(finetuned.videos, tmp_path / "features", twostream, workers, filled)
    assert [o.state for o in outcomes] == ["done"] * 3 and len(submitted) == 16, "of the video without cached chunks"
    for video_id in finetuned.videos:
        assert_same_features(folder, uncached, video_id)
        ours, theirs = (each.read_record(video_id) for each in (folder, uncached))
        assert [record["cached"] for record in (ours, theirs)] == [video_id != "scene_02", False]
        assert {name for name in {**ours, **theirs} if ours[name] != theirs[name]} <= {"seconds", "cached"}
    rgb = build_twostream(SMALL.narrowed(["rgb"]), WeightSources(), "cpu", "float32")
    rgb = rgb.copy(options=RunOptions(threads=1))
    folder, _ = extract({"scene_01": finetuned.videos["scene_01"]}, tmp_path / "rgb", rgb, None, filled)
    assert folder.read_record("scene_01")["cached"] is True
    assert np.array_equal(folder.load("scene_01")[0], uncached.load("scene_01")[0])


@pytest.mark.long
def test_the_command_and_its_workers_use_the_cache(lstr, finetuned, twostream, filled, uncached, submitted, tmp_path):
    """A renamed video is found by its content; with cache=none it is decoded."""
    shutil.copy(finetuned.videos["scene_00"], tmp_path / "renamed.mp4")
    options = ["--recipe", finetuned.weights.path, "--stream", "flow", "--workers", 1, "--set", "threads=1"]
    folders = []
    for cache, n_submitted in ((filled, 0), ("none", 16)):
        output = tmp_path / f"features {n_submitted}"
        code, _, err = lstr("extract", tmp_path / "renamed.mp4", *options, "-o", output, "--set", f"cache={cache}")
        assert code == 0 and len(submitted) == n_submitted, err
        folders.append(open_features(output))
        record = folders[-1].read_record("renamed")
        assert (record["cached"], record["fold"]) == (n_submitted == 0, 1)
    assert_same_features(*folders, "renamed")
    output = create_output(tmp_path / "features", twostream.recipe, {})
    with open_worker(ExtractOptions(output.path, device="cpu", threads=1, cache=filled, runtime="torch")) as worker:
        assert [*worker.extract("scene_01", finetuned.videos["scene_01"])][-1].state == "done"
    assert len(submitted) == 16 and open_features(output.path).read_record("scene_01")["cached"] is True
    assert_same_features(output, uncached, "scene_01")


def flip_last_byte(array, monkeypatch):
    """Damage the last chunk, which is found after fifteen rows were written."""
    content = array.read_bytes()
    array.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def remove_after_lookup(array, monkeypatch):
    """Remove the video after it was found, like another process that needs room."""
    find = ChunkCache.find

    def find_and_remove(cache, sha256):
        video = find(cache, sha256)
        video.drop()
        return video

    monkeypatch.setattr(ChunkCache, "find", find_and_remove)


DAMAGES = {
    "one byte": flip_last_byte,
    "cut": lambda array, _: array.write_bytes(array.read_bytes()[:-1]),
    "cut record": lambda array, _: os.truncate(array.with_suffix(".json"), 40),
    "removed": remove_after_lookup,
}


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_does_not_change_the_features(
    finetuned, twostream, workers, copied, uncached, submitted, tmp_path, damage, monkeypatch
):
    source = finetuned.videos["scene_00"]
    (cache,) = caches_of(copied, chunk_recipe(twostream.recipe))
    DAMAGES[damage](cache.find(sha256_of(source)).path, monkeypatch)
    folder, (outcome,) = extract({"scene_00": source}, tmp_path / "features", twostream, workers, copied)
    assert outcome.state == "done"
    assert_same_features(folder, uncached, "scene_00")
    assert folder.read_record("scene_00")["cached"] is (damage == "removed")
    assert len(submitted) == (0 if damage == "removed" else 16)
    assert bool(outcome.note) is (damage == "one byte")
