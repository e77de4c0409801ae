"""An error that one video raises, at whatever stage, is that video's failure; the others get their features."""

import errno
import json
import shutil
import threading

import pytest

from lstr.errors import ExhaustedError, OutputError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.inputs import find_videos
from lstr.files.content import append_jsonl, read_jsonl
from lstr.pipelines.failures import read_failures
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

    def run(at_once=1):
        with FlowWorkers(1, SMALL.algorithm) as workers:
            outcomes = extracted(videos, folder, twostream, workers, at_once=at_once)
            return {outcome.id: outcome for outcome in outcomes}, folder

    return run


@pytest.mark.parametrize("stage", STAGES)
def test_an_unforeseen_error_at_any_stage_is_one_videos_failure(extract, videos, monkeypatch, stage):
    with monkeypatch.context() as patch:
        inject(patch.setattr, stage, AttributeError("'NoneType' object has no attribute 'width'\nand more"))
        outcomes, folder = extract()
    assert {i: outcome.state for i, outcome in outcomes.items()} == {"bad": "failed", "good": "done"}
    bad, log = outcomes["bad"], folder.path / "logs" / "bad.log"
    assert "AttributeError" in bad.reason and "\n" not in bad.reason
    assert str(videos["bad"]) in bad.reason and str(log) in bad.hint
    assert log.read_text().startswith("Traceback")
    (line,) = read_jsonl(folder.path / "failed.jsonl")
    assert line == {"id": "bad", "source": str(videos["bad"]), "reason": bad.reason, "log": "logs/bad.log"}
    assert open_features(folder.path).ids() == ["good"]
    if stage == "decode":  # the next run, without the error, removes the failure
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
    """With several videos at once too, and none of its threads is left."""
    inject(monkeypatch.setattr, stage, error)
    with pytest.raises(raised) as caught:
        extract(at_once=2)
    assert raised is KeyboardInterrupt or (caught.value.hint and "\n" not in str(caught.value))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("merged")]


def test_a_codec_that_ffmpeg_does_not_know(videos, twostream, tmp_path):
    """A Dolby Vision AV1 file: its video stream has no decoder, which PyAV gives as None."""
    content = shutil.copy(videos["good"], tmp_path / "dolby.mp4").read_bytes()
    at = content.index(b"avc1", content.index(b"stsd"))
    (tmp_path / "dolby.mp4").write_bytes(content[:at] + b"dav1" + content[at + 4 :])
    folder = create_output(tmp_path / "features", twostream.recipe, {})
    with FlowWorkers(1, SMALL.algorithm) as workers:
        both = {"dolby": tmp_path / "dolby.mp4", "good": videos["good"]}
        outcomes = extracted(both, folder, twostream, workers)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"] and outcomes[0].hint
    assert not (folder.path / "logs").exists(), "an expected error needs no traceback"


@pytest.mark.long
def test_calibration_skips_it(videos, monkeypatch):
    twostream = build_twostream(SMALL.narrowed(("flow",)), WeightSources(), "cpu", "float32")
    inject(monkeypatch.setattr, "flow", KeyError("codec"))
    with FlowWorkers(1, SMALL.algorithm) as workers:
        images = returned(sampled_inputs(twostream, videos, workers, 8, "calibration"))
    assert 0 < len(images["flow"]) < 8


def test_garbage_in_failed_jsonl_is_no_obstacle(extract, videos):
    _, folder = extract()
    path = folder.path / "failed.jsonl"
    lines = ['{"id": 7}', "[1]", '"x"', "null", "{", "9" * 5000, '{"id": "gone", "reason": "it was"}', "[" * 10**5]
    path.write_bytes("\n".join(lines).encode() + b'\n\xff\n{"id": "cut by a ki')
    assert [failure["id"] for failure in read_failures(folder.path)] == ["gone"]
    append_jsonl(path, {"id": "ü \udcff", "reason": "it broke"})
    assert [failure["id"] for failure in read_failures(folder.path)] == ["gone", "ü \udcff"]
    assert {outcome.state for outcome in extract()[0].values()} == {"kept"}
    assert json.loads(path.read_text().splitlines()[0]) == {"id": "gone", "reason": "it was"}
