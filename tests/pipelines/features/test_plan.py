"""The plan and the summary of an extraction, and how it divides a machine."""

import json
import shutil

import pytest
import torch

from lstr.extractors.flow import workers as flow
from lstr.extractors.presets import PRESETS
from lstr.extractors.video.inputs import find_videos
from lstr.files.content import append_jsonl
from lstr.pipelines.features import extraction
from lstr.pipelines.features.extraction import PROCESS_MEMORY_BYTES as MEMORY
from lstr.pipelines.features.extraction import (
    ExtractOptions,
    Share,
    count_gpus,
    free_memory,
    make_plan,
    row_bytes,
    share,
)
from lstr.pipelines.features.folder import open_features
from tests.support.small_set import DIMS, SMALL

PLENTY = 2**40  # bytes


@pytest.fixture
def half_done(small_set, tmp_path):
    """A folder of videos with one that is none, and features of two: one video is new, one has changed since."""
    videos, features = tmp_path / "videos", tmp_path / "features"
    shutil.copytree(small_set.videos, videos)
    shutil.copytree(small_set.features, features)
    (videos / "bad.mp4").write_text("no video")
    for video_id in ("scene_00", "scene_01"):
        (features / "records" / f"{video_id}.json").unlink()
    for video_id in ("scene_01", "scene_02"):  # the second is done since
        append_jsonl(features / "failed.jsonl", {"id": video_id, "source": "x", "reason": "it was damaged"})
    return videos, features


def test_the_plan_of_a_job_half_done(lstr, small_set, half_done):
    videos, features = half_done
    before = sorted(features.rglob("*"))
    options = ExtractOptions(features, recipe=SMALL)
    plan = make_plan(find_videos([videos]), options, "cpu", lambda n: Share(2, n))
    states = {"bad": "unreadable", "scene_00": "to do", "scene_01": "to do", "scene_02": "done", "scene_03": "done"}
    assert {video.id: video.state for video in plan.videos} == states
    told = json.loads(json.dumps(plan.to_dict()))
    assert told["hours"] == 20 / 3600 and told["hours_to_do"] == 10 / 3600 and told["chunks_to_do"] == 40
    assert plan.share == Share(2, 3), "of what is not done"
    assert 40 * 4 * sum(DIMS) < told["bytes"] < 41 * 4 * sum(DIMS) < told["free_bytes"]
    records = [open_features(features).read_record(video_id) for video_id in ("scene_02", "scene_03")]
    spent = sum(record["seconds"]["total"] * record["threads"] for record in records)
    assert told["seconds"] == pytest.approx(spent / 6), "as fast as those that are done"
    assert (told["files"], told["done"], told["to_do"], told["unreadable"], told["failed_before"]) == (5, 2, 2, 1, 1)
    given = ("extract", videos, "-o", features, "--recipe", small_set.recipe, "--dry-run")
    code, out, err = lstr(*given)
    assert code == 0 and err == "" and all(video_id in out for video_id in states)
    assert json.loads(lstr(*given, "--json")[1])["chunks_to_do"] == 40
    assert sorted(features.rglob("*")) == before


def test_the_plan_of_a_new_folder(small_set, tmp_path):
    options = ExtractOptions(tmp_path / "new", recipe=SMALL)
    plan = make_plan(find_videos([small_set.videos]), options, "cpu", lambda n: Share(2, n)).to_dict()
    assert (plan["chunks_to_do"], plan["seconds"]) == (80, None) and not (tmp_path / "new").exists()
    assert row_bytes(PRESETS["faithful"].narrowed(["rgb"])) == 4 * 2048
    assert row_bytes(PRESETS["activitynet"]) == 4 * 4096


@pytest.mark.parametrize(
    ("cores", "gpus", "memory", "n_videos", "asked", "shared"),
    [
        (1, 0, PLENTY, 100, {}, Share(1, 1)),
        (2, 0, PLENTY, 100, {}, Share(1, 2)),  # two processes of one thread were no faster, and take twice the memory
        (16, 0, PLENTY, 100, {}, Share(4, 4)),
        (16, 0, PLENTY, 2, {}, Share(2, 8)),
        (16, 0, 3 * MEMORY, 100, {}, Share(3, 5)),
        (64, 0, MEMORY // 2, 100, {}, Share(1, 64)),
        (16, 1, PLENTY, 100, {}, Share(1, 16)),
        (128, 8, PLENTY, 1000, {}, Share(8, 16)),
        (16, 8, PLENTY, 1000, {}, Share(8, 2)),
        (4, 8, PLENTY, 1000, {}, Share(4, 1)),
        (16, 0, PLENTY, 100, {"processes": 8}, Share(8, 2)),
        (16, 0, PLENTY, 3, {"processes": 8}, Share(3, 5)),
        (16, 0, PLENTY, 100, {"threads": 1}, Share(16, 1)),
        (16, 0, PLENTY, 100, {"processes": 2, "threads": 3}, Share(2, 3)),
    ],
)
def test_processes_and_threads_of_a_machine(cores, gpus, memory, n_videos, asked, shared):
    assert share(n_videos, cores, gpus, memory, **asked) == shared
    assert shared.processes * shared.threads <= cores or asked


def test_a_numbered_gpu_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [count_gpus(device) for device in ("cpu", "cuda", "cuda:0", "cuda:1")] == [0, 2, 1, 1]


def test_a_container_has_the_cores_and_the_memory_of_its_quota(monkeypatch, tmp_path):
    """Where the system says nothing, as on macOS, all memory of the machine counts as free."""
    cores, free = flow.default_workers(), free_memory()
    quota, limit = tmp_path / "cpu.max", tmp_path / "memory.max"
    monkeypatch.setattr(flow, "CPU_QUOTA", quota)
    monkeypatch.setattr(extraction, "MEMORY_LIMIT", limit)
    quota.write_text("max 100000\n")
    limit.write_text("max\n")
    assert flow.default_workers() >= cores and free_memory() > free / 2
    quota.write_text("50000 100000\n")
    limit.write_text("1000000\n")
    assert (flow.default_workers(), free_memory()) == (1, 1000000)
    monkeypatch.setattr(extraction, "MEMORY_INFO", tmp_path / "none")
    monkeypatch.setattr(extraction, "MEMORY_LIMIT", tmp_path / "none")
    assert free < free_memory() < 2**50
