"""The plan of an extraction, and the number of its processes and threads."""

import json
import shutil

import pytest

from lstr.extractors.flow import workers as flow
from lstr.extractors.presets import PRESETS
from lstr.extractors.video.inputs import find_videos
from lstr.files.content import append_jsonl
from lstr.pipelines.features import extraction
from lstr.pipelines.features.extraction import PROCESS_MEMORY_BYTES as MEMORY
from lstr.pipelines.features.extraction import ExtractOptions, free_memory, make_plan, row_bytes, share
from lstr.pipelines.features.folder import open_features
from tests.support.small_set import DIMS, SMALL

PLENTY = 2**40  # bytes


def test_a_plan_counts_finished_and_remaining_videos(lstr, small_set, tmp_path):
    """Of five videos one is new, one failed before, one failed and is done now, one is unreadable."""
    videos, features = tmp_path / "videos", tmp_path / "features"
    shutil.copytree(small_set.videos, videos)
    shutil.copytree(small_set.features, features)
    (videos / "bad.mp4").write_text("not a video")
    for video_id in ("scene_00", "scene_01"):
        (features / "records" / f"{video_id}.json").unlink()
    for video_id in ("scene_01", "scene_02"):
        append_jsonl(features / "failed.jsonl", {"id": video_id, "source": "x", "reason": "it was damaged"})
    before = sorted(features.rglob("*"))
    plan = make_plan(find_videos([videos]), ExtractOptions(features, recipe=SMALL), "cpu", lambda n: (2, n))
    states = {"bad": "unreadable", "scene_00": "to do", "scene_01": "to do", "scene_02": "done", "scene_03": "done"}
    assert {video.id: video.state for video in plan.videos} == states
    assert plan.share == (2, 3)
    counts = json.loads(json.dumps(plan.to_dict()))
    assert counts["hours"] == 20 / 3600 and counts["hours_to_do"] == 10 / 3600 and counts["chunks_to_do"] == 40
    assert 40 * 4 * sum(DIMS) < counts["bytes"] < 41 * 4 * sum(DIMS) < counts["free_bytes"]
    records = [open_features(features).read_record(video_id) for video_id in ("scene_02", "scene_03")]
    seconds = sum(record["seconds"]["total"] * record["threads"] for record in records)
    assert counts["seconds"] == pytest.approx(seconds / 6)
    names = ("files", "done", "to_do", "unreadable", "failed_before")
    assert [counts[name] for name in names] == [5, 2, 2, 1, 1]
    command = ("extract", videos, "-o", features, "--recipe", small_set.recipe, "--dry-run")
    code, out, err = lstr(*command)
    assert code == 0 and err == "" and all(video_id in out for video_id in states)
    assert json.loads(lstr(*command, "--json")[1])["chunks_to_do"] == 40
    assert sorted(features.rglob("*")) == before


def test_the_plan_of_a_new_folder_has_no_time(small_set, tmp_path):
    options = ExtractOptions(tmp_path / "new", recipe=SMALL)
    plan = make_plan(find_videos([small_set.videos]), options, "cpu", lambda n: (2, n)).to_dict()
    assert (plan["chunks_to_do"], plan["seconds"]) == (80, None) and not (tmp_path / "new").exists()
    assert row_bytes(PRESETS["faithful"].narrowed(["rgb"])) == 4 * 2048
    assert row_bytes(PRESETS["activitynet"]) == 4 * 4096


@pytest.mark.parametrize(
    ("cores", "gpus", "memory", "n_videos", "options", "expected"),
    [
        (1, 0, PLENTY, 100, {}, (1, 1)),
        (2, 0, PLENTY, 100, {}, (1, 2)),  # two processes of one thread were no faster, and take twice the memory
        (16, 0, PLENTY, 100, {}, (4, 4)),
        (16, 0, PLENTY, 2, {}, (2, 8)),
        (16, 0, 3 * MEMORY, 100, {}, (3, 5)),
        (64, 0, MEMORY // 2, 100, {}, (1, 64)),
        (16, 1, PLENTY, 100, {}, (1, 16)),
        (128, 8, PLENTY, 1000, {}, (8, 16)),
        (16, 8, PLENTY, 1000, {}, (8, 2)),
        (4, 8, PLENTY, 1000, {}, (4, 1)),
        (16, 0, PLENTY, 100, {"processes": 8}, (8, 2)),
        (16, 0, PLENTY, 3, {"processes": 8}, (3, 5)),
        (16, 0, PLENTY, 100, {"threads": 1}, (16, 1)),
        (16, 0, PLENTY, 100, {"processes": 2, "threads": 3}, (2, 3)),
    ],
)
def test_processes_and_threads_fit_the_machine(cores, gpus, memory, n_videos, options, expected):
    assert share(n_videos, cores, gpus, memory, **options) == expected
    processes, threads = expected
    assert processes * threads <= cores or options


def test_cores_and_memory_are_limited_by_a_container(monkeypatch, tmp_path):
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
    limit.unlink()
    monkeypatch.setattr(extraction, "MEMORY_INFO", tmp_path / "missing")  # as on macOS: all memory counts as free
    assert free < free_memory() < 2**50
