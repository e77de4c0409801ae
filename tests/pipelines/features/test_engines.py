"""Extraction in worker processes, and on a real Ray cluster with sources and features in a real S3 server."""

import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lstr.errors import ExtractorError, MissingPathError, WeightsError
from lstr.extractors.networks.build import randomise
from lstr.extractors.video.inputs import find_videos
from lstr.files.atomic import SCRATCH_PREFIX, leftovers, write_text
from lstr.files.content import read_jsonl
from lstr.files.remote import place
from lstr.pipelines.features import engines
from lstr.pipelines.features.engines import (
    WorkerProcess,
    cluster,
    count_room,
    nodes,
    over_cluster,
    over_processes,
    portion_of,
    share_cluster,
)
from lstr.pipelines.features.extraction import ExtractOptions, Outcome, resume
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import open_output
from lstr.pipelines.progress import Progress
from lstr.pipelines.scenes import SceneConfig, render_scenes
from tests.support.backbones import build_backbone
from tests.support.errors import assert_error
from tests.support.extraction import features_in
from tests.support.injected import write_bad
from tests.support.processes import restore_signals
from tests.support.videos import write_video


@pytest.fixture
def begun(small_set, tmp_path):
    """A folder of the same recipe and calibration as the small set's, without videos."""
    (tmp_path / "features").mkdir()
    for name in ("recipe.json", "calibration.pt"):
        shutil.copy(small_set.features / name, tmp_path / "features")
    return tmp_path / "features"


def on_cpu(begun) -> ExtractOptions:
    return ExtractOptions(begun, device="cpu", threads=1)


@pytest.fixture
def started(monkeypatch) -> list[WorkerProcess]:
    """Every worker process that is started, as it starts."""
    made = []
    start = WorkerProcess.__init__
    monkeypatch.setattr(WorkerProcess, "__init__", lambda self, *given: (made.append(self), start(self, *given))[1])
    return made


@pytest.mark.slow
def test_processes_that_are_killed_cost_their_video_alone(small_set, begun, started):
    """scene_00 loses its process each time and fails, scene_01 once and is done by another; the bits are the same."""
    killed, outcomes = [], {}
    videos = {f"scene_0{i}": small_set.videos / f"scene_0{i}.mp4" for i in range(3)}
    for event in resume(videos, open_output(begun), lambda to_do: over_processes(to_do, on_cpu(begun), 2)):
        if isinstance(event, Outcome):
            outcomes[event.id] = event
        if isinstance(event, Progress) and killed.count(event.what) < {"scene_00": 2, "scene_01": 1}.get(event.what, 0):
            killed.append(event.what)
            (at,) = (w for w in started if w.at[0] == event.what and w.process.poll() is None)
            at.process.kill()
    assert sorted(killed) == ["scene_00", "scene_00", "scene_01"]
    assert {i: o.state for i, o in outcomes.items()} == {"scene_00": "failed", "scene_01": "done", "scene_02": "done"}
    assert "SIGKILL" in outcomes["scene_00"].reason and outcomes["scene_00"].hint
    assert [f["id"] for f in read_jsonl(begun / "failed.jsonl")] == ["scene_00"]
    folder, whole = open_features(begun), open_features(small_set.features)
    assert folder.ids() == ["scene_01", "scene_02"]
    for video_id in folder.ids():
        for mine, theirs in zip(features_in(folder, video_id), features_in(whole, video_id), strict=True):
            assert mine.tobytes() == theirs.tobytes()
    assert all(worker.process.poll() is not None for worker in started) and not leftovers(begun)


