"""What a killed run leaves behind, and damage done to stored features: found, and mended by running again."""

import json
import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import av
import numpy as np
import pytest

from lstr.files.atomic import leftovers
from lstr.files.content import write_json
from lstr.pipelines.features.folder import open_features, verify
from tests.support.small_set import PICTURES

N_VIDEOS = 6
CHUNKS = 2
RECIPE = {"based_on": "fast", "rgb": {"network": "mobilenetv3"}, "flow": {"network": "shufflenetv2"}, **PICTURES}


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    """Six videos of two chunks, in two folders."""
    root = tmp_path_factory.mktemp("tiny videos")
    rng = np.random.default_rng(0)
    for i in range(N_VIDEOS):
        path = root / f"part {i % 2}" / f"v{i}.mp4"
        path.parent.mkdir(exist_ok=True)
        texture = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)  # (96, 128, 3)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=24)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            for t in range(6 * CHUNKS):
                image = np.ascontiguousarray(texture[t : t + 48, 2 * t : 2 * t + 64])
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode())
    write_json(root.with_suffix(".json"), RECIPE)
    return root


@pytest.fixture(scope="module")
def launcher():
    """Starts processes that have imported everything already, so that many can be killed in little time."""
    context = multiprocessing.get_context("forkserver")
    preloaded = ("lstr_cli.extract", "lstr.pipelines.features.extract", "rich.progress")
    context.set_forkserver_preload(list(preloaded))
    return context


