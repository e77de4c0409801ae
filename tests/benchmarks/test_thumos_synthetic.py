"""Synthetic features on THUMOS'14 labels: what the generator promises, what the oracles know, and the study's rows."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from lstr.labels.label_set import THUMOS_CLASSES
from lstr.metrics.per_frame import per_frame

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
AMBIGUOUS = 21


@pytest.fixture
def synthetic(monkeypatch):
    """The module of the generator."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("synthetic_features")


@pytest.fixture
def script(synthetic):
    """The module of the script."""
    return importlib.import_module("thumos_synthetic")


def sequence(random: np.random.Generator, n_chunks: int, label: int) -> np.ndarray:
    """One-hot targets (L, 22) of a video with instances of one class of 12 chunks each."""
    on = np.zeros(n_chunks, dtype=int)
    for start in np.arange(random.integers(150, 200), n_chunks - 12, 60):
        on[start : start + 12] = label
    return np.eye(len(THUMOS_CLASSES), dtype=np.uint8)[on]


def labels(n_videos: int, n_chunks: int = 400) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {f"v{v}": sequence(random, n_chunks, 1 + v % 20) for v in range(n_videos)}


def test_an_epoch_is_drawn_anew_and_again_to_the_bit(synthetic):
    drawn = labels(2)
    first, again, later = (synthetic.Generator(rgb=40, flow=20).draw(drawn, epoch) for epoch in (0, 0, 1))
    for one, same, other in zip(first, again, later, strict=True):
        rows = one.features[:]
        assert rows.shape == (400, 60) and rows.dtype == np.float32 and 0.9 < rows.std() < 1.3
        assert np.array_equal(rows, same.features[:])
        # a product of few rows is summed in another order than one of many, on some processors
        np.testing.assert_allclose(rows[5:9], one.features[np.arange(5, 9)], rtol=0, atol=1e-6)
        assert one.targets is same.targets is other.targets
        correlation = np.corrcoef(rows.ravel(), other.features[:].ravel())[0, 1]
        assert abs(correlation) < 0.15, "but for its labels a video is another in each epoch"


def test_evidence_is_all_that_features_say(synthetic):
    generator, drawn = synthetic.Generator(rgb=40, flow=20, nuisance=5.0), labels(20)
    found = np.concatenate([generator.evidence(video) for video in generator.draw(drawn, 3)])
    columns = np.concatenate([rows.argmax(1) for rows in drawn.values()])
    means = np.array([found[columns == action].mean(0) for action in synthetic.ACTIONS])  # 48 chunks each
    expected = generator.means(np.array(synthetic.ACTIONS), np.zeros(20))
    assert np.abs(means - expected).max() < 0.65 and np.abs(means - expected).mean() < 0.14
    quiet = found[columns == 0]
    assert quiet[:, : synthetic.CUE].std() == pytest.approx(1, abs=0.03), "of the nuisance nothing is in it"
    pairs = generator.means(np.array([1, 2]), np.zeros(2))
    assert (pairs[0, : synthetic.MEMBERS.start] == pairs[1, : synthetic.MEMBERS.start]).all()
    assert (pairs[0, synthetic.MEMBERS] == -pairs[1, synthetic.MEMBERS]).all()


def test_a_cue_comes_before_the_first_action_in_the_background(synthetic):
    generator = synthetic.Generator(before=(5.0, 20.0))
    for action in (7, 8):
        columns = sequence(np.random.default_rng(action), 400, action).argmax(1)
        cues = generator.cues(columns, np.random.default_rng(0))
        assert np.count_nonzero(cues) == 24 and set(cues[cues != 0]) == {synthetic.pair_of(action)[1]}
        last, start = np.flatnonzero(cues)[-1], np.flatnonzero(columns)[0]
        assert 5 * 4 - 1 <= start - 1 - last <= 20 * 4 and (columns[cues != 0] == 0).all()
    both = np.zeros(400, int)
    both[100:120], both[200:220], both[225:240] = 7, 8, 7
    cues = generator.cues(both, np.random.default_rng(0))
    assert [np.sign(cues[:100].sum()), np.sign(cues[120:200].sum())] == [
        synthetic.pair_of(7)[1],
        synthetic.pair_of(8)[1],
    ]
    assert not cues[220:].any(), "no room, no cue"


@pytest.mark.long
def test_each_oracle_knows_more_than_the_one_of_a_shorter_past(script, synthetic):
    """And the last gains by cues: without them the members of a pair are told by what came before alone."""
    drawn, found = labels(40), {}
    for cue in (2.0, 0.0):
        generator = synthetic.Generator(rgb=40, flow=20, cue=cue)
        evidence = [generator.evidence(video) for video in generator.draw(drawn, 9)]
        oracle = script.Oracle(generator, drawn)
        truth = np.concatenate(list(drawn.values()))
        for n in (1, 32, None):
            scores = np.concatenate(oracle.scores(evidence, n))
            assert scores.sum(1) == pytest.approx(1, abs=1e-3)
            found[cue, n] = per_frame(scores, truth, THUMOS_CLASSES)["mAP"]
    assert found[2.0, 1] + 0.1 < found[2.0, 32] < found[2.0, None] - 0.1
    assert found[0.0, None] < found[2.0, None] - 0.03


