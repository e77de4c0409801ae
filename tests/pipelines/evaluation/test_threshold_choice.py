"""Thresholds from validation scores."""

import json

import pytest
import torch

from lstr import checkpoint
from lstr.pipelines.evaluation.chosen_thresholds import write_thresholds
from lstr.timeline import Thresholds, thresholds_of


def test_the_command_writes_them_and_detect_uses_them(small_set, tmp_path, lstr):
    path = tmp_path / "thresholds.pt"
    path.write_bytes(small_set.checkpoint.read_bytes())
    arguments = (path, small_set.features, "--labels", small_set.labels, "--choose-thresholds")
    code, _, err = lstr("evaluate", *arguments)
    assert code == 2 and "no validation subset" in err and "--subset" in err
    code, out, err = lstr("evaluate", *arguments, "--subset", "training", "--json")
    assert code == 0, err
    document = json.loads(out)
    before, after = checkpoint.load(small_set.checkpoint), checkpoint.load(path)
    assert document["checkpoint"] == str(path) and [*document["thresholds"]] == [*before.classes[1:]]
    for name, tensor in before.model.state_dict().items():
        assert torch.equal(tensor, after.model.state_dict()[name])
    same = ("classes", "recipe", "metrics", "versions", "format")
    assert all(getattr(before, name) == getattr(after, name) for name in same)
    assert after.calibration.keys() == before.calibration.keys()
    rules = thresholds_of(after)
    assert {label: rules[label].on for label in document["thresholds"]} == {
        label: v["on"] for label, v in document["thresholds"].items()
    }
    assert lstr("detect", small_set.features, "-c", path, "-o", tmp_path / "out", "-f", "json")[0] == 0
    timeline = json.loads((tmp_path / "out" / "scene_00.json").read_text())
    seen = next(iter(document["thresholds"]))
    assert timeline["thresholds"][seen] == rules[seen].to_dict()
    assert f"{seen} on\t{rules[seen].on:g}\n" in lstr("info", path)[1]
    assert "thresholds in" in lstr("evaluate", *arguments, "--subset", "training")[1]
    assert "held out no more" in lstr("evaluate", *arguments, "--subset", "testing")[2]


def test_a_published_checkpoint_stays_as_it_is(shared, tmp_path):
    path = tmp_path / "lstr_small.pth"
    path.write_bytes((shared / "data" / "golden" / "lstr_small.pth").read_bytes())
    before = path.read_bytes()
    loaded = checkpoint.load(path, {"n_heads": 4, "long_length": 128})
    written = write_thresholds(loaded, {loaded.classes[1]: Thresholds(0.4, 0.3)})
    assert written.name == "lstr_small.thresholds.pt" and path.read_bytes() == before
    assert thresholds_of(checkpoint.load(written))[loaded.classes[1]] == Thresholds(0.4, 0.3)


def test_a_checkpoint_that_cannot_be_replaced_stays(small_set, tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    path.write_bytes(small_set.checkpoint.read_bytes())
    loaded = checkpoint.load(path)

    def broken(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(checkpoint.CheckpointError, match="No space left"):
        write_thresholds(loaded, {"wave": Thresholds()})
    assert path.read_bytes() == small_set.checkpoint.read_bytes() and len(list(tmp_path.iterdir())) == 1
