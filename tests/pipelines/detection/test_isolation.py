"""Whatever one of several sources raises, recorded or live, is its failure alone; the others are decided."""

import json
from contextlib import contextmanager, nullcontext

import pytest

from lstr.errors import ExhaustedError, UnforeseenError
from lstr.extractors.video.inputs import Input
from lstr.extractors.video.live import LiveReader
from lstr.pipelines.detection import model
from lstr.pipelines.detection.decision import Ended
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.model import load_checkpoint, open_networks
from lstr.pipelines.detection.options import Limits, NetworkOptions, OutputOptions
from lstr.pipelines.detection.outputs import TimelineFiles
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.progress import Failed
from tests.support.detections import run_live
from tests.support.injected import inject, write_bad
from tests.support.videos import write_video

ERROR = AttributeError("'NoneType' object has no attribute 'width'")
FILES = ("json", "jsonl")


@pytest.fixture(scope="module")
def loaded(small_set):
    return load_checkpoint(small_set.checkpoint)


@pytest.fixture(scope="module")
def networks(loaded):
    with open_networks(loaded, NetworkOptions(flow_threads=1)) as made:
        yield made


@pytest.fixture
def detect(loaded, networks, tmp_path, monkeypatch):
    """Detect on the videos bad and good, with the same networks each time: the events."""

    @contextmanager
    def opened(*_):
        yield networks

    monkeypatch.setattr(model, "open_networks", opened)
    write_bad(tmp_path / "bad.mp4")
    write_video(tmp_path / "good.mp4", range(0, 600, 20))

    def run(keep_going: bool = True) -> list:
        output = OutputOptions(tmp_path / "out", FILES)
        options = DetectOptions(loaded, limits=Limits(max_chunks=2), output=output, keep_going=keep_going)
        return list(detect_sources([tmp_path / "bad.mp4", tmp_path / "good.mp4"], options))

    return run


def refuse_writing(patch, error: Exception) -> None:
    """Of what comes of `bad`."""
    take = TimelineFiles.take

    def taken(self, decision):
        if self._source.id == "bad":
            raise error
        take(self, decision)

    patch.setattr(TimelineFiles, "take", taken)


def break_source(patch, stage: str, error: Exception) -> None:
    refuse_writing(patch, error) if stage == "write" else inject(patch.setattr, stage, error)


@pytest.mark.parametrize("stage", ["probe", "network", "write"])
def test_an_unforeseen_error_is_one_videos_failure(detect, tmp_path, monkeypatch, stage):
    with monkeypatch.context() as patch:
        break_source(patch, stage, ERROR)
        events = detect()
    assert [event.id for event in events if isinstance(event, Ended)] == ["good"]
    (failure,) = (event for event in events if isinstance(event, Failed))
    log = tmp_path / "out" / "logs" / "bad.log"
    assert failure.id == "bad" and str(ERROR) in failure.reason and str(log) in failure.hint
    assert log.read_text().startswith("Traceback") and events[-1].result.failures == (failure,)
    (line,) = map(json.loads, (tmp_path / "out" / "failed.jsonl").read_text().splitlines())
    assert line["id"] == "bad" and line["reason"] == failure.reason
    if stage == "probe":  # once it is well again, nothing is left of it
        assert not [event for event in detect() if isinstance(event, Failed)]
        assert not log.exists() and (tmp_path / "out" / "failed.jsonl").read_text() == ""


@pytest.mark.long
def test_memory_and_a_caller_who_does_not_keep_going_end_it(detect, monkeypatch):
    with monkeypatch.context() as patch:
        break_source(patch, "network", MemoryError())
        with pytest.raises(ExhaustedError):
            detect()
    break_source(monkeypatch, "network", ERROR)
    with pytest.raises(AttributeError):
        detect(keep_going=False)


def test_a_damaged_array_is_one_videos_failure(loaded, small_set, tmp_path):
    """Stored features: the others of the folder are decided."""
    for path in small_set.features.rglob("*"):
        if path.is_file():
            copy = tmp_path / "features" / path.relative_to(small_set.features)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes()[: 200 if path.stem == "scene_01" and path.suffix == ".npy" else None])
    events = list(detect_sources([tmp_path / "features"], DetectOptions(loaded, limits=Limits(max_chunks=1))))
    assert [event.id for event in events if isinstance(event, Ended)] == ["scene_00", "scene_02", "scene_03"]
    (failure,) = (event for event in events if isinstance(event, Failed))
    assert failure.id == "scene_01" and "scene_01.npy" in failure.reason


def watch(loaded, networks, tmp_path, names=("bad", "good")) -> list:
    """Two chunks of FFmpeg's test pictures, as if from cameras."""
    sizes = {"bad": "80x48", "good": "96x64"}
    given = [Input(name, f"testsrc=size={sizes[name]}:rate=30", demuxer="lavfi") for name in names]
    chosen = {"limits": Limits(max_chunks=2), "output": OutputOptions(tmp_path, FILES), "log": FailureLog(tmp_path)}
    return list(run_live(given, loaded, networks, **chosen))


def break_camera(patch, stage: str, error: Exception) -> None:
    """As `break_source`, of a source that is live."""
    if stage == "decode":
        timed = LiveReader._timed

        def cut(self, frames):
            for frame in timed(self, frames):
                if self.input.id == "bad":
                    raise error
                yield frame

        patch.setattr(LiveReader, "_timed", cut)
    elif stage == "model":
        from lstr import streaming

        step = streaming.step_streams

        def refused(model, state, streams, rgb, flow):
            if 0 in streams:  # that of `bad`
                raise error
            return step(model, state, streams, rgb, flow)

        patch.setattr(streaming, "step_streams", refused)
    else:
        break_source(patch, stage, error)


@pytest.mark.long
@pytest.mark.parametrize("stage", ["decode", "model", "write"])
def test_an_unforeseen_error_is_one_cameras_failure(loaded, networks, tmp_path, monkeypatch, stage):
    break_camera(monkeypatch, stage, ERROR)
    events = watch(loaded, networks, tmp_path)
    (failure,) = (event for event in events if isinstance(event, Failed))
    assert failure.id == "bad" and str(ERROR) in failure.reason and "bad.log" in failure.hint
    good = next(event for event in events if isinstance(event, Ended) and event.id == "good")
    assert good.timeline["decided"] == 2 and "error" not in good.timeline["live"]
    assert (tmp_path / "logs" / "bad.log").read_text().startswith("Traceback")
    assert [json.loads(line)["id"] for line in (tmp_path / "failed.jsonl").read_text().splitlines()] == ["bad"]


def test_the_only_camera_raises_what_ended_it(loaded, networks, tmp_path, monkeypatch):
    break_camera(monkeypatch, "network", ERROR)
    given = [Input("bad", "testsrc=size=80x48:rate=30", demuxer="lavfi")]
    monkeypatch.setattr("lstr.pipelines.detection.detect.by_kind", lambda sources, names: ([], given))
    monkeypatch.setattr(model, "open_networks", lambda *_: nullcontext(networks))
    options = DetectOptions(loaded, limits=Limits(max_chunks=2), output=OutputOptions(tmp_path, FILES))
    with pytest.raises(UnforeseenError, match="'NoneType'") as raised:
        list(detect_sources(["bad"], options))
    assert raised.value.exit_code == 3 and "bad.log" in raised.value.hint and raised.value.__cause__ is ERROR


def test_memory_ends_all_cameras(loaded, networks, tmp_path, monkeypatch):
    break_camera(monkeypatch, "network", MemoryError())
    with pytest.raises(ExhaustedError):
        watch(loaded, networks, tmp_path)
