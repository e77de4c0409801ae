"""Thresholds for the highest F1 or for a rate of false alarms: their choice, storage and use."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lstr import checkpoint
from lstr.chunk import CHUNK_SECONDS
from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.pipelines.evaluation.chosen_thresholds import (
    FEW_LABELS,
    LEVELS,
    Sweep,
    at_level,
    backdated,
    choose_for_rate,
    choose_levels,
    choose_validated_thresholds,
    describe_curves,
    describe_delays,
    sweep,
    write_thresholds,
)
from lstr.pipelines.evaluation.scoring import detect_events
from lstr.pipelines.evaluation.thresholds import (
    Scored,
    are_apart,
    choose_rule,
    choose_without_each,
    count,
    curves_of,
    detect_spans,
    f1_of,
)
from lstr.timeline import DEFAULT, Thresholds, Timeline, segments_in, thresholds_of
from tests.support.extraction import return_value

CLASSES = ("Background", "hug", "kick")


@given(
    arrays.arrays(
        np.float32, st.tuples(st.integers(0, 60), st.just(3)), elements=st.sampled_from([0.1, 0.3, 0.4, 0.5, 0.7, 0.9])
    ),
    st.sampled_from([0.3, 0.5, 0.7]),
    st.sampled_from([1.0, 0.7, 0.5]),
    st.sampled_from([0.0, 0.25, 0.5, 0.75]),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.booleans(),
    st.sampled_from([0.0, 0.25, 1.1]),
)
def test_detected_spans_equal_the_timeline(scores, on, share, length, gap, highest, backdate):
    """Without backdating for `highest`: there, detections of other classes limit a backdated start."""
    rule = Thresholds(on, on * share, length, gap, highest, 0.0 if highest else backdate)
    timeline = Timeline(CLASSES, rule)
    events = [e for k, row in enumerate(scores) for e in timeline.push((k + 1) * CHUNK_SECONDS, row)]
    segments = segments_in(events + timeline.finish(len(scores) * CHUNK_SECONDS))
    curves = curves_of(scores, [1, 2], highest)
    for column, label in enumerate(CLASSES[1:]):
        expected = [[s.start, s.end] for s in segments if s.label == label]
        assert detect_spans(curves[:, column], rule).tolist() == expected


def two_minutes(*peaks: tuple, background: float = 0.05) -> Scored:
    """Return two minutes with peaks (offset, chunks, class, score, is labelled) every ten seconds."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(0, background, (480, 3)).astype(np.float32)
    truth = []
    for start in range(20, 440, 40):
        for offset, length, c, score, is_labelled in peaks:
            chunks = slice(start + offset, start + offset + length)
            scores[chunks, c] = score
            truth += [Segment(chunks.start / 4, chunks.stop / 4, CLASSES[c])] * is_labelled
    return Scored(scores, truth)


HUGS = two_minutes((0, 8, 1, 0.6, True), background=0.2)


def test_a_minimum_length_excludes_single_chunks():
    videos = [two_minutes((0, 8, 1, 0.6, True), (20, 1, 1, 0.9, False), background=0.2)] * 2
    rule = choose_rule(videos, CLASSES)
    assert rule.f1 == 1.0 and rule.thresholds.min_length >= 0.5
    assert f1_of(count(videos, CLASSES[:2], [DEFAULT])).item() < 0.8


def test_the_fastest_of_equal_rules_is_chosen():
    rule = choose_rule([HUGS], CLASSES)
    assert rule.thresholds.delays() == {"started": 0.0, "ended": 0.0} and rule.thresholds.on == DEFAULT.on


def test_the_default_is_chosen_without_labels():
    rule = choose_rule([Scored(np.zeros((8, 3), np.float32), [])], CLASSES)
    assert rule.thresholds == DEFAULT and rule.f1 is None and rule.by_class == {"hug": DEFAULT, "kick": DEFAULT}