def run_lstr(arguments: list[str], log: str, file_limit: int | None = None) -> None:
    """In the new process: the `lstr` command itself; standard error goes to `log`."""
    import torch

    from lstr_cli.main import main

    torch.set_num_threads(1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    sys.argv = ["lstr", *arguments]
    main()


class Runs:
    """`lstr extract` of the tiny videos into one folder, as often as it takes."""

    def __init__(self, context, videos: Path, output: Path):
        self.context, self.output, self.log = context, output, output.parent / "stderr.txt"
        self.arguments = ["extract", str(videos), "-o", str(output), "--set", "recipe.flow_algorithm=dis"]
        self.arguments += ["--recipe", str(videos.with_suffix(".json")), "--workers", "1"]

    def start(self, file_limit: int | None = None):
        process = self.context.Process(target=run_lstr, args=(self.arguments, str(self.log), file_limit))
        process.start()
        return process

    def to_its_end(self, file_limit: int | None = None) -> tuple[int, str]:
        process = self.start(file_limit)
        process.join()
        return process.exitcode, self.log.read_text()

    def counts(self, done: int, kept: int, failed: int = 0) -> None:
        code, err = self.to_its_end()
        assert code == 0 and f"{done} done, {kept} kept, {failed} failed" in err, err


@pytest.fixture(scope="module")
def whole(launcher, videos, tmp_path_factory) -> Path:
    """The folder that an undisturbed run makes."""
    runs = Runs(launcher, videos, tmp_path_factory.mktemp("whole") / "features")
    runs.counts(done=N_VIDEOS, kept=0)
    return runs.output


@pytest.fixture
def runs(launcher, videos, whole, tmp_path) -> Runs:
    """A copy of that folder, to be harmed."""
    shutil.copytree(whole, tmp_path / "features")
    return Runs(launcher, videos, tmp_path / "features")


def same_features(a: Path, b: Path) -> None:
    left, right = open_features(a), open_features(b)
    assert left.ids() == right.ids() and len(left.ids()) == N_VIDEOS
    for video_id in left.ids():
        for x, y in zip(left.load(video_id), right.load(video_id), strict=True):
            assert np.allclose(x, y, atol=1e-5, rtol=1e-4)


@pytest.mark.long
def test_damage_is_redone_and_nothing_else(runs, whole):
    """One harm a video; the sixth is left alone. test_verify.py has every harm that is looked for."""
    folder = open_features(runs.output)
    ids = folder.ids()
    cut = folder.array("flow", ids[0])
    cut.write_bytes(cut.read_bytes()[:-100])
    shutil.copy(folder.array("rgb", ids[5]), folder.array("rgb", ids[1]))
    with folder.array("flow", ids[2]).open("ab") as file:
        file.write(b"\0" * 4096)
    folder.record(ids[3]).write_text("[]")
    folder.record(ids[4]).write_text('{"id": ')
    (folder.path / "records" / "of a former run.json").write_text("{")
    (folder.path / ".videos.jsonl.tmp-1").touch()
    assert {fault["id"] for fault in verify(folder)[1]} == {*ids[:5], "of a former run"}
    runs.counts(done=5, kept=1)
    assert {fault["id"] for fault in verify(folder)[1]} == {"of a former run"} and not leftovers(folder.path)
    same_features(runs.output, whole)


@pytest.mark.long
def test_a_full_disk_loses_nothing_finished(runs):
    """No file may pass 7 KB here, so arrays of flow, of 8 KB, meet what a full disk gives: an error half way."""
    folder = open_features(runs.output)
    ids = folder.ids()
    folder.record(ids[5]).unlink()
    code, err = runs.to_its_end(file_limit=7000)
    assert code == 2 and "cannot be written" in err and err.count("hint: ") == 1 and "Traceback" not in err
    assert folder.ids() == ids[:5] and not list(runs.output.rglob(".*.tmp-*"))
    assert {fault["id"] for fault in verify(folder)[1]} == {ids[5]}


@pytest.fixture
def small_disk(tmp_path):
    """A folder that is a disk of its own, of 64 kB: features of few videos fit."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a disk can be mounted by root alone")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def remount(disk: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", disk], check=True, capture_output=True)


@pytest.mark.long
def test_a_disk_that_fills_up_and_one_that_is_read_only(launcher, videos, whole, small_disk):
    runs = Runs(launcher, videos, small_disk / "features")
    runs.log = small_disk.parent / "stderr.txt"
    runs.output.mkdir()
    shutil.copy(whole / "recipe.json", runs.output)  # without the statistics, which fill half a megabyte
    code, err = runs.to_its_end()
    assert code == 2 and "No space left on device" in err and err.count("hint: ") == 1 and "Traceback" not in err, err
    done = open_features(runs.output).ids()
    assert 0 < len(done) < N_VIDEOS and not list(runs.output.rglob(".*.tmp-*"))
    check_after_a_kill(runs.output)
    remount(small_disk, "size=4m")
    remount(small_disk, "ro")
    code, err = runs.to_its_end()
    assert code == 2 and "Read-only file system" in err and err.count("hint: ") == 1 and "Traceback" not in err, err
    assert open_features(runs.output).ids() == done
    remount(small_disk, "rw")
    runs.counts(done=N_VIDEOS - len(done), kept=len(done))
    same_features(runs.output, whole)
    remount(small_disk, "ro")
    runs.counts(done=0, kept=N_VIDEOS)  # nothing to write: no error


@pytest.mark.long
def test_kills_at_random_moments(launcher, videos, whole, tmp_path):
    """kill -9, anywhere: what has a record is whole, no array is in pieces, and running again comes to the same end."""
    rng = random.Random(2)
    kills = finished = 0
    runs = Runs(launcher, videos, tmp_path / "0" / "features")
    while kills < 2:  # test_stops.py has more of them
        runs.output.parent.mkdir(exist_ok=True)
        process = runs.start()
        if rng.random() < 0.7:  # most of the time there is nothing to write: wait for the first sign of writing
            before = set(runs.output.rglob("*"))
            while process.is_alive() and set(runs.output.rglob("*")) == before:
                time.sleep(0.002)
        process.join(rng.uniform(0, 1.2))
        alive = process.is_alive()
        process.kill()
        process.join()
        kills += alive and process.exitcode == -9
        if (runs.output / "recipe.json").exists():
            check_after_a_kill(runs.output)
        if process.exitcode == 0:  # it came to its end: on with a new folder
            finished += 1
            same_features(runs.output, whole)
            runs = Runs(launcher, videos, tmp_path / str(finished) / "features")
    done = len(open_features(runs.output).ids()) if (runs.output / "recipe.json").exists() else 0
    runs.counts(done=N_VIDEOS - done, kept=done)
    assert not list(runs.output.rglob(".*.tmp-*")) and verify(open_features(runs.output))[1] == []
    same_features(runs.output, whole)


def check_after_a_kill(output: Path) -> None:
    folder = open_features(output)
    broken = [f for f in verify(folder)[1] if f["what"] != "is missing" and "no record" not in f["what"]]
    assert broken == []
    for record in (output / "records").rglob("*.json"):
        assert all(len(a) == CHUNKS for a in folder.load(json.loads(record.read_text())["id"]))