@pytest.mark.slow
def test_an_error_in_a_worker_has_its_traceback_in_the_log(begun, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins\nfrom tests.support.injected import inject\n"
        "inject(builtins.setattr, 'network', ZeroDivisionError('in a worker'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    videos = find_videos([write_bad(tmp_path / "bad.mp4")])
    events = list(resume(videos, open_output(begun), lambda to_do: over_processes(to_do, on_cpu(begun), 1)))
    (failure,) = (event for event in events if isinstance(event, Outcome))
    assert failure.state == "failed" and "ZeroDivisionError: in a worker" in failure.reason
    assert "in raising" in (begun / "logs" / "bad.log").read_text()


@pytest.mark.long
def test_a_worker_that_cannot_begin_ends_the_job(small_set, begun, started):
    recipe = open_features(begun).recipe.to_json()
    write_text(begun / "recipe.json", recipe.replace('"weights":"random"', '"weights":"kinetics"'))
    with pytest.raises(WeightsError) as caught:
        list(over_processes({"scene_00": small_set.videos / "scene_00.mp4"}, on_cpu(begun), 2))
    assert caught.value.hint and started[0].process.poll() is not None


def test_processes_that_die_while_they_start(begun, monkeypatch):
    """Five on two of three GPUs, of which each sees one; the third is hidden from all of this."""
    told = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    monkeypatch.setattr(engines, "STARTS", 5)
    popen = subprocess.Popen
    monkeypatch.setattr(
        "subprocess.Popen", lambda *a, env, **k: (told.append(env["CUDA_VISIBLE_DEVICES"]), popen(*a, env=env, **k))[1]
    )
    videos = {str(i): Path(f"{i}.mp4") for i in range(5)}
    with pytest.raises(ExtractorError, match="exit code 1") as caught:
        list(over_processes(videos, ExtractOptions(begun, device="cuda", threads=1), 5, gpus=2))
    assert caught.value.hint and told[:5] == ["GPU-b", "GPU-a", "GPU-b", "GPU-a", "GPU-b"]


STORE = 100 * 2**20  # bytes of shared memory a node; it holds one weights file
FAST = ("--recipe", "fast", "--set", "recipe.flow_algorithm=dis")


@pytest.fixture(scope="module", autouse=True)
def environment():
    """Changes of the environment that last as long as the module; no test sees what somebody else does with Ray."""
    # short, for sockets below it
    folder = Path(tempfile.mkdtemp(prefix="lstr-ray-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))  # where the address of "the" cluster of a machine stands, too
        patch.delenv("RAY_ADDRESS", raising=False)
        yield patch
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def bucket(environment):
    """The URL of an empty bucket; whoever reads this process's environment can reach it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:{1}".format(*server.get_host_and_port()))
    environment.setenv("AWS_ACCESS_KEY_ID", "somebody")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
    environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
    place("s3://videos/x").system[0].mkdir("videos")
    yield "s3://videos"
    server.stop()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> Path:
    """A folder of five videos that take longer than a node does to die, and one of text."""
    root = tmp_path_factory.mktemp("scenes")
    render_scenes(root, SceneConfig(n_videos=5, n_testing=1, seconds=20.0, width=96, height=64))
    (root / "videos" / "bad.mp4").write_text("this is no video\n" * 100)
    return root / "videos"


@pytest.fixture(scope="module")
def two_nodes(environment, bucket):
    """A cluster of this machine alone; `kill_second` kills its second node, whose files are in `scratch`."""
    from ray.cluster_utils import Cluster

    scratch = Path(os.environ["RAY_TMPDIR"]) / "second"
    scratch.mkdir()
    environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 1, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(scratch))  # so that what it works on can be seen
            second = cluster.add_node(**node)
        kill_second = partial(cluster.remove_node, second, allow_graceful=False)
        yield SimpleNamespace(address=cluster.address, scratch=scratch, kill_second=kill_second)
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """A flow network of one's own."""
    backbone = build_backbone("bninception")
    randomise(backbone, 5)
    path = tmp_path_factory.mktemp("weights") / "flow.pth"
    torch.save(backbone.state_dict(), path)
    return path


def on_cluster(address: str, *arguments) -> list[str]:
    return ["extract", *map(str, arguments), *FAST, "--set", "engine=ray", "--set", f"ray_address={address}"]


def start(*arguments: str) -> subprocess.Popen:
    """The command in a process of its own, which hears Ctrl-C."""
    command = [sys.executable, "-m", "lstr_cli.main", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, start_new_session=True, preexec_fn=restore_signals)


def wait_for(what, process: subprocess.Popen, seconds: float = 400):
    """What a function gives as soon as that is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if found := what():
            return found
        time.sleep(0.02)
    process.kill()
    pytest.fail("nothing came of it: {}\n{}".format(*process.communicate()))


@pytest.mark.slow
def test_videos_of_a_lost_node_are_done_again_elsewhere(lstr, two_nodes, bucket, scenes, weights, tmp_path):
    """Half way one of two nodes is killed; then the rest, a rerun, and a source that was fixed."""
    source, features = place(f"{bucket}/in"), place(f"{bucket}/features")
    for path in scenes.iterdir():
        source.joinpath("deep", path.name).put(path)
    command = on_cluster(two_nodes.address, source, "-o", features, "--weights", f"flow={weights}")
    process = start(*command)
    written = f"{SCRATCH_PREFIX}*/rgb_*/**/.*.npy.tmp-*"
    (lost, *_) = wait_for(lambda: list(two_nodes.scratch.glob(written)), process)
    two_nodes.kill_second()
    out, err = process.communicate(timeout=400)
    assert process.returncode == 3 and out == "", err
    assert "1 node lost" in err and "5 done, 0 kept, 1 failed" in err, err
    assert err.count("failed: ") == 1 and f"{source}/deep/bad.mp4" in err
    assert not {"Traceback", "raylet", "do-not-tell"} & set(err.split()) and "Ray" not in err, err

    name, folder = lost.name.split(".")[1], tmp_path / "features"
    assert lstr("extract", scenes / f"{name}.mp4", "-o", folder, *FAST, "--weights", f"flow={weights}")[0] == 0
    for path in ("rgb_random_resnet50", "flow_custom_bninception"):
        elsewhere = np.load(io.BytesIO(features.joinpath(path, "deep", f"{name}.npy").read()))
        assert np.allclose(elsewhere, np.load(folder / path / f"{name}.npy"), atol=1e-4, rtol=1e-3)
    assert features.joinpath("recipe.json").read() == (folder / "recipe.json").read_bytes()
    lines = {file: features.joinpath(file).read().decode().splitlines() for file in ("videos.jsonl", "failed.jsonl")}
    records = [json.loads(line) for line in lines["videos.jsonl"]]
    assert [record["id"] for record in records] == [f"deep/scene_0{i}" for i in range(5)]
    assert {record["chunks"] for record in records} == {80}
    assert records[0]["source"] == f"{source}/deep/scene_00.mp4"
    assert [json.loads(line)["id"] for line in lines["failed.jsonl"]] == ["deep/bad"]

    source.joinpath("deep", "bad.mp4").put(scenes / "scene_00.mp4")
    code, out, err = lstr(*command)
    assert code == 0 and out == "" and "1 done, 5 kept, 0 failed" in err, err
    assert features.joinpath("failed.jsonl").read() == b""


@pytest.mark.slow
def test_a_folder_that_a_node_does_not_see(two_nodes, scenes, tmp_path):
    """One error that names the node, and no video that is called bad for it."""
    with cluster(two_nodes.address):
        portion = portion_of(nodes().values())
        assert share_cluster(portion, 5).processes == len(nodes()) and share_cluster(portion, 5, 1).processes == 1
        config = ExtractOptions(tmp_path / "features", device="cpu", threads=1)
        with pytest.raises(MissingPathError, match="^On node .*features"):
            list(over_cluster({"scene_00": scenes / "scene_00.mp4"}, config, portion))


@pytest.mark.slow
@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_runs_elsewhere(two_nodes, scenes, tmp_path, sent, code):
    """Nothing half-written stays in a folder that nodes share, and the cluster is free again."""
    folder = tmp_path / "features"
    process = start(*on_cluster(two_nodes.address, scenes, "-o", folder))
    wait_for(lambda: list(folder.glob("records/*.json")), process)
    os.killpg(process.pid, sent)
    _, err = process.communicate(timeout=120)
    assert process.returncode == code and err.count("error: ") == 1 and "Traceback" not in err, err
    deadline = time.monotonic() + 60
    while (left := list(folder.rglob(".*.tmp-*"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    assert len(list(folder.glob("records/*.json"))) < 5


@pytest.mark.long
def test_without_credentials(lstr, bucket, tmp_path, monkeypatch):
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # which may hold some
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    code, out, err = lstr("extract", f"{bucket}/v.mp4", "-o", tmp_path / "features", *FAST)
    s3fs.S3FileSystem.clear_instance_cache()
    assert code == 3 and out == "" and err.count("failed: ") == 1, err
    assert f"{bucket}/v.mp4" in err and "credentials" in err, err


def test_ray_that_cannot_be_used(lstr, tmp_path, monkeypatch):
    """An address without the engine, an address where nobody answers, and no Ray."""
    video = write_video(tmp_path / "v.mp4", range(0, 300, 25))
    words = ("extract", video, "-o", tmp_path / "features", "--set", "ray_address=auto")
    assert_error(lstr(*words), 2, "ray_address")
    for address in ("ray://127.0.0.1:1", "nowhere"):
        assert_error(lstr(*on_cluster(address, video, "-o", tmp_path / "features")), 2, address)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert_error(lstr(*on_cluster("auto", video, "-o", tmp_path / "features")), 2, "pip install 'ray>=")
    assert not (tmp_path / "features").exists()


def test_a_video_s_share_suits_the_nodes():
    cpus = [{"CPU": 16.0}, {"CPU": 8.0, "memory": 1.0}, {"memory": 1.0}]
    gpus = [{"CPU": 16.0, "GPU": 4.0}, {"CPU": 64.0, "GPU": 8.0}, {"CPU": 8.0}]
    assert portion_of(cpus) == (2, 0) and portion_of([{"CPU": 1.0}, {"CPU": 4.0}]) == (1, 0)
    assert portion_of(gpus) == (4, 1) and portion_of(gpus, "cpu") == (2, 0)
    assert portion_of(cpus, None, 8) == (8, 0) and portion_of(gpus, None, 8) == (8, 1)
    assert portion_of([]) == (2, 0) and portion_of(cpus, "cuda") == (2, 1)
    assert portion_of(gpus, "cuda:0") == (4, 1), "a part of a GPU, as for cuda"
    assert [count_room((2, 0), [node]) for node in cpus] == [8, 4, 0]
    assert [count_room((4, 1), [node]) for node in gpus] == [4, 8, 0]
