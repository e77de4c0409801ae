"""Event metrics of scores, operating curves, and thresholds that aim at a number of false alarms."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr import checkpoint
from lstr.labels.segment import Segment
from lstr.metrics.actions import find, measure_events, spans_of
from lstr.pipelines.evaluation.chosen_thresholds import (
    FEW_LABELS,
    LEVELS,
    Sweep,
    at_level,
    choose_for_rate,
    choose_levels,
    describe_curves,
    sweep,
)
from lstr.pipelines.evaluation.scoring import detect_events
from lstr.pipelines.evaluation.thresholds import Scored
from lstr.timeline import DEFAULT, Thresholds, thresholds_of

CLASSES = ("Background", "hug", "kick", "Ambiguous")
values = st.lists(st.sampled_from([0.1, 0.25, 0.3, 0.35, 0.5, 0.7]), max_size=24)


def rows_of(hug, kick=()) -> np.ndarray:
    rows = np.zeros((len(hug), len(CLASSES)), np.float32)
    rows[:, 1], rows[: len(kick), 2] = hug, kick
    return rows


def test_they_are_what_detect_announces(lstr, small_set, tmp_path):
    """At thresholds that the checkpoint carries: the figures follow from the files of `lstr detect`."""
    path, given_labels = tmp_path / "a.pt", (small_set.features, "--labels", small_set.labels, "--subset", "training")
    path.write_bytes(small_set.checkpoint.read_bytes())
    assert lstr("evaluate", path, *given_labels, "--choose-thresholds")[0] == 0
    code, out, err = lstr("evaluate", path, *given_labels, "--set", "resamples=20", "--json")
    assert code == 0, err
    events = json.loads(out)["events"]
    assert lstr("detect", small_set.features, "-c", path, "-o", tmp_path / "t", "-f", "json,jsonl")[0] == 0
    labels = json.loads(small_set.labels.read_text())["database"]
    found = detections = 0
    delays = []
    for video_id, video in labels.items():
        if video["subset"] != "training":
            continue
        timeline = json.loads((tmp_path / "t" / f"{video_id}.json").read_text())
        assert timeline["thresholds"] == events["thresholds"] != DEFAULT.to_dict()
        lines = map(json.loads, (tmp_path / "t" / f"{video_id}.jsonl").read_text().splitlines())
        started = {(line["label"], line["start"]): line["time"] for line in lines if line.get("event") == "started"}
        detections += len(timeline["segments"])
        truth = [Segment(*one["segment"], one["label"]) for one in video["annotations"]]
        detected = [Segment(one["start"], one["end"], one["label"]) for one in timeline["segments"]]
        for label in {one.label for one in truth}:
            ours, theirs = spans_of(truth, label), spans_of(detected, label)
            pairs = find(ours, theirs)
            found += len(pairs)
            delays += [started[label, theirs[d, 0]] - ours[t, 0] for t, d in pairs]
    together = events["together"]
    assert events["videos"] == 3 and events["hours"] == pytest.approx(15 / 3600)
    assert (together["found"], together["detections"]) == (found, detections) and found
    assert together["delay"]["p50"] == pytest.approx(np.median(delays))
    low, high = together["interval"]["recall"]
    assert low <= together["iou"]["0.3"]["recall"] <= high


def planted(seed=0, n_videos=6):
    """Scores of two classes with labels: hugs score high, kicks lower, and there are peaks without a label."""
    rng = np.random.default_rng(seed)
    videos = []
    for _ in range(n_videos):
        rows = rng.uniform(0, 0.1, (240, len(CLASSES))).astype(np.float32)
        segments = []
        for start in range(10, 230, 20):
            c = int(rng.integers(1, 3))
            labelled = rng.random() < 0.7
            top = rng.uniform(0.5, 0.95) if c == 1 else rng.uniform(0.3, 0.7)
            rows[start : start + 6, c] = top if labelled else rng.uniform(0.1, 0.6)
            if labelled:
                segments.append(Segment(start / 4, start / 4 + 1.5, CLASSES[c]))
        videos.append(Scored(rows, segments))
    return videos


def test_each_point_of_a_curve_is_what_its_thresholds_give():
    scored = planted()
    rules = {"hug": Thresholds(min_length=0.5), "kick": Thresholds(merge_gap=0.5)}
    swept = sweep(scored, CLASSES, rules)
    curves = describe_curves(swept)
    for k in (2, 14, 24, 40):
        on = {label: at_level(LEVELS[k], own) for label, own in rules.items()}
        videos = [detect_events(one.scores, CLASSES, on, one.truth) for one in scored]
        events = measure_events(videos, CLASSES)
        for point, one in (
            (curves["together"][k], events["together"]),
            (curves["per_class"]["kick"][k], events["per_class"]["kick"]),
        ):
            assert point["recall"] == pytest.approx(one["found"] / one["labels"])
            assert point["false_alarms_per_hour"] == pytest.approx(one["false_alarms_per_hour"])
            assert (point["on"], point["off"]) == (LEVELS[k], pytest.approx(0.7 * LEVELS[k], abs=1e-4))
    recalls = [point["recall"] for point in curves["per_class"]["hug"]]
    assert max(recalls) == 1 and recalls[-1] == 0
    empty = describe_curves(sweep([Scored(rows_of([]), [])], CLASSES))["together"][0]
    assert empty["recall"] is None and empty["false_alarms_per_hour"] is None


counts = st.lists(st.integers(0, 5), min_size=4, max_size=4)


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=3), st.integers(1, 9))
def test_the_chosen_levels_find_the_most_of_all_choices(drawn, budget):
    """Beside a second implementation that tries every choice; four levels, the others silent and never better."""
    found = np.zeros((len(drawn), len(LEVELS)), np.int64)
    false = np.full((len(drawn), len(LEVELS)), 100)
    for c, (hits, alarms) in enumerate(drawn):
        found[c, :4], false[c, :4] = hits, alarms
    names = tuple("abc"[: len(drawn)])
    swept = Sweep(names, np.full(len(drawn), FEW_LABELS), found, false, hours=1.0)
    chosen = choose_levels(swept, budget)
    alarms, hits = (sum(of[c, LEVELS.index(chosen[n])] for c, n in enumerate(names)) for of in (false, found))
    every = [
        tuple(int(sum(of[c, k] for c, k in enumerate(levels))) for of in (false, found))
        for levels in product(range(4), repeat=len(drawn))
    ]
    allowed = max(budget, min(alarms for alarms, _ in every))
    most = max(hits for alarms, hits in every if alarms <= allowed)
    assert hits == most and alarms == min(alarms for alarms, hits in every if hits == most)


@pytest.mark.long
def test_a_length_that_costs_no_action_spares_false_alarms():
    """Single chunks of .95 without a label, as many as there are hugs of 1.5 s: no level tells them apart."""
    scored = []
    for _ in range(3):
        rows = np.full((240, len(CLASSES)), 0.05, np.float32)
        for start in range(10, 230, 40):
            rows[start : start + 6, 1], rows[start + 20, 1] = 0.9, 0.95
        truth = [Segment(start / 4, start / 4 + 1.5, "hug") for start in range(10, 230, 40)]
        scored.append(Scored(rows, truth))
    for per_hour in (1.0, 20.0):
        rules = choose_for_rate(scored, CLASSES, per_hour)
        videos = [detect_events(one.scores, CLASSES, rules, one.truth) for one in scored]
        together = measure_events(videos, CLASSES)["together"]
        assert (together["found"], together["false_alarms"]) == (18, 0)
    generous = choose_for_rate(scored, CLASSES, 1000.0)
    assert {rule.delays()["started"] for rule in generous.values()} == {0.0}, "no delay where nothing is won by it"


def test_the_command_aims_at_false_alarms(lstr, small_set, tmp_path):
    path = tmp_path / "a.pt"
    path.write_bytes(small_set.checkpoint.read_bytes())
    where = ("evaluate", path, small_set.features, "--labels", small_set.labels, "--subset", "training")
    choose = (*where, "--choose-thresholds")
    for words in ((*where, "--false-alarms", "1"), (*choose, "--false-alarms", "0"), (*choose, "-o", tmp_path / "out")):
        code, _, err = lstr(*words)
        assert code == 2 and "hint: " in err
    code, out, err = lstr(*choose, "--false-alarms", "24/day", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["aim"] == {"false_alarms_per_hour": 1.0}
    loaded = checkpoint.load(path)
    rules = thresholds_of(loaded)
    actions = [label for label in loaded.classes if label != "Background"]
    assert [*document["thresholds"]] == actions, "a class that never happens here can be a false alarm too"
    for label, chosen in document["thresholds"].items():
        assert (rules[label].on, rules[label].off) == (chosen["on"], chosen["off"])
    unsampled = (*where[2:], "--set", "resamples=0", "--json")
    again = json.loads(lstr("evaluate", path, *unsampled)[1])["events"]
    assert again["together"] == document["events"]["together"], "what the choice gave is what evaluate finds"
    before = json.loads(lstr("evaluate", small_set.checkpoint, *unsampled)[1])["events"]
    assert before["together"] == document["default_events"]["together"]
