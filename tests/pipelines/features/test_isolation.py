"""Whatever one video raises, at whatever stage, is that video's failure; the others get their features."""

import errno
import json
import pickle
import shutil

import pytest

from lstr import __version__
from lstr.errors import ExhaustedError, OutputError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.twostream import build_twostream, calibration_of
from lstr.extractors.video.inputs import find_videos
from lstr.pipelines.failures import read_failures
from lstr.pipelines.features import engines as ray_cluster
from lstr.pipelines.features.engines import over_processes
from lstr.pipelines.features.extract import plan
from lstr.pipelines.features.extraction import ExtractOptions, Outcome, resume
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import create_output
from lstr.pipelines.sampled_inputs import sampled_inputs
from tests.support.extraction import extracted, returned
from tests.support.finetuned import SMALL
from tests.support.injected import STAGES, inject, write_bad
from tests.support.videos import write_video


@pytest.fixture(scope="module")
def twostream():
    return build_twostream(SMALL, WeightSources(), "cpu", "float32")


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    write_bad(folder / "bad.mp4")
    write_video(folder / "good.mp4", range(0, 600, 20))
    return find_videos([folder])


@pytest.fixture
def extract(twostream, videos, tmp_path):
    """Extract all videos; outcomes by id, and the folder."""
    folder = create_output(tmp_path / "features", twostream.recipe, {})

    def run():
        with FlowWorkers(1, SMALL.algorithm) as workers:
            return {outcome.id: outcome for outcome in extracted(videos, folder, twostream, workers)}, folder

    return run


@pytest.mark.parametrize("stage", STAGES)
def test_an_unforeseen_error_at_any_stage_is_one_videos_failure(extract, videos, monkeypatch, stage):
    with monkeypatch.context() as patch:
        inject(patch.setattr, stage, AttributeError("'NoneType' object has no attribute 'width'\nand more"))
        outcomes, folder = extract()
    assert {i: outcome.state for i, outcome in outcomes.items()} == {"bad": "failed", "good": "done"}
    log = folder.path / "logs" / "bad.log"
    assert "AttributeError: 'NoneType' object has no attribute 'width')." in outcomes["bad"].reason  # in one line
    assert str(videos["bad"]) in outcomes["bad"].reason and str(log) in outcomes["bad"].hint
    words = {"probe": "looking into it", "decode": "decoding", "flow": "flow", "network": "network", "write": "writing"}
    assert words[stage] in outcomes["bad"].reason
    text = log.read_text()
    assert text.startswith("Traceback") and ("in raising" in text or "in cut" in text)
    (line,) = map(json.loads, (folder.path / "failed.jsonl").read_text().splitlines())
    assert line == {"id": "bad", "source": str(videos["bad"]), "reason": outcomes["bad"].reason, "log": "logs/bad.log"}
    assert open_features(folder.path).ids() == ["good"]
    if stage == "decode":  # once it is well again, nothing is left of it
        assert {o.state for o in extract()[0].values()} == {"kept", "done"}
        assert not log.exists() and (folder.path / "failed.jsonl").read_text() == ""


@pytest.mark.long
def test_a_disk_of_the_source_that_fails_is_no_lost_output(extract, monkeypatch):
    inject(monkeypatch.setattr, "decode", OSError(errno.EIO, "Input/output error"))
    outcomes, _ = extract()
    assert {i: outcome.state for i, outcome in outcomes.items()} == {"bad": "failed", "good": "done"}


