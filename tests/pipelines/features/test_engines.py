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
from dataclasses import replace
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
from tests.support.extraction import assert_same_features
from tests.support.injected import write_bad
from tests.support.processes import restore_signals
from tests.support.videos import write_video
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture
def options(small_set, tmp_path) -> ExtractOptions:
    """Options for a folder with the recipe and the calibration of the small set, without videos."""
    folder = tmp_path / "features"
    folder.mkdir()
    for name in ("recipe.json", "calibration.pt"):
        shutil.copy(small_set.features / name, folder)
    return ExtractOptions(folder, device="cpu", threads=1)


@pytest.fixture
def workers(monkeypatch) -> list[WorkerProcess]:
    workers = []
    init = WorkerProcess.__init__
    monkeypatch.setattr(WorkerProcess, "__init__", lambda self, *args: (workers.append(self), init(self, *args))[1])
    return workers


@pytest.mark.slow
def test_the_video_of_a_killed_process_is_tried_twice(small_set, options, workers):
    """The process of scene_00 is killed twice, so it fails; scene_01's is killed once."""
    killed, states, output = [], {}, options.output
    videos = {f"scene_0{i}": small_set.videos / f"scene_0{i}.mp4" for i in range(3)}
    for event in resume(videos, open_output(output), lambda to_do: over_processes(to_do, options, 2)):
        if isinstance(event, Outcome):
            states[event.id] = event.state
        if isinstance(event, Progress) and killed.count(event.what) < {"scene_00": 2, "scene_01": 1}.get(event.what, 0):
            killed.append(event.what)
            (worker,) = (w for w in workers if w.at[0] == event.what and w.process.poll() is None)
            worker.process.kill()
    assert sorted(killed) == ["scene_00", "scene_00", "scene_01"]
    assert states == {"scene_00": "failed", "scene_01": "done", "scene_02": "done"}
    (failure,) = read_jsonl(output / "failed.jsonl")
    assert failure["id"] == "scene_00" and "SIGKILL" in failure["reason"]
    folder, expected = open_features(output), open_features(small_set.features)
    assert folder.ids() == ["scene_01", "scene_02"]
    for video_id in folder.ids():
        assert_same_features(folder, expected, video_id)
    assert all(worker.process.poll() is not None for worker in workers) and not leftovers(output)


