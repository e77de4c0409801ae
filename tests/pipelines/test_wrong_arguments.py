"""Wrong arguments of the Python API raise a typed error with a hint."""

import numpy as np
import pytest

import lstr
from lstr import streaming
from lstr.errors import LstrError
from lstr.timeline import changed

CLASSES = ("Background", "wave")


@pytest.fixture(scope="module")
def detector(small_set):
    with lstr.load(small_set.checkpoint, device="cpu") as detector:
        yield detector


def assert_refused(call, text: str = "") -> None:
    """The call raises an error with this text and a hint."""
    with pytest.raises(LstrError) as caught:
        call()
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lstr.Thresholds(on=2), "2"),
        (lambda: lstr.Thresholds(on="0.5"), "'0.5'"),
        (lambda: lstr.Thresholds(highest="false"), "'false'"),
        (lambda: changed({}, {"highest": "false"}), "'false'"),
        (lambda: lstr.read_labels(None), "None"),
        (lambda: lstr.Timeline(CLASSES).push(0.25, [0.1]), "(1,)"),
        (lambda: lstr.Timeline(CLASSES).push(0.25, [10, 90]), ""),
        *((lambda name=name: lstr.train("f", "l", "o", **{name: 1}), f"'{name}'") for name in ("epochs", "preste")),
        (lambda: lstr.learn("v", "l", "o", settings="epochs=1"), "'epochs=1'"),
        (lambda: lstr.evaluate("c", "f", "l", false_alarm=1), "'false_alarm'"),
        (lambda: lstr.convert("l", "csv", frame=1), "'frame'"),
        (lambda: lstr.learn("v", "l", "o", seconds=-1), "-1"),
        (lambda: lstr.finetune("v", "l", "o", seconds=0), "0"),
        *((lambda videos=videos: lstr.extract(videos, "o"), "") for videos in ([], {})),
        (lambda: lstr.train(None, "l", "o"), "None"),
        (lambda: lstr.evaluate("c", "f", None), "None"),
        (lambda: lstr.learn([], "l", "o"), ""),
        (lambda: lstr.convert([], "csv"), ""),
        (lambda: lstr.evaluate("c", "f", "l", resamples=-1), "-1"),
        (lambda: lstr.train("f", "l", "o", streams=["colour"]), "'colour'"),
        (lambda: lstr.finetune("v", "l", "o", at_once=-1), "-1"),
        (lambda: lstr.learn("v", "l", "o", algorithm="tvl2"), "'tvl2'"),
        (lambda: lstr.NetworkOptions(algorithm="tvl2"), "'tvl2'"),
        (lambda: lstr.NetworkOptions(flow_threads=-1), "-1"),
        *((lambda n=n: lstr.Limits(**{n: -1}), f"{n} is -1") for n in ("start", "duration", "max_chunks")),
        (lambda: lstr.load(None), ""),
        *((lambda output=job: getattr(lstr, output)("v", "l", None), "None") for job in ("train", "finetune", "learn")),
        (lambda: lstr.extract("v", None), "None"),
    ],
)
def test_calls_without_a_model(call, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(call, text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine", "spark"),
        ("precision", "int8"),
        ("threads", -1),
        ("threads", "2"),
        ("workers", 0),
        ("allow_damaged", "no"),
    ],
)
def test_options_of_extract(tmp_path, name, value):
    (tmp_path / "a.mp4").touch()
    assert_refused(lambda: lstr.extract(tmp_path, tmp_path / "o", **{name: value}), name)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("device", [7, 1.5, ["cpu"], "abacus"])
def test_devices(small_set, device):
    assert_refused(lambda: lstr.load(small_set.checkpoint, device=device))


@pytest.mark.parametrize("thresholds", [0.5, "0.5", {"on": "x"}, {"wave": 0.5}])
def test_thresholds(detector, small_set, thresholds):
    assert_refused(lambda: list(detector.detect(small_set.features, thresholds=thresholds)))


def test_numbers_of_streams(detector):
    assert_refused(lambda: lstr.create(detector), "Detector")
    assert_refused(lambda: list(lstr.detect(None, detector)), "None")
    assert_refused(lambda: lstr.create(detector.model, n_streams=-1), "-1")
    state = lstr.create(detector.model, n_streams=2)
    for wrong in (5, -1):
        assert_refused(lambda: streaming.reset(state, [wrong]), str(wrong))  # noqa: B023 - called at once


def test_chunks_out_of_order():
    timeline = lstr.Timeline(CLASSES)
    timeline.push(0.25, np.array([0.1, 0.9]))
    timeline.push(2.0, [0.1, 0.9])  # after an interruption of a camera
    assert_refused(lambda: timeline.push(1.0, [0.1, 0.9]))
    timeline.finish(2.0)
    assert timeline.push(0.25, [0.1, 0.9]), "finish() resets the timeline"
