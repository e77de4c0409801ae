"""A checkpoint of the published code runs by the ordinary commands, without conversion."""

import json

import numpy as np
import pytest
import scipy.special
import torch

from lstr.labels.label_set import THUMOS_CLASSES

SETTINGS = ("--set", "model.n_heads=4", "--set", "model.long_length=128", "--set", "model.long_stride=4")


@pytest.fixture
def published(shared, tmp_path):
    """The recorded checkpoint, its features as a downloaded folder, and labels of the recorded targets."""
    golden = shared / "data" / "golden"
    with np.load(golden / "lstr_small.npz") as arrays:
        video = dict(arrays)
    for name, stream in (("rgb_kinetics_resnet50", "rgb"), ("flow_kinetics_bninception", "flow")):
        (tmp_path / "features" / name).mkdir(parents=True)
        np.save(tmp_path / "features" / name / "video_test_0000001.npy", video[stream])
    annotations = []
    for label, column in zip(THUMOS_CLASSES[1:], video["target"].T[1:], strict=True):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], column, [0]]))).reshape(-1, 2)
        annotations += [{"label": label, "segment": [start / 4, end / 4]} for start, end in edges.tolist()]
    entry = {"subset": "testing", "duration": 65.0, "annotations": annotations}
    labels = {"version": "1", "classes": list(THUMOS_CLASSES[1:]), "database": {"video_test_0000001": entry}}
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    return golden / "lstr_small.pth", tmp_path, video


def test_it_detects_as_the_published_code(lstr, published):
    checkpoint, folder, video = published
    code, _, err = lstr("detect", folder / "features", "-c", checkpoint, *SETTINGS, "-o", folder / "out", "-f", "npy")
    assert code == 0 and "does not say kind lstr, work_length 32" in err and "n_heads" not in err
    scores = np.load(folder / "out" / "video_test_0000001.scores.npy")
    np.testing.assert_allclose(scores, video["probabilities"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_it_is_evaluated(lstr, published, mode):
    from lstr.metrics.per_frame import per_frame

    checkpoint, folder, video = published
    given = (
        checkpoint,
        folder / "features",
        "--labels",
        folder / "labels.json",
        *SETTINGS,
        "--set",
        f"mode={mode}",
        "--json",
    )
    code, out, _ = lstr("evaluate", *given)
    assert code == 0
    expected = per_frame(video["probabilities"], video["target"], THUMOS_CLASSES, "Ambiguous")
    assert json.loads(out)["lstr"]["mAP"] == pytest.approx(expected["mAP"], abs=1e-4)


def test_info_says_what_it_infers_and_what_it_assumes(lstr, published):
    checkpoint, _, _ = published
    described = json.loads(lstr("info", checkpoint, "--set", "model.n_heads=4", "--json")[1])
    assert (described["format"], described["config"]["n0"], described["config"]["grid"]) == ("published", 4, "sliding")
    assert described["assumed"] == {"kind": "lstr", "work_length": 32, "long_length": 2048, "long_stride": 4}


def test_a_testra_is_run_by_naming_its_kind(lstr, shared, tmp_path):
    golden = shared / "data" / "golden" / "testra_laplace_small"
    with np.load(golden.with_suffix(".npz")) as arrays:
        video = dict(arrays)
    for name, stream in (("rgb_kinetics_resnet50", "rgb"), ("flow_kinetics_bninception", "flow")):
        (tmp_path / "features" / name).mkdir(parents=True)
        np.save(tmp_path / "features" / name / "one.npy", video[stream])
    said = {"kind": "testra", "decay": 0.9, "n_heads": 8, "work_length": 16, "long_length": 128, "rgb_dim": 24}
    settings = [word for name, value in said.items() for word in ("--set", f"model.{name}={value}")]
    given = ("-c", golden.with_suffix(".pth"), *settings, "--set", "model.flow_dim=12")
    code, _, err = lstr("detect", tmp_path / "features", *given, "-o", tmp_path / "out", "-f", "npy")
    assert code == 0, err
    expected = np.exp(video["logits"][:, 0].astype(np.float64))
    scores = np.load(tmp_path / "out" / "one.scores.npy")
    np.testing.assert_allclose(scores, expected / expected.sum(axis=1, keepdims=True), atol=1e-5, rtol=0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gatehub", ["n_heads=4"]),
        ("oadtr", ["n_heads=4", "decoder_heads=2"]),
        ("trn", []),
        ("colar", ["work_length=16"]),
    ],
)
def test_a_kind_is_known_by_its_tensors(lstr, shared, tmp_path, name, told):
    golden = shared / "data" / "golden" / f"{name}_small"
    with np.load(golden.with_suffix(".npz")) as arrays:
        video = dict(arrays)
    for folder, stream in (("rgb_kinetics_resnet50", "rgb"), ("flow_kinetics_bninception", "flow")):
        (tmp_path / "features" / folder).mkdir(parents=True)
        np.save(tmp_path / "features" / folder / "one.npy", video[stream])
    tensors = torch.load(golden.with_suffix(".pth"))
    if name == "colar":
        tensors["exemplars"] = torch.from_numpy(video["exemplars"])
    torch.save({"model": tensors, "epoch": 1}, tmp_path / "one.pth")
    settings = [word for one in ("rgb_dim=24", "flow_dim=12", *told) for word in ("--set", f"model.{one}")]
    given = ("-c", tmp_path / "one.pth", *settings, "-o", tmp_path / "out", "-f", "npy")
    code, _, err = lstr("detect", tmp_path / "features", *given)
    assert code == 0 and ("does not say anticipation 7" in err) == (name == "trn"), err
    scores = np.load(tmp_path / "out" / "one.scores.npy")
    if name == "colar":
        expected = np.pad(video["published_scores"], ((0, 0), (0, 1)))
    else:
        expected = scipy.special.softmax(video["stream_logits" if name == "trn" else "logits"], axis=1)
    has = video.get("has_output", np.ones(len(scores), dtype=bool))
    rounding = 3e-5 if name == "gatehub" else 1e-5  # by which the published single precision is off
    np.testing.assert_allclose(scores[has], expected[has], atol=rounding, rtol=0)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.d_model=512", ("d_model is 512", "64 in the tensors")),
        ("model.n_heads=3", ("d_model is 64", "n_heads 3")),
        ("model.long_length=0", ("long_memory is 0", "1 in the tensors")),
        ("model.encoder=none", ("unknown tensors: enc_modules",)),
        ("model.kind=rnn", ("lacks tensors",)),
    ],
)
def test_contradictions_name_both_values(lstr, published, setting, words):
    code, _, err = lstr("info", published[0], "--set", setting)
    assert code == (2 if "n_heads" in setting else 4) and "hint:" in err and "Traceback" not in err
    assert all(word in err for word in words), err
