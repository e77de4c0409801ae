"""The chunk cache: the same features without computing flow again, and damage that costs no more than time."""

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
from lstr.pipelines.features.output_folder import create_output, read_record
from lstr.pipelines.features.video import open_worker
from tests.support.extraction import extract_all, features_in, return_value
from tests.support.finetuned import SMALL

TIMELESS = ("seconds", "cached", "source", "mtime")


@pytest.fixture(scope="module")
def workers():
    with FlowWorkers(1, "dis") as pool:
        yield pool


@pytest.fixture(scope="module")
def twostream():
    made = build_twostream(SMALL, WeightSources(), "cpu", "float32")
    return made.copy(options=RunOptions(threads=1))


@pytest.fixture(scope="module")
def filled(finetuned, twostream, workers, tmp_path_factory):
    """A cache with the first two of the three videos."""
    root = tmp_path_factory.mktemp("cache")
    for video_id in ("scene_00", "scene_01"):
        fill(ChunkCache(root, chunk_recipe(twostream.recipe)), finetuned.videos[video_id], workers)
    return root


@pytest.fixture
def own(filled, tmp_path):
    """A copy of it, which a test may change."""
    return shutil.copytree(filled, tmp_path / "own cache")


@pytest.fixture
def submitted(monkeypatch):
    """The chunks whose flow is computed while the test runs."""
    chunks = []
    submit = FlowWorkers.submit
    monkeypatch.setattr(FlowWorkers, "submit", lambda self, frames: (chunks.append(frames), submit(self, frames))[1])
    return chunks


@pytest.fixture(scope="module")
def plain(finetuned, twostream, workers, tmp_path_factory):
    """Features made without a cache."""
    return made(finetuned.videos, tmp_path_factory.mktemp("plain"), twostream, workers)[0]


def fill(cache, source, workers, keep=()):
    opened = open_chunks(source, cache.recipe["long_side"])
    return return_value(cache.fill(sha256_of(source), source, opened, workers, [sha256_of(other) for other in keep]))


def find(cache, source):
    return cache.find(sha256_of(source))


def made(videos, path, twostream, workers, cache=None):
    """The folder and the outcomes of an extraction."""
    outcomes = extract_all(videos, create_output(path, twostream.recipe, {}), twostream, workers, cache)
    return open_features(path), outcomes


def same(folder, other, video_id):
    arrays = zip(features_in(folder, video_id), features_in(other, video_id), strict=True)
    return all(mine.tobytes() == theirs.tobytes() for mine, theirs in arrays)


def test_another_file_or_recipe_is_not_found(finetuned, twostream, own, tmp_path):
    source = Path(shutil.copy(finetuned.videos["scene_00"], tmp_path / "renamed.mp4"))
    (cache,) = caches_of(own, twostream.recipe)
    assert len(find(cache, source)) == 16
    assert find(ChunkCache(own, cache.recipe | {"long_side": 64}), source) is None
    assert caches_of(own, replace(twostream.recipe, long_side=64)) == []
    for stream in ("rgb", "flow"):
        assert [c.path for c in caches_of(own, twostream.recipe.narrowed([stream]))] == [cache.path]
    source.write_bytes(source.read_bytes() + b"\0")
    assert find(cache, source) is None


def test_the_least_recently_used_goes_first(finetuned, twostream, workers, own):
    sources = list(finetuned.videos.values())
    recipe = chunk_recipe(twostream.recipe)
    records = [find(ChunkCache(own, recipe), source).path.with_suffix(".json") for source in sources[:2]]
    size = records[0].with_suffix(".npy").stat().st_size
    with pytest.raises(OutputError):  # the videos of one job never push each other out
        fill(ChunkCache(own, recipe, size=int(2.5 * size)), sources[2], workers, keep=sources)
    for age, record in zip((100, 200), records, strict=True):
        os.utime(record, (record.stat().st_mtime - age,) * 2)
    cache = ChunkCache(own, recipe, size=int(2.5 * size))
    fill(cache, sources[2], workers)
    assert [find(cache, source) is not None for source in sources] == [True, False, True]