def test_training_videos_of_the_networks_do_not_raise_the_level():
    """Actions score .96, and peaks of one chunk .7: a higher level excludes them, or a minimum length."""
    video = Scored(HUGS.scores * np.float32(1.6), HUGS.truth)
    for chunk in (4, 5, 6):
        video.scores[chunk:480:40, 1] = 0.7
    assert choose_rule([video], CLASSES).thresholds.on > 0.7
    thresholds = choose_rule([video], CLASSES, seen=True).thresholds
    assert thresholds.on <= DEFAULT.on and thresholds.min_length == 0.75


def test_a_class_has_its_own_level_if_it_has_enough_labels():
    """Kicks score .35 and hugs .9, with unlabelled peaks of .5: no common level separates both."""
    hugs = ((0, 8, 1, 0.9, True), (20, 8, 1, 0.5, False))
    rule = choose_rule([two_minutes(*hugs, (0, 8, 2, 0.35, True))] * 3, CLASSES)
    assert rule.f1 == 1.0 and rule.by_class["kick"].on <= 0.35 < 0.5 < rule.by_class["hug"].on
    video = two_minutes(*hugs)
    video.scores[20:28, 2] = 0.35
    one_kick = Scored(video.scores, [*video.truth, Segment(5, 7, "kick")])
    assert choose_rule([one_kick], CLASSES).by_class["kick"].on > 0.35


def test_ambiguous_detections_are_not_counted():
    scores = np.zeros((40, 2), np.float32)
    scores[8:16, 1] = scores[24:32, 1] = 0.9
    truth = [Segment(2, 4, "hug"), Segment(6, 8, "Ambiguous")]
    rules = [DEFAULT, replace(DEFAULT, min_length=1.0)]
    counts = count([Scored(scores, truth)], CLASSES[:2], rules).tolist()
    assert counts == [[[1, 1, 1, 1]], [[1, 1, 1, 4]]], "labels, detections, detected labels, chunks of delay"
    assert count([Scored(scores, truth[:1])], CLASSES[:2], [DEFAULT]).tolist() == [[[1, 2, 1, 1]]]


def actions(n: int, *more: Segment) -> list[Segment]:
    """Return n actions of 2 s in a row, of two classes in turn, and more."""
    return [Segment(3 * k, 3 * k + 2, ("hug", "kick")[k % 2]) for k in range(n)] + list(more)


@pytest.mark.parametrize(
    ("videos", "expected"),
    [
        ([actions(10), actions(10)], True),
        ([actions(19)], False),  # too few labels
        ([[Segment(3 * k, 3 * k + 2, "hug") for k in range(30)]], False),  # a single class
        ([actions(20, Segment(1.9, 3, "kick"))], True),  # overlaps by less than a chunk
        ([actions(20), actions(2, Segment(1.5, 2.5, "kick"))], False),
        ([[Segment(0, 90, "sit"), *actions(20)]], False),  # a long action that began much earlier
        ([actions(20, Segment(0, 90, "Ambiguous"))], True),
        ([actions(20, Segment(0.5, 1.5, "hug"))], True),  # overlaps its own class
    ],
)
def test_actions_that_never_overlap(videos, expected):
    assert are_apart(videos) is expected


def test_only_the_highest_action_is_active_if_actions_never_overlap():
    """The other action scores .1 less, and more than the right one elsewhere: no threshold separates them."""
    truth = actions(24)
    scores = np.full((300, 3), 0.05, np.float32)
    for k, segment in enumerate(truth):
        chunks, high = slice(int(segment.start * 4), int(segment.end * 4)), (0.55, 0.75, 0.95)[k % 3]
        scores[chunks, 1:] = (high, high - 0.1) if segment.label == "hug" else (high - 0.1, high)
    rule = choose_rule([Scored(scores, truth)], CLASSES)
    assert rule.f1 == 1.0 and all(own.highest for own in rule.by_class.values())
    overlapping = [*truth, Segment(70, 72, "hug"), Segment(70, 72, "kick")]
    rule = choose_rule([Scored(scores, overlapping)], CLASSES)
    assert rule.f1 < 0.9 and not rule.thresholds.highest
    rule, without_each = choose_without_each([[Scored(scores, truth)]] * 2, CLASSES)
    assert rule.thresholds.highest and all(own.thresholds.highest for own in without_each)


