"""What an extraction says before and after its work, and how a machine is shared out."""

import json
import shutil

import pytest
import torch

from lstr.extractors.flow import workers as flow
from lstr.extractors.presets import PRESETS
from lstr.extractors.video.inputs import find_videos
from lstr.files.content import append_jsonl, read_jsonl
from lstr.pipelines.features import extraction as machines
from lstr.pipelines.features.extraction import PROCESS_MEMORY_BYTES as MEMORY
from lstr.pipelines.features.extraction import (
    ExtractOptions,
    Plan,
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
    append_jsonl(features / "failed.jsonl", {"id": "scene_01", "source": "x", "reason": "it was damaged"})
    append_jsonl(features / "failed.jsonl", {"id": "scene_02", "source": "x", "reason": "an old one, done since"})
    return videos, features


def planned(videos, features) -> Plan:
    return make_plan(find_videos([videos]), ExtractOptions(features, recipe=SMALL), "cpu", lambda n: Share(2, n))


def test_the_plan_of_a_job_half_done(half_done):
    plan = planned(*half_done)
    assert {video.id: video.state for video in plan.videos} == {
        "bad": "unreadable",
        "scene_00": "to do",
        "scene_01": "to do",
        "scene_02": "done",
        "scene_03": "done",
    }
    told = json.loads(json.dumps(plan.to_dict()))
    assert told["hours"] == 20 / 3600 and told["hours_to_do"] == 10 / 3600 and told["chunks_to_do"] == 40
    assert plan.share == Share(2, 3), "of what is not done"
    assert 40 * 4 * sum(DIMS) < told["bytes"] < 41 * 4 * sum(DIMS) < told["free_bytes"]
    spent = sum(plan_record["seconds"]["total"] * plan_record["threads"] for plan_record in records(half_done[1]))
    assert told["seconds"] == pytest.approx(40 * spent / 40 / 6)
    assert (told["files"], told["done"], told["to_do"], told["unreadable"], told["failed_before"]) == (5, 2, 2, 1, 1)


def records(features):
    folder = open_features(features)
    return [folder.read_record(video_id) for video_id in ("scene_02", "scene_03")]


def test_the_time_of_a_plan_is_known_from_what_is_done(small_set, tmp_path):
    plan = planned(small_set.videos, tmp_path / "new")
    assert (plan.to_dict()["chunks_to_do"], plan.to_dict()["seconds"]) == (80, None)
    assert not (tmp_path / "new").exists(), "a plan makes nothing"
    assert (
        row_bytes(PRESETS["faithful"].narrowed(["rgb"])) == 4 * 2048 and row_bytes(PRESETS["activitynet"]) == 4 * 4096
    )


def test_dry_run(lstr, small_set, half_done):
    videos, features = half_done
    recipe = small_set.recipe
    before = sorted(features.rglob("*"))
    code, out, err = lstr("extract", videos, "-o", features, "--recipe", recipe, "--workers", "1", "--dry-run")
    lines = out.splitlines()
    assert code == 0 and err == "" and "scene_01\t5.0\t20\tfailed before\tit was damaged" in lines
    assert any(line.startswith("bad\t0.0\t0\tunreadable\t") for line in lines)
    assert lines[-1].startswith("plan: 5 files, 0:00:20 of video: 2 done, 2 to do, 1 unreadable (1 failed before); ")
    assert "0:00:10 of video, 260 kB of disk, about 0:00:" in lines[-1]
    code, out, _ = lstr("extract", videos, "-o", features, "--recipe", recipe, "--dry-run", "--json")
    assert code == 0 and json.loads(out)["chunks_to_do"] == 40
    assert sorted(features.rglob("*")) == before


@pytest.mark.long
def test_a_run_says_its_plan_first_and_its_speed_last(lstr, small_set, tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text(f"{small_set.videos / 'scene_00.mp4'}\n\n{tmp_path / 'bad.mp4'}\r\n")
    (tmp_path / "bad.mp4").write_text("no video")
    output, failed = tmp_path / "features", tmp_path / "features" / "failed.jsonl"
    made = ["-o", output, "--recipe", small_set.recipe, "--set", "recipe.flow_algorithm=dis", "--workers", "1"]
    code, out, err = lstr("extract", "--list", listed, *made, "--json")
    lines = err.splitlines()
    assert code == 3 and lines[0].startswith("plan: 2 files, 0:00:05 of video: 0 done, 1 to do, 1 unreadable; to do: ")
    assert lines[-1] == f"1 done, 0 kept, 1 failed; features in {output}"
    assert lines[-2].startswith("20 chunks in 0:0") and "× real time; of one thread: decode " in lines[-2]
    told = json.loads(out)
    assert (told["done"], told["kept"], told["failed"], told["chunks"]) == (1, 0, 1, 20)
    assert told["realtime_factor"] == pytest.approx(5 / told["seconds"], rel=0.02)
    assert set(told["stages"]) == {"decode", "flow", "rgb_network", "flow_network"}
    named = ([failure["id"] for failure in failures] for failures in (told["failures"], read_jsonl(failed)))
    assert list(named) == [["bad"], ["bad"]]
    code, _, err = lstr("extract", "--list", listed, *made)
    assert code == 3 and err.splitlines()[0].endswith("1 done, 0 to do, 1 unreadable (1 failed before)")
    assert err.splitlines()[-1].startswith("0 done, 1 kept, 1 failed")


def test_a_line_that_a_kill_cut_short_is_not_read(tmp_path):
    append_jsonl(tmp_path / "failed.jsonl", {"id": "ü \udcff"})
    with (tmp_path / "failed.jsonl").open("a") as file:
        file.write('{"id": "cu')
    append_jsonl(tmp_path / "failed.jsonl", {"id": "b"})
    assert read_jsonl(tmp_path / "failed.jsonl") == [{"id": "ü \udcff"}, {"id": "b"}]


@pytest.mark.parametrize(
    ("cores", "gpus", "memory", "n_videos", "shared"),
    [
        (1, 0, PLENTY, 100, Share(1, 1)),
        (2, 0, PLENTY, 100, Share(1, 2)),  # two processes of one thread each were no faster, and take twice the memory
        (4, 0, PLENTY, 100, Share(1, 4)),
        (16, 0, PLENTY, 100, Share(4, 4)),
        (18, 0, PLENTY, 100, Share(4, 4)),
        (16, 0, PLENTY, 2, Share(2, 8)),
        (16, 0, PLENTY, 1, Share(1, 16)),
        (16, 0, PLENTY, 0, Share(1, 16)),
        (16, 0, 3 * MEMORY, 100, Share(3, 5)),
        (64, 0, MEMORY // 2, 100, Share(1, 64)),
        (16, 1, PLENTY, 100, Share(1, 16)),
        (128, 8, PLENTY, 1000, Share(8, 16)),
        (128, 8, PLENTY, 3, Share(3, 42)),
        (16, 8, PLENTY, 1000, Share(8, 2)),
        (4, 8, PLENTY, 1000, Share(4, 1)),
    ],
)
def test_the_default_of_a_machine(cores, gpus, memory, n_videos, shared):
    assert share(n_videos, cores, gpus, memory) == shared
    assert shared.processes * shared.threads <= cores


def test_what_is_asked_for_is_done():
    assert share(100, 16, 0, PLENTY, processes=8) == Share(8, 2)
    assert share(100, 2, 0, PLENTY, processes=8) == Share(8, 1)
    assert share(3, 16, 0, PLENTY, processes=8) == Share(3, 5)
    assert share(100, 16, 0, PLENTY, threads=1) == Share(16, 1)
    assert share(100, 16, 0, PLENTY, processes=2, threads=3) == Share(2, 3)


def test_a_numbered_gpu_is_one(monkeypatch):
    """All were taken, and the process of the other one was told of a GPU that it did not see."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [count_gpus(device) for device in ("cpu", "cuda", "cuda:0", "cuda:1")] == [0, 2, 1, 1]
    assert share(5, 16, count_gpus("cuda:1"), PLENTY).processes == 1


def test_where_nothing_says_what_is_free_all_memory_is(monkeypatch, tmp_path):
    """As on macOS: more than what is free, and no more than the machine has."""
    free = free_memory()
    monkeypatch.setattr(machines, "MEMORY_INFO", tmp_path / "none")
    monkeypatch.setattr(machines, "MEMORY_LIMIT", tmp_path / "none")
    assert free < free_memory() < 2**50


def test_a_container_has_the_cores_and_the_memory_of_its_quota(monkeypatch, tmp_path):
    cores, free = flow.default_workers(), free_memory()
    quota, limit = tmp_path / "cpu.max", tmp_path / "memory.max"
    monkeypatch.setattr(flow, "CPU_QUOTA", quota)
    monkeypatch.setattr(machines, "MEMORY_LIMIT", limit)
    quota.write_text("max 100000\n")
    limit.write_text("max\n")
    assert flow.default_workers() >= cores and free_memory() > free / 2
    quota.write_text("50000 100000\n")
    limit.write_text("1000000\n")
    assert (flow.default_workers(), free_memory()) == (1, 1000000)
