"""Extraction from the chunk cache: the same bits, no flow computed, and damage that costs no more than time."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from lstr.errors import MissingPathError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.run import RunOptions
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.reader import open_chunks
from lstr.pipelines.features.chunk_cache import ChunkCache, caches_of, chunk_recipe, find_cache
from lstr.pipelines.features.extraction import ExtractOptions
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import create_output, read_record
from lstr.pipelines.features.video import open_worker
from tests.support.extraction import extracted, features_in, returned
from tests.support.finetuned import SMALL

pytestmark = pytest.mark.long

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
    cache = ChunkCache(root, chunk_recipe(twostream.recipe))
    for video_id in ("scene_00", "scene_01"):
        source = finetuned.videos[video_id]
        returned(cache.fill(sha256_of(source), source, open_chunks(source, SMALL.long_side), workers))
    return root


@pytest.fixture
def submitted(monkeypatch):
    """The chunks whose flow is computed while the test runs."""
    chunks = []
    submit = FlowWorkers.submit
    monkeypatch.setattr(FlowWorkers, "submit", lambda self, frames: (chunks.append(frames), submit(self, frames))[1])
    return chunks


def made(videos, path, twostream, workers, cache=None):
    """The folder and the outcomes of an extraction."""
    folder = create_output(path, twostream.recipe, {})
    outcomes = extracted(videos, folder, twostream, workers, cache)
    return open_features(path), outcomes


def same(folder, other, video_id):
    arrays = zip(features_in(folder, video_id), features_in(other, video_id), strict=True)
    return all(mine.tobytes() == theirs.tobytes() for mine, theirs in arrays)


@pytest.fixture(scope="module")
def plain(finetuned, twostream, workers, tmp_path_factory):
    """Features made without a cache."""
    return made(finetuned.videos, tmp_path_factory.mktemp("plain"), twostream, workers)[0]


def test_cached_chunks_give_the_same_bits_and_compute_no_flow(
    finetuned, twostream, workers, filled, plain, submitted, tmp_path
):
    folder, outcomes = made(finetuned.videos, tmp_path / "features", twostream, workers, filled)
    assert [o.state for o in outcomes] == ["done"] * 3 and len(submitted) == 16, "of the video that is not cached"
    for video_id in finetuned.videos:
        assert same(folder, plain, video_id)
        mine, theirs = folder.read_record(video_id), plain.read_record(video_id)
        assert (mine["cached"], theirs["cached"]) == (video_id != "scene_02", False)
        assert {k: v for k, v in mine.items() if k not in TIMELESS} == {
            k: v for k, v in theirs.items() if k not in TIMELESS
        }


def test_other_networks_compute_no_flow_again(lstr, finetuned, filled, submitted, tmp_path):
    """A renamed video is known by its content; cache=none decodes, and computes flow."""
    shutil.copy(finetuned.videos["scene_00"], tmp_path / "renamed.mp4")
    weights = finetuned.weights.path
    options = ["--recipe", weights, "--stream", "flow", "--workers", 1, "--set", "threads=1"]
    arguments = ["extract", tmp_path / "renamed.mp4", *options]
    code, _, err = lstr(*arguments, "-o", tmp_path / "a", "--set", f"cache={filled}")
    assert code == 0 and submitted == [], err
    code, _, err = lstr(*arguments, "-o", tmp_path / "b", "--set", "cache=none")
    assert code == 0 and len(submitted) == 16, err
    cached, decoded = open_features(tmp_path / "a"), open_features(tmp_path / "b")
    assert same(cached, decoded, "renamed") and cached.read_record("renamed")["cached"] is True
    assert cached.read_record("renamed")["fold"] == decoded.read_record("renamed")["fold"] == 1


@pytest.mark.parametrize("harm", ["a byte", "cut", "record gone", "evicted"])
def test_harm_costs_time_and_nothing_else(
    finetuned, twostream, workers, filled, plain, submitted, tmp_path, harm, monkeypatch
):
    shutil.copytree(filled, tmp_path / "cache")
    source = finetuned.videos["scene_00"]
    (cache,) = caches_of(tmp_path / "cache", twostream.recipe)
    array = cache.find(sha256_of(source)).path
    if harm == "a byte":
        content = bytearray(array.read_bytes())
        content[-1] ^= 1  # of the last chunk, when fifteen rows are written
        array.write_bytes(content)
    elif harm == "cut":
        array.write_bytes(array.read_bytes()[:-1])
    elif harm == "record gone":
        array.with_suffix(".json").unlink()
    else:
        find = ChunkCache.find
        monkeypatch.setattr(ChunkCache, "find", lambda *given: _evicted(find(*given)))
    folder, (outcome,) = made({"scene_00": source}, tmp_path / "features", twostream, workers, tmp_path / "cache")
    assert outcome.state == "done" and same(folder, plain, "scene_00")
    assert folder.read_record("scene_00")["cached"] is (harm == "evicted")
    assert len(submitted) == (0 if harm == "evicted" else 16)
    assert ("damaged" in outcome.note) is (harm == "a byte") and array.exists() is (harm in ("cut", "record gone"))


def _evicted(video):
    """As another process does that needs room, just after it was found."""
    video.path.unlink()
    os.unlink(video.path.with_suffix(".json"))
    return video


def test_a_cache_of_other_chunks_is_left_alone(twostream, filled):
    assert caches_of(filled, replace(twostream.recipe, long_side=64)) == []
    (both,) = caches_of(filled, twostream.recipe)
    assert [c.path for c in caches_of(filled, twostream.recipe.narrowed(["rgb"]))] == [both.path], "its RGB will do"
    assert [c.path for c in caches_of(filled, twostream.recipe.narrowed(["flow"]))] == [both.path]


def test_rgb_alone_is_made_of_chunks_with_flow(finetuned, twostream, filled, plain, tmp_path):
    rgb = build_twostream(SMALL.narrowed(["rgb"]), WeightSources(), "cpu", "float32")
    rgb = rgb.copy(options=RunOptions(threads=1))
    folder, (outcome,) = made({"scene_01": finetuned.videos["scene_01"]}, tmp_path / "f", rgb, None, filled)
    record = folder.read_record("scene_01")
    assert outcome.state == "done" and record["cached"] is True and record["flow_backend"] is None
    assert np.array_equal(folder.load("scene_01")[0], plain.load("scene_01")[0])


def test_a_worker_takes_it_too(finetuned, twostream, filled, plain, submitted, tmp_path):
    begun = create_output(tmp_path / "features", twostream.recipe, {})
    with open_worker(ExtractOptions(begun.path, device="cpu", threads=1, cache=filled, runtime="torch")) as worker:
        assert [*worker.extract("scene_01", finetuned.videos["scene_01"])][-1].state == "done"
    assert (
        submitted == [] and read_record(begun.record("scene_01"))["cached"] is True and same(begun, plain, "scene_01")
    )


def test_where_the_cache_is(lstr, tmp_path, monkeypatch):
    monkeypatch.setenv("LSTR_HOME", str(tmp_path))
    assert find_cache(None) is None
    (tmp_path / "chunks").mkdir()
    assert find_cache(None) == tmp_path / "chunks"
    with pytest.raises(MissingPathError, match="none is not a folder"):
        find_cache("none")