@pytest.fixture
def path(small_set, tmp_path):
    """A copy of the checkpoint of the small set."""
    path = tmp_path / "thresholds.pt"
    path.write_bytes(small_set.checkpoint.read_bytes())
    return path


@pytest.fixture
def evaluate(run, small_set):
    """Run `lstr evaluate` on the training videos of the small set: evaluate(checkpoint, *words) -> JSON."""

    def evaluate(path, *words) -> dict:
        where = (path, small_set.features, "--labels", small_set.labels, "--subset", "training")
        return json.loads(run("evaluate", *where, *words, "--json")[0])

    return evaluate


def test_stored_thresholds_are_used_by_detect_and_evaluate(small_set, path, tmp_path, lstr, evaluate):
    """The event metrics follow from the files of `lstr detect`."""
    code, _, err = lstr("evaluate", path, small_set.features, "--labels", small_set.labels, "--choose-thresholds")
    assert code == 2 and "--subset" in err
    chosen = evaluate(path, "--choose-thresholds")
    before, after = checkpoint.load(small_set.checkpoint), checkpoint.load(path)
    assert chosen["checkpoint"] == str(path) and [*chosen["thresholds"]] == [*before.classes[1:]]
    for name, tensor in before.model.state_dict().items():
        assert torch.equal(tensor, after.model.state_dict()[name])
    for name in ("classes", "recipe", "metrics", "versions", "format"):
        assert getattr(before, name) == getattr(after, name)
    assert after.calibration.keys() == before.calibration.keys()
    rules = thresholds_of(after)
    assert all(rules[label].on == values["on"] for label, values in chosen["thresholds"].items())
    assert f"{before.classes[1]}\t{rules[before.classes[1]].on:g}\t" in lstr("info", path)[1]

    events = evaluate(path, "--set", "resamples=20")["events"]
    assert lstr("detect", small_set.features, "-c", path, "-o", tmp_path / "t", "-f", "json,jsonl")[0] == 0
    measured = []
    for video_id, video in json.loads(small_set.labels.read_text())["database"].items():
        if video["subset"] != "training":
            continue
        timeline = json.loads((tmp_path / "t" / f"{video_id}.json").read_text())
        assert timeline["thresholds"] == events["thresholds"] != DEFAULT.to_dict()
        assert all(timeline["thresholds"][label] == rules[label].to_dict() for label in chosen["thresholds"])
        lines = map(json.loads, (tmp_path / "t" / f"{video_id}.jsonl").read_text().splitlines())
        started = {(line["label"], line["start"]): line["time"] for line in lines if line.get("event") == "started"}
        truth = [Segment(*entry["segment"], entry["label"]) for entry in video["annotations"]]
        detected = list(map(Segment.from_dict, timeline["segments"]))
        announced = [started[segment.label, segment.start] for segment in detected]
        measured.append(VideoEvents(truth, detected, 5.0, announced))
    expected = measure_events(measured, after.classes)
    together = events["together"]
    assert together["found"] and (events["videos"], events["hours"]) == (3, expected["hours"])
    for name in ("found", "detections", "false_alarms", "false_seconds", "delay"):
        assert together[name] == pytest.approx(expected["together"][name]), name
    low, high = together["interval"]["recall"]
    assert low <= together["iou"]["0.3"]["recall"] <= high


