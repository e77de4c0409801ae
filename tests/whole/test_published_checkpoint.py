"""The commands accept checkpoints of published code without conversion."""

import json
from pathlib import Path

import numpy as np
import pytest

from lstr.labels.label_set import THUMOS_CLASSES
from lstr.metrics.per_frame import per_frame

SETTINGS = ("--set", "model.n_heads=4", "--set", "model.long_length=128", "--set", "model.long_stride=4")
STREAMS = {"rgb": "rgb_kinetics_resnet50", "flow": "flow_kinetics_bninception"}


@pytest.fixture
def checkpoint(shared) -> Path:
    return shared / "data" / "golden" / "lstr_small.pth"


def test_detection_and_evaluation_agree_with_the_published_code(run, checkpoint, tmp_path):
    with np.load(checkpoint.with_suffix(".npz")) as arrays:
        video = dict(arrays)
    for stream, folder in STREAMS.items():
        (tmp_path / "features" / folder).mkdir(parents=True)
        np.save(tmp_path / "features" / folder / "video.npy", video[stream])
    words = ("-c", checkpoint, *SETTINGS, "-o", tmp_path / "out", "-f", "npy")
    _, err = run("detect", tmp_path / "features", *words)
    assert "work_length 32" in err and "n_heads" not in err, err
    scores = np.load(tmp_path / "out" / "video.scores.npy")
    np.testing.assert_allclose(scores, video["probabilities"], atol=1e-5, rtol=0)
    annotations = []
    for label, column in zip(THUMOS_CLASSES[1:], video["target"].T[1:], strict=True):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], column, [0]]))).reshape(-1, 2)
        annotations += [{"label": label, "segment": [start / 4, end / 4]} for start, end in edges.tolist()]
    entry = {"subset": "testing", "duration": 65.0, "annotations": annotations}
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps({"classes": list(THUMOS_CLASSES[1:]), "database": {"video": entry}}))
    expected = per_frame(video["probabilities"], video["target"], THUMOS_CLASSES)
    evaluate = ("evaluate", checkpoint, tmp_path / "features", "--labels", labels, *SETTINGS, "--set", "resamples=20")
    out, _ = run(*evaluate, "--set", "mode=batch", "--json")
    assert json.loads(out)["lstr"]["mAP"] == pytest.approx(expected["mAP"], abs=1e-4)
    brief, full = (run(*evaluate, "--set", "mode=stream", *extra)[0] for extra in ((), ("--all",)))
    assert (brief.count("\nclass\t"), full.count("\nclass\t")) == (1, 6), "tables"
    assert f"\t{expected['mAP']:.3f}" in brief


def test_info_has_inferred_and_assumed_settings(lstr, checkpoint):
    described = json.loads(lstr("info", checkpoint, "--set", "model.n_heads=4", "--json")[1])
    assert (described["format"], described["config"]["n0"], described["config"]["grid"]) == ("published", 4, "sliding")
    assert described["assumed"] == {"kind": "lstr", "work_length": 32, "long_length": 2048, "long_stride": 4}
