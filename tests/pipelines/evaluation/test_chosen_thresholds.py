"""Thresholds that are chosen for each action are written into a checkpoint, and starts are backdated."""

import json

import numpy as np
import pytest
import torch

from lstr import checkpoint
from lstr.labels.segment import Segment
from lstr.pipelines.evaluation.chosen_thresholds import backdated, choose_validated_thresholds, write_thresholds
from lstr.pipelines.evaluation.thresholds import Scored
from lstr.timeline import DEFAULT, Thresholds, thresholds_of
from tests.support.extraction import returned

CLASSES = ("Background", "hug", "kick")


@pytest.fixture
def path(small_set, tmp_path):
    """A copy of the checkpoint of the small set."""
    path = tmp_path / "thresholds.pt"
    path.write_bytes(small_set.checkpoint.read_bytes())
    return path


def test_the_command_writes_them_and_detect_uses_them(small_set, path, tmp_path, lstr):
    arguments = (path, small_set.features, "--labels", small_set.labels, "--choose-thresholds")
    code, _, err = lstr("evaluate", *arguments)
    assert code == 2 and "--subset" in err
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
    assert all(rules[label].on == values["on"] for label, values in document["thresholds"].items())
    assert lstr("detect", small_set.features, "-c", path, "-o", tmp_path / "out", "-f", "json")[0] == 0
    timeline = json.loads((tmp_path / "out" / "scene_00.json").read_text())
    seen = next(iter(document["thresholds"]))
    assert timeline["thresholds"][seen] == rules[seen].to_dict()
    assert f"{rules[seen].on:g}" in lstr("info", path)[1]


def test_a_published_checkpoint_stays_as_it_is(shared, tmp_path):
    path = tmp_path / "lstr_small.pth"
    path.write_bytes((shared / "data" / "golden" / "lstr_small.pth").read_bytes())
    before = path.read_bytes()
    loaded = checkpoint.load(path, {"n_heads": 4, "long_length": 128})
    written = write_thresholds(loaded, {loaded.classes[1]: Thresholds(0.4, 0.3)})
    assert written.name == "lstr_small.thresholds.pt" and path.read_bytes() == before
    assert thresholds_of(checkpoint.load(written))[loaded.classes[1]] == Thresholds(0.4, 0.3)


def scored(n: int, late: float, chunks: int = 400, seed: int = 0) -> Scored:
    """A video in which scores of n hugs rise so many seconds late, give or take a chunk, and kicks are told at once."""
    rng = np.random.default_rng(seed)
    scores, truth = np.full((chunks, 3), 0.1, np.float32), []
    for k in range(n):
        label, start = 1 + k % 2, 10 + k * (chunks - 20) // n
        rise = start + (round(4 * late) + int(rng.integers(-1, 2)) if label == 1 else 0)
        scores[rise : start + 12, label] = 0.9
        truth.append(Segment(start / 4, start / 4 + 3, CLASSES[label], 1.0))
    return Scored(scores, truth)


def test_starts_are_backdated_as_far_as_labels_show():
    """Drawn to none where there are few labels; none of what is told at once, or early."""
    rules = {"hug": Thresholds(highest=True), "kick": DEFAULT}
    many = backdated(rules, [scored(20, 1.0), scored(20, 1.0, seed=1)], CLASSES)
    assert many == {"hug": Thresholds(highest=True, backdate=0.75), "kick": DEFAULT}
    assert backdated(rules, [scored(2, 1.0)], CLASSES)["hug"].backdate < many["hug"].backdate
    assert backdated(rules, [scored(20, -1.0)], CLASSES) == rules == backdated(rules, [], CLASSES)
    again = backdated(many, [scored(20, 1.0), scored(20, 1.0, seed=1)], CLASSES)
    assert again == many, "what was there has no part in it"


def test_thresholds_out_of_fold_are_backdated_too(path):
    loaded = checkpoint.load(path)
    hug, videos = loaded.classes[1], {}
    for seed in range(6):
        one = scored(10, 1.0, 200, seed)
        rows = np.zeros((200, len(loaded.classes)), np.float32)
        rows[:, 1] = one.scores[:, 1]
        hugs = [s for s in one.truth if s.label == "hug"]
        videos[f"v{seed}"] = Scored(rows, [Segment(s.start, s.end, hug, 1.0) for s in hugs])
    _, without = returned(choose_validated_thresholds(videos, [[i] for i in videos], loaded))
    assert without.keys() == videos.keys() and all(0.5 <= rules[hug].backdate <= 1.0 for rules in without.values())
    assert 0.5 <= thresholds_of(checkpoint.load(path))[hug].backdate <= 1.0