def test_the_command_aims_at_a_rate_of_false_alarms(lstr, small_set, path, tmp_path, evaluate):
    choose = ("--choose-thresholds", "--false-alarms")
    for words in (["--false-alarms", "1"], [*choose, "0"], [*choose, "1", "-o", tmp_path / "out"]):
        assert lstr("evaluate", path, small_set.features, small_set.labels, "--subset", "training", *words)[0] == 2
    document = evaluate(path, *choose, "24/day")
    assert document["aim"] == {"false_alarms_per_hour": 1.0}
    loaded = checkpoint.load(path)
    rules = thresholds_of(loaded)
    actions = [label for label in loaded.classes if label != "Background"]
    assert [*document["thresholds"]] == actions, "includes classes without labels, which can be false alarms"
    for label, chosen in document["thresholds"].items():
        assert (rules[label].on, rules[label].off) == (chosen["on"], chosen["off"])
    for file, name in ((path, "events"), (small_set.checkpoint, "default_events")):
        events = evaluate(file, "--set", "resamples=0")["events"]
        assert events["together"] == document[name]["together"]


def test_a_published_checkpoint_is_not_overwritten(shared, tmp_path):
    path = tmp_path / "lstr_small.pth"
    path.write_bytes((shared / "data" / "golden" / "lstr_small.pth").read_bytes())
    before = path.read_bytes()
    loaded = checkpoint.load(path, {"n_heads": 4, "long_length": 128})
    written = write_thresholds(loaded, {loaded.classes[1]: Thresholds(0.4, 0.3)})
    assert written.name == "lstr_small.thresholds.pt" and path.read_bytes() == before
    assert thresholds_of(checkpoint.load(written))[loaded.classes[1]] == Thresholds(0.4, 0.3)


def late_hugs(n: int, delay: float, chunks: int = 400, seed: int = 0, classes=CLASSES) -> Scored:
    """Return n actions: scores of hugs rise `delay` seconds late, give or take a chunk, scores of kicks in time."""
    rng = np.random.default_rng(seed)
    scores, truth = np.full((chunks, len(classes)), 0.1, np.float32), []
    for k in range(n):
        label, start = 1 + k % 2, 10 + k * (chunks - 20) // n
        rise = start + (round(4 * delay) + int(rng.integers(-1, 2)) if label == 1 else 0)
        scores[rise : start + 12, label] = 0.9
        truth.append(Segment(start / 4, start / 4 + 3, classes[label], 1.0))
    return Scored(scores, truth)


def test_starts_are_backdated_by_their_median_delay():
    """Less with few labels, and not at all for classes that are detected in time or early."""
    rules = {"hug": Thresholds(highest=True), "kick": DEFAULT}
    videos = [late_hugs(20, 1.0), late_hugs(20, 1.0, seed=1)]
    expected = {"hug": Thresholds(highest=True, backdate=0.75), "kick": DEFAULT}
    assert backdated(rules, videos, CLASSES) == backdated(expected, videos, CLASSES) == expected
    assert backdated(rules, [late_hugs(2, 1.0)], CLASSES)["hug"].backdate < 0.75
    assert backdated(rules, [late_hugs(20, -1.0)], CLASSES) == rules == backdated(rules, [], CLASSES)


def test_cross_validated_thresholds_are_backdated(path):
    loaded = checkpoint.load(path)
    hug = loaded.classes[1]
    videos = {f"v{seed}": late_hugs(10, 1.0, 200, seed, loaded.classes) for seed in range(4)}
    _, by_video = return_value(choose_validated_thresholds(videos, [[i] for i in videos], loaded))
    assert by_video.keys() == videos.keys() and all(0.5 <= rules[hug].backdate <= 1.0 for rules in by_video.values())
    assert 0.5 <= thresholds_of(checkpoint.load(path))[hug].backdate <= 1.0


def measure(videos: list[Scored], rules) -> dict:
    return measure_events([detect_events(v.scores, CLASSES, rules, v.truth) for v in videos], CLASSES)