@pytest.mark.slow
def test_the_traceback_of_a_worker_is_logged(options, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins\nfrom tests.support.injected import inject\n"
        "inject(builtins.setattr, 'network', ZeroDivisionError('in a worker'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    videos = find_videos([write_bad(tmp_path / "bad.mp4")])
    events = list(resume(videos, open_output(options.output), lambda to_do: over_processes(to_do, options, 1)))
    (failure,) = (event for event in events if isinstance(event, Outcome))
    assert failure.state == "failed" and "ZeroDivisionError: in a worker" in failure.reason
    assert "in raising" in (options.output / "logs" / "bad.log").read_text()


@pytest.mark.long
def test_a_worker_that_cannot_load_its_networks_ends_the_job(small_set, options, workers):
    recipe = open_features(options.output).recipe.to_json()
    write_text(options.output / "recipe.json", recipe.replace('"weights":"random"', '"weights":"kinetics"'))
    with pytest.raises(WeightsError):
        list(over_processes({"scene_00": small_set.videos / "scene_00.mp4"}, options, 2))
    assert workers[0].process.poll() is not None


def test_processes_that_die_at_their_start_end_the_job(options, monkeypatch):
    devices = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    monkeypatch.setattr(engines, "STARTS", 5)
    popen = subprocess.Popen

    def start_process(*args, env, **kwargs):
        devices.append(env["CUDA_VISIBLE_DEVICES"])
        return popen(*args, env=env, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", start_process)
    videos = {str(i): Path(f"{i}.mp4") for i in range(5)}
    with pytest.raises(ExtractorError, match="exit code 1"):
        list(over_processes(videos, replace(options, device="cuda"), 5, gpus=2))
    assert devices[:5] == ["GPU-b", "GPU-a", "GPU-b", "GPU-a", "GPU-b"]


STORE = 100 * 2**20  # bytes of shared memory per node, enough for one weights file
FAST = ("--recipe", "fast", "--set", "recipe.flow_algorithm=dis")


@pytest.fixture(scope="module", autouse=True)
def environment():
    """Environment variables of this module, without the address of another Ray cluster on this machine."""
    folder = Path(tempfile.mkdtemp(prefix="lstr-ray-", dir="/tmp"))  # a short path, because Ray has sockets below it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))  # also has the address of this machine's cluster
        patch.delenv("RAY_ADDRESS", raising=False)
        yield patch
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def bucket(environment):
    """The URL of an empty bucket of an S3 server; its credentials are environment variables."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:{1}".format(*server.get_host_and_port()))
    environment.setenv("AWS_ACCESS_KEY_ID", "somebody")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
    environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
    place("s3://videos/x").system[0].mkdir("videos")
    yield "s3://videos"
    server.stop()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> Path:
    """A folder of five videos and a text file; the extraction of a video takes longer than the death of a node."""
    root = tmp_path_factory.mktemp("scenes")
    render_scenes(root, SceneConfig(n_videos=5, n_testing=1, seconds=20.0, width=96, height=64))
    (root / "videos" / "bad.mp4").write_text("not a video\n" * 100)
    return root / "videos"


@pytest.fixture(scope="module")
def two_nodes(environment, bucket):
    """A cluster on this machine; `kill_second` kills its second node, which writes its files to `scratch`."""
    from ray.cluster_utils import Cluster

    scratch = Path(os.environ["RAY_TMPDIR"]) / "second"
    scratch.mkdir()
    environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 1, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(scratch))
            second = cluster.add_node(**node)
        kill_second = partial(cluster.remove_node, second, allow_graceful=False)
        environment.setenv("RAY_ADDRESS", cluster.address)
        yield SimpleNamespace(scratch=scratch, kill_second=kill_second)
    finally:
        cluster.shutdown()


def ray_command(*arguments) -> list[str]:
    return ["extract", *map(str, arguments), *FAST, "--set", "engine=ray"]


def start(arguments: list[str]) -> subprocess.Popen:
    """Run a command in its own process, which does not ignore Ctrl-C."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "lstr_cli", *arguments]
    return subprocess.Popen(command, **pipes, start_new_session=True, preexec_fn=restore_signals)


@pytest.mark.slow
def test_videos_of_a_lost_node_are_extracted_on_another(lstr, two_nodes, bucket, scenes, tmp_path):
    """One of two nodes is killed; then the command runs again, after a faulty source was replaced."""
    source, features = place(f"{bucket}/in"), place(f"{bucket}/features")
    for path in scenes.iterdir():
        source.joinpath("deep", path.name).put(path)
    backbone, weights = build_backbone("bninception"), tmp_path / "flow.pth"
    randomise(backbone, 5)
    torch.save(backbone.state_dict(), weights)
    command = ray_command(source, "-o", features, "--weights", f"flow={weights}")
    process = start(command)
    temporary = f"{SCRATCH_PREFIX}*/rgb_*/**/.*.npy.tmp-*"
    wait_until(lambda: list(two_nodes.scratch.glob(temporary)) or process.poll() is not None)
    (lost, *_) = two_nodes.scratch.glob(temporary)
    two_nodes.kill_second()
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3 and out == "", err
    assert "1 node lost" in err and "5 done, 0 kept, 1 failed" in err, err
    assert err.count("failed: ") == 1 and f"{source}/deep/bad.mp4" in err
    assert not {"Traceback", "raylet", "secret-key"} & set(err.split()) and "Ray" not in err, err

    name, folder = lost.name.split(".")[1], tmp_path / "features"
    assert lstr("extract", scenes / f"{name}.mp4", "-o", folder, *FAST, "--weights", f"flow={weights}")[0] == 0
    for path in ("rgb_random_resnet50", "flow_custom_bninception"):
        uploaded = np.load(io.BytesIO(features.joinpath(path, "deep", f"{name}.npy").read()))
        assert np.allclose(uploaded, np.load(folder / path / f"{name}.npy"), atol=1e-4, rtol=1e-3)
    assert features.joinpath("recipe.json").read() == (folder / "recipe.json").read_bytes()
    records = [json.loads(line) for line in features.joinpath("videos.jsonl").read().splitlines()]
    assert [record["id"] for record in records] == [f"deep/scene_0{i}" for i in range(5)]
    assert {record["chunks"] for record in records} == {80}
    assert records[0]["source"] == f"{source}/deep/scene_00.mp4"
    (failure,) = features.joinpath("failed.jsonl").read().splitlines()
    assert json.loads(failure)["id"] == "deep/bad"

    source.joinpath("deep", "bad.mp4").put(scenes / "scene_00.mp4")
    code, out, err = lstr(*command)
    assert code == 0 and out == "" and "1 done, 5 kept, 0 failed" in err, err
    assert features.joinpath("failed.jsonl").read() == b""


@pytest.mark.slow
def test_a_folder_that_is_missing_on_a_node_ends_the_job(two_nodes, scenes, tmp_path):
    with cluster():
        portion = portion_of(nodes().values())
        assert share_cluster(portion, 5)[0] == len(nodes()) and share_cluster(portion, 5, 1)[0] == 1
        options = ExtractOptions(tmp_path / "features", device="cpu", threads=1)
        with pytest.raises(MissingPathError, match="^On node .*features"):
            list(over_cluster({"scene_00": scenes / "scene_00.mp4"}, options, portion))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_tasks_on_the_nodes(two_nodes, scenes, tmp_path, number, code):
    folder = tmp_path / "features"
    process = start(ray_command(scenes, "-o", folder))
    wait_until(lambda: list(folder.glob("records/*.json")) or process.poll() is not None)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=TIMEOUT_S)
    if "bug in Ray" in err:
        pytest.skip("Ray aborts if a task ends while it is cancelled")
    assert process.returncode == code and err.count("error: ") == 1 and "Traceback" not in err, err
    # a task that does not react is killed, and leaves a temporary file for the next run to remove
    wait_until(lambda: len([*folder.rglob(".*.tmp-*")]) == len(leftovers(folder)))
    assert len(list(folder.glob("records/*.json"))) < 5


@pytest.mark.long
def test_missing_credentials_are_reported(lstr, bucket, tmp_path, monkeypatch):
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # without a file of credentials
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    result = lstr("extract", f"{bucket}/v.mp4", "-o", tmp_path / "features", *FAST, "--set", "runtime=torch")
    s3fs.S3FileSystem.clear_instance_cache()
    assert_error(result, 3, f"{bucket}/v.mp4", "credentials")


def test_a_ray_cluster_that_cannot_be_used_is_reported(lstr, tmp_path, monkeypatch):
    video = write_video(tmp_path / "v.mp4", range(0, 300, 25))
    words = (video, "-o", tmp_path / "features")
    for address in ("ray://127.0.0.1:1", "nowhere"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert_error(lstr(*ray_command(*words)), 2, address)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert_error(lstr(*ray_command(*words)), 2, "pip install 'ray>=")
    assert not (tmp_path / "features").exists()


def test_the_share_of_a_video_depends_on_the_nodes():
    cpus = [{"CPU": 16.0}, {"CPU": 8.0, "memory": 1.0}, {"memory": 1.0}]
    gpus = [{"CPU": 16.0, "GPU": 4.0}, {"CPU": 64.0, "GPU": 8.0}, {"CPU": 8.0}]
    assert portion_of(cpus) == (2, 0) and portion_of([{"CPU": 1.0}, {"CPU": 4.0}]) == (1, 0)
    assert portion_of(gpus) == (4, 1) and portion_of(gpus, "cpu") == (2, 0)
    assert portion_of(cpus, None, 8) == (8, 0) and portion_of(gpus, None, 8) == (8, 1)
    assert portion_of([]) == (2, 0) and portion_of(cpus, "cuda") == (2, 1) and portion_of(gpus, "cuda:0") == (4, 1)
    assert [count_room((2, 0), [node]) for node in cpus] == [8, 4, 0]
    assert [count_room((4, 1), [node]) for node in gpus] == [4, 8, 0]