@pytest.mark.parametrize(
    ("stage", "error", "raised"),
    [
        ("write", OSError(errno.ENOSPC, "No space left on device"), OutputError),
        ("decode", OSError(errno.ENOSPC, "No space left on device"), OutputError),
        ("flow", MemoryError(), ExhaustedError),
        ("network", RuntimeError("CUDA error: an illegal memory access was encountered"), ExhaustedError),
        ("decode", KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_full_disk_or_memory_ends_the_run(extract, monkeypatch, stage, error, raised):
    inject(monkeypatch.setattr, stage, error)
    with pytest.raises(raised) as caught:
        extract()
    assert raised is KeyboardInterrupt or (caught.value.hint and "\n" not in str(caught.value))


def test_a_codec_that_ffmpeg_does_not_know(videos, twostream, tmp_path):
    """A Dolby Vision AV1 file: its video stream has no decoder, which PyAV gives as None."""
    content = shutil.copy(videos["good"], tmp_path / "dolby.mp4").read_bytes()
    at = content.index(b"avc1", content.index(b"stsd"))
    (tmp_path / "dolby.mp4").write_bytes(content[:at] + b"dav1" + content[at + 4 :])
    folder = create_output(tmp_path / "features", twostream.recipe, {})
    with FlowWorkers(1, SMALL.algorithm) as workers:
        both = {"dolby": tmp_path / "dolby.mp4", "good": videos["good"]}
        outcomes = extracted(both, folder, twostream, workers)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    assert "codec" in outcomes[0].reason and "ffmpeg" in outcomes[0].hint
    assert not (folder.path / "logs").exists(), "it was foreseen"


@pytest.mark.slow
def test_in_worker_processes(twostream, videos, tmp_path, monkeypatch):
    """The traceback comes from the process that met the error, and is in the log beside the features."""
    folder = create_output(tmp_path / "features", twostream.recipe, calibration_of(twostream))
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins\nfrom tests.support.injected import inject\n"
        "inject(builtins.setattr, 'network', ZeroDivisionError('in a worker'))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    config = ExtractOptions(folder.path, device="cpu", threads=1)
    events = list(resume(videos, folder, lambda to_do: over_processes(to_do, config, 1)))
    outcomes = {event.id: event for event in events if isinstance(event, Outcome)}
    assert {i: outcome.state for i, outcome in outcomes.items()} == {"bad": "failed", "good": "done"}
    assert "ZeroDivisionError: in a worker" in outcomes["bad"].reason
    assert "in raising" in (folder.path / "logs" / "bad.log").read_text()


@pytest.mark.long
def test_in_a_task_of_ray(twostream, videos, tmp_path, monkeypatch):
    """What a task returns says what failed, with the traceback, and can be sent."""
    folder = create_output(tmp_path / "features", twostream.recipe, calibration_of(twostream))
    config = ExtractOptions(folder.path, device="cpu", threads=1)
    inject(monkeypatch.setattr, "flow", ZeroDivisionError("on a node"))
    monkeypatch.setattr(ray_cluster, "_worker", None)
    try:
        outcomes = [ray_cluster._extract(i, path, config, {}, __version__) for i, path in videos.items()]
    finally:
        if ray_cluster._worker:
            ray_cluster._worker[2].close()
    bad, good = pickle.loads(pickle.dumps(outcomes))
    assert (bad.state, good.state) == ("failed", "done") and "on a node" in bad.reason and "raising" in bad.traceback
    assert list(resume({"bad": videos["bad"]}, folder, lambda _: iter([bad])))[0].hint.startswith(str(folder.path))


def test_a_plan_names_a_video_that_cannot_be_looked_at(videos, tmp_path, monkeypatch):
    inject(monkeypatch.setattr, "probe", KeyError("codec"))
    looked = plan(videos, ExtractOptions(tmp_path / "features", device="cpu", recipe=SMALL)).videos
    assert [video.state for video in looked] == ["unreadable", "to do"] and "KeyError: 'codec'" in looked[0].reason


@pytest.mark.long
def test_calibration_leaves_it_out(videos, monkeypatch):
    twostream = build_twostream(SMALL.narrowed(("flow",)), WeightSources(), "cpu", "float32")
    inject(monkeypatch.setattr, "flow", KeyError("codec"))
    with FlowWorkers(1, SMALL.algorithm) as workers:
        images = returned(sampled_inputs(twostream, videos, workers, 8, "calibration"))
    assert 0 < len(images["flow"]) < 8


def test_garbage_in_failed_jsonl_is_no_obstacle(extract, videos):
    _, folder = extract()
    lines = ['{"id": 7}', "[1]", '"x"', "null", "{", "9" * 5000, '{"id": "gone", "reason": "it was"}', "[" * 10**5]
    (folder.path / "failed.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\n")
    assert [failure["id"] for failure in read_failures(folder.path)] == ["gone"]
    assert {outcome.state for outcome in extract()[0].values()} == {"kept"}
    assert json.loads((folder.path / "failed.jsonl").read_text()) == {"id": "gone", "reason": "it was"}
