"""What a program may hand over by mistake: a typed error with a hint, never a raw one."""

import warnings

import numpy as np
import pytest

import lstr
from lstr import streaming
from lstr.errors import LstrError
from lstr.timeline import changed

CLASSES = ("Background", "wave")


@pytest.fixture(scope="module")
def detector(small_set):
    with lstr.load(small_set.checkpoint, device="cpu") as made:
        yield made


def refused(call) -> tuple[str, str]:
    """The sentence and the hint."""
    with pytest.raises(LstrError) as caught:
        call()
    assert caught.value.hint and caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    return str(caught.value), caught.value.hint


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lstr.Thresholds(on=2), "threshold 2 is out of range"),
        (lambda: lstr.Thresholds(on="0.5"), "on is '0.5', which is not a number"),
        (lambda: lstr.Thresholds(highest="false"), "highest is 'false', which is not true or false"),
        (lambda: changed({}, {"highest": "false"}), "highest is 'false'"),
        (lambda: lstr.read_labels(None), "None is not the path of a label file"),
        (lambda: lstr.Timeline(CLASSES).push(0.25, [0.1]), "scores of 2 classes are of shape (1,)"),
        (lambda: lstr.Timeline(CLASSES).push(0.25, [10, 90]), "not from 0 to 1"),
        (lambda: lstr.train("f", "l", "o", epochs=1), "lstr.train has no argument 'epochs'"),
        (lambda: lstr.train("f", "l", "o", preste="small"), "no argument 'preste'"),
        (lambda: lstr.learn("v", "l", "o", settings="epochs=1"), "settings are 'epochs=1'"),
        (lambda: lstr.evaluate("c", "f", "l", false_alarm=1), "no argument 'false_alarm'"),
        (lambda: lstr.convert("l", "csv", frame=1), "no argument 'frame'"),
        (lambda: lstr.learn("v", "l", "o", seconds=-1), "time limit is -1 s"),
        (lambda: lstr.finetune("v", "l", "o", seconds=0), "time limit is 0 s"),
        (lambda: lstr.extract([], "o"), "There are no videos"),
        (lambda: lstr.extract({}, "o"), "There are no videos"),
        (lambda: lstr.train([], "l", "o"), "There are no features"),
        (lambda: lstr.evaluate([], "f", "l"), "There are no checkpoints"),
        (lambda: lstr.learn([], "l", "o"), "There are no videos"),
        (lambda: lstr.convert([], "csv"), "There are no sources"),
        (lambda: lstr.evaluate("c", "f", "l", resamples=-1), "resamples is -1"),
        (lambda: lstr.train("f", "l", "o", streams=["colour"]), "Unknown stream: 'colour'"),
        (lambda: lstr.finetune("v", "l", "o", at_once=-1), "at_once is -1"),
        (lambda: lstr.learn("v", "l", "o", algorithm="tvl2"), "algorithm is 'tvl2'"),
        (lambda: lstr.NetworkOptions(algorithm="tvl2"), "algorithm is 'tvl2'"),
        (lambda: lstr.NetworkOptions(flow_threads=-1), "flow_threads is -1"),
        (lambda: lstr.Limits(max_chunks=-1), "max_chunks is -1"),
    ],
)
def test_without_a_model(call, words):
    assert words in refused(call)[0]


@pytest.mark.parametrize(
    "options",
    [
        {"engine": "spark"},
        {"flow_backend": "bogus"},
        {"precision": "int8"},
        {"threads": -1},
        {"threads": "2"},
        {"workers": 0},
        {"allow_damaged": "no"},
    ],
    ids=str,
)
def test_options_of_an_extraction(tmp_path, options):
    """Some were taken for the default without a word."""
    (tmp_path / "a.mp4").touch()
    ((name, value),) = options.items()
    assert refused(lambda: lstr.extract(tmp_path, tmp_path / "o", **options))[0] == f"{name} is {value!r}."
    assert not (tmp_path / "o").exists()
    words = refused(lambda: lstr.extract(tmp_path, tmp_path / "o", ray_address="a:1"))
    assert words == ("ray_address is for the engine ray.", "add --set engine=ray, or leave out ray_address.")


@pytest.mark.parametrize("device", [7, 1.5, ["cpu"]])
def test_a_device_is_a_name(small_set, device):
    assert "device" in refused(lambda: lstr.load(small_set.checkpoint, device=device))[0]


@pytest.mark.parametrize("thresholds", [0.5, "0.5", {"on": "x"}, {"wave": 0.5}])
def test_thresholds_are_values_by_name(detector, small_set, thresholds):
    refused(lambda: list(detector.detect(small_set.features, thresholds=thresholds)))


def test_streams_are_counted(detector):
    assert "Detector is " in refused(lambda: lstr.create(detector))[0]
    assert "-1" in refused(lambda: lstr.create(detector.model, n_streams=-1))[0]
    state = lstr.create(detector.model, n_streams=2)
    for wrong in (5, -1):
        assert refused(lambda: streaming.reset(state, [wrong])) == (  # noqa: B023 - called at once
            f"The state has no stream {wrong}.",
            "it has streams 0 to 1.",
        )


def test_chunks_are_pushed_in_order():
    timeline = lstr.Timeline(CLASSES)
    timeline.push(0.25, np.array([0.1, 0.9]))
    timeline.push(2.0, [0.1, 0.9])  # a camera was away
    assert "comes after one that ended later" in refused(lambda: timeline.push(1.0, [0.1, 0.9]))[0]
    timeline.finish(2.0)
    assert timeline.push(0.25, [0.1, 0.9]), "and begins anew"


@pytest.mark.long
def test_a_warning_points_at_the_program(small_set):
    """Its line, not one of the package: Python shows a warning once for each place."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        next(lstr.detect(small_set.videos / "scene_00.mp4", small_set.checkpoint))
    assert caught and {one.filename for one in caught} == {__file__}