def test_points_of_curves_equal_detection_with_their_thresholds():
    hugs, kicks = ((0, 6, 1, 0.8, True), (10, 6, 1, 0.6, False)), ((20, 4, 2, 0.5, True), (30, 1, 2, 0.3, False))
    videos = [two_minutes(*hugs, *kicks), HUGS]
    rules = {"hug": Thresholds(min_length=0.5), "kick": Thresholds(merge_gap=0.5)}
    curves = describe_curves(sweep(videos, CLASSES, rules))
    for k in (2, 14, 24, 40):
        events = measure(videos, {label: at_level(LEVELS[k], rule) for label, rule in rules.items()})
        for point, counts in (
            (curves["together"][k], events["together"]),
            (curves["per_class"]["kick"][k], events["per_class"]["kick"]),
        ):
            assert point["recall"] == pytest.approx(counts["found"] / counts["labels"])
            assert point["false_alarms_per_hour"] == pytest.approx(counts["false_alarms_per_hour"])
            assert (point["on"], point["off"]) == (LEVELS[k], pytest.approx(0.7 * LEVELS[k], abs=1e-4))
    recalls = [point["recall"] for point in curves["per_class"]["hug"]]
    assert max(recalls) == 1 and recalls[-1] == 0
    hug, rules = [two_minutes(hugs[0])], {"hug": Thresholds(backdate=0.5)}
    points = describe_delays(hug, CLASSES, rules)
    for point in points:
        rule = replace(at_level(point["on"], rules["hug"]), min_length=point["min_length"])
        together = measure(hug, {"hug": rule})["together"]
        assert (point["f1"], point["delay"]) == (together["iou"]["0.3"]["f1"], together["delay"]["p50"])
    assert points and [point["f1"] for point in points] == sorted(point["f1"] for point in points)
    empty = Scored(np.zeros((0, len(CLASSES)), np.float32), [])
    assert not describe_delays([empty], CLASSES)
    point = describe_curves(sweep([empty], CLASSES))["together"][0]
    assert point["recall"] is None and point["false_alarms_per_hour"] is None


counts = st.lists(st.integers(0, 5), min_size=4, max_size=4)


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=3), st.integers(1, 9))
def test_chosen_levels_equal_a_search_of_all_combinations(drawn, budget):
    """Four levels have the drawn counts; the others find nothing and have more false alarms."""
    found = np.zeros((len(drawn), len(LEVELS)), np.int64)
    false = np.full((len(drawn), len(LEVELS)), 100)
    for c, (hits, alarms) in enumerate(drawn):
        found[c, :4], false[c, :4] = hits, alarms
    names = tuple("abc"[: len(drawn)])
    levels = choose_levels(Sweep(names, np.full(len(drawn), FEW_LABELS), found, false, hours=1.0), budget)

    def total(places) -> tuple[int, int]:
        return tuple(int(sum(array[c, k] for c, k in enumerate(places))) for array in (false, found))

    alarms, hits = total([LEVELS.index(levels[name]) for name in names])
    totals = [total(places) for places in product(range(4), repeat=len(drawn))]
    limit = max(budget, min(alarms for alarms, _ in totals))
    most = max(hits for alarms, hits in totals if alarms <= limit)
    assert hits == most and alarms == min(alarms for alarms, hits in totals if hits == most)


@pytest.mark.long
def test_a_minimum_length_removes_short_false_alarms():
    """Single chunks of .95 without a label next to hugs of 1.5 s at .9: no level separates them."""
    videos = [two_minutes((0, 6, 1, 0.9, True), (20, 1, 1, 0.95, False))]
    for per_hour in (1.0, 20.0):
        together = measure(videos, choose_for_rate(videos, CLASSES, per_hour))["together"]
        assert (together["found"], together["false_alarms"]) == (11, 0)
    rules = choose_for_rate(videos, CLASSES, 1000.0)
    assert {rule.delays()["started"] for rule in rules.values()} == {0.0}, "no delay without a benefit"