@pytest.mark.long
def test_cached_chunks_give_the_same_bits_without_flow(
    finetuned, twostream, workers, filled, plain, submitted, tmp_path
):
    folder, outcomes = made(finetuned.videos, tmp_path / "features", twostream, workers, filled)
    assert [o.state for o in outcomes] == ["done"] * 3 and len(submitted) == 16, "of the video that is not cached"
    for video_id in finetuned.videos:
        assert same(folder, plain, video_id)
        mine, theirs = (dict(of.read_record(video_id)) for of in (folder, plain))
        assert (mine["cached"], theirs["cached"]) == (video_id != "scene_02", False)
        for name in TIMELESS:
            del mine[name], theirs[name]
        assert mine == theirs
    rgb = build_twostream(SMALL.narrowed(["rgb"]), WeightSources(), "cpu", "float32")
    rgb = rgb.copy(options=RunOptions(threads=1))
    alone, _ = made({"scene_01": finetuned.videos["scene_01"]}, tmp_path / "rgb", rgb, None, filled)
    assert alone.read_record("scene_01")["cached"] is True
    assert np.array_equal(alone.load("scene_01")[0], plain.load("scene_01")[0])


@pytest.mark.long
def test_the_command_and_its_workers_take_the_cache(lstr, finetuned, twostream, filled, plain, submitted, tmp_path):
    """A renamed video is known by its content; cache=none decodes, and computes flow."""
    shutil.copy(finetuned.videos["scene_00"], tmp_path / "renamed.mp4")
    options = ["--recipe", finetuned.weights.path, "--stream", "flow", "--workers", 1, "--set", "threads=1"]
    arguments = ["extract", tmp_path / "renamed.mp4", *options]
    code, _, err = lstr(*arguments, "-o", tmp_path / "a", "--set", f"cache={filled}")
    assert code == 0 and submitted == [], err
    begun = create_output(tmp_path / "features", twostream.recipe, {})
    with open_worker(ExtractOptions(begun.path, device="cpu", threads=1, cache=filled, runtime="torch")) as worker:
        assert [*worker.extract("scene_01", finetuned.videos["scene_01"])][-1].state == "done"
    assert submitted == [] and read_record(begun.record("scene_01"))["cached"] is True
    assert same(begun, plain, "scene_01")
    code, _, err = lstr(*arguments, "-o", tmp_path / "b", "--set", "cache=none")
    assert code == 0 and len(submitted) == 16, err
    cached, decoded = open_features(tmp_path / "a"), open_features(tmp_path / "b")
    assert same(cached, decoded, "renamed") and cached.read_record("renamed")["cached"] is True
    assert cached.read_record("renamed")["fold"] == decoded.read_record("renamed")["fold"] == 1


@pytest.mark.long
@pytest.mark.parametrize("harm", ["a byte", "cut", "record gone", "record cut", "evicted"])
def test_harm_costs_time_and_nothing_else(
    finetuned, twostream, workers, own, plain, submitted, tmp_path, harm, monkeypatch
):
    source = finetuned.videos["scene_00"]
    (cache,) = caches_of(own, twostream.recipe)
    array = find(cache, source).path
    record = array.with_suffix(".json")
    if harm == "a byte":
        content = bytearray(array.read_bytes())
        content[-1] ^= 1  # of the last chunk, when fifteen rows are written
        array.write_bytes(content)
    elif harm == "cut":
        array.write_bytes(array.read_bytes()[:-1])
    elif harm == "record gone":
        record.unlink()
    elif harm == "record cut":
        record.write_bytes(record.read_bytes()[:40])
    else:
        find_entry = ChunkCache.find
        monkeypatch.setattr(ChunkCache, "find", lambda *given: _evicted(find_entry(*given)))
    folder, (outcome,) = made({"scene_00": source}, tmp_path / "features", twostream, workers, own)
    assert outcome.state == "done" and same(folder, plain, "scene_00")
    assert folder.read_record("scene_00")["cached"] is (harm == "evicted")
    assert len(submitted) == (0 if harm == "evicted" else 16)
    assert bool(outcome.note) is (harm == "a byte")


def _evicted(video):
    """As another process does that needs room, just after it was found."""
    video.path.unlink()
    os.unlink(video.path.with_suffix(".json"))
    return video