def test_an_oracle_of_a_whole_video_is_the_one_of_all_so_far(script, synthetic):
    generator, drawn = synthetic.Generator(rgb=40, flow=20), labels(3, 60)
    oracle = script.Oracle(generator, labels(20))
    evidence = [generator.evidence(video) for video in generator.draw(drawn, 0)]
    for one, other in zip(oracle.scores(evidence, 60), oracle.scores(evidence, None), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.fixture
def published(tmp_path) -> Path:
    """A folder of targets named as the published ones: eleven videos to train on and two to test on."""
    random = np.random.default_rng(0)
    folder = tmp_path / "published" / "target_perframe"
    folder.mkdir(parents=True)
    for v in range(13):
        name = f"video_{'test' if v > 10 else 'validation'}_{v:07}.npy"
        np.save(folder / name, sequence(random, 220 + 4 * v, 1 + v % 2))
    return folder.parent


@pytest.mark.long
def test_rows_run_once(script, published, tmp_path, monkeypatch, capsys):
    output = tmp_path / "record.json"
    size = {"width": 32, "rgb": 32, "flow": 16, "epochs": 2, "patience": 1}
    arguments = [str(published), "-o", str(output), *(f"--{name}={value}" for name, value in size.items())]
    script.main([*arguments, "--rows", "none"])
    assert json.loads(output.read_text())["rows"] == [] and "oracle-all" in capsys.readouterr().out
    script.main([*arguments, "--rows", "memory-0"])
    script.main([*arguments, "--rows", "memory-0", "memory-8"])
    record = json.loads(output.read_text())
    assert [entry["row"] for entry in record["rows"]] == ["memory-0", "memory-8"] and record["videos"] == [10, 1, 2]
    assert set(record["oracles"]) == set(script.ORACLES)
    for entry in record["rows"]:
        assert entry["interval"][0] <= entry["interval"][1] and 0 < entry["mAP"] <= 1
        assert 0 < entry["mAP_of_training_labels"] <= 1
        assert set(entry["AP"]) == set(THUMOS_CLASSES[1:3]) and 1 <= len(entry["epochs"]) <= 2
    capsys.readouterr()
    monkeypatch.setattr(script, "train_row", lambda *_: pytest.fail("a row of the record was run again"))
    script.main([*arguments, "--rows", "memory-0", "memory-8"])
    assert "| memory-8 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="another size"):
        script.main([*arguments[:-1], "--epochs", "3", "--rows", "memory-0"])


def test_the_weights_are_those_of_the_best_epoch(script, synthetic, published, monkeypatch):
    """And the row ends when no later epoch was better."""
    videos = script.make_videos(published, synthetic.Generator(rgb=32, flow=16))
    model, config = script.settings("memory-0", 0, script.Size(width=32, rgb=32, flow=16, epochs=9, lr=1e-3))
    real, kept = script.measures, []

    def worse(scores, of):
        kept.append(scores)
        return {**real(scores, of), "mAP": [0.3, 0.5, 0.4, 0.2][len(kept) - 1]}

    monkeypatch.setattr(script, "measures", worse)
    trained, history = script.train_row(model, config, 2, videos, "cpu", 1)
    assert [one["validation"] for one in history] == [0.3, 0.5, 0.4, 0.2]
    again = [script.predict(trained, video.features[:]).numpy() for video in videos.validation]
    assert np.array_equal(again[0], kept[1][0]) and not np.array_equal(again[0], kept[3][0])


def test_every_row_of_the_study_is_a_model(script):
    shapes = {row: script.settings(row, 0, script.SMALL)[0] for row in script.EVERY}
    assert len({shapes[row] for row in script.ROWS}) == len(script.ROWS)
    assert {shapes[row].long_length for row in script.AGAINST_HEART} == {512}
    assert script.settings("memory-128-hide-80", 0, script.SMALL)[1].hide_long == 0.8
    assert {shapes[f"memory-{seconds}"].long_length for seconds in (0, 8, 32, 128, 512)} == {0, 32, 128, 512, 2048}
    full, _ = script.settings(script.PROPOSED, 0, script.FULL)
    assert (full.d_model, full.n_heads, full.n_long) == (1024, 16, 512)
    assert set(script.REDUCED) <= set(script.ROWS)


def test_no_row_begins_that_would_end_too_late(script, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(script, "perf_counter", lambda: clock[0])
    until, rows = script.Until(10), []
    for seconds in (200, 250, 100, 300):
        if until.lets_begin():
            clock[0] += seconds
            until.count()
            rows.append(seconds)
    assert rows == [200, 250], "the third may take as long as the second"
    assert script.Until(None).lets_begin()


def test_a_gpus_study_fits_its_time(script):
    """By the arithmetic beside its size: steps of THUMOS'14 (403 an epoch) and the videos to test on."""
    steps = len(script.ROWS) * script.FULL.epochs * 403
    assert steps * 0.012 + len(script.ROWS) * 60 <= 60 * script.MINUTES
