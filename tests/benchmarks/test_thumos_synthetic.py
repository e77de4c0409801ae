"""Synthetic features on THUMOS'14 labels: what the generator promises, and the script from labels to table."""

import importlib
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from extractors.errors import OutputError
from lstr.labels import THUMOS_CLASSES
from pipelines.datasets.dataset import read_dataset

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BACKGROUND, AMBIGUOUS = 0, 21


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
    """One-hot targets (L, 22) of a video with instances of one class of 12 chunks each, as far apart as they like."""
    on = np.zeros(n_chunks, dtype=int)
    for start in np.arange(random.integers(10, 40), n_chunks - 12, 40):
        on[start : start + 12] = label
    return np.eye(len(THUMOS_CLASSES), dtype=np.uint8)[on]


@pytest.fixture
def published(tmp_path) -> Path:
    """A folder of targets named as the published ones: four videos to train on and two to test on."""
    random = np.random.default_rng(0)
    folder = tmp_path / "published" / "target_perframe"
    folder.mkdir(parents=True)
    for v in range(6):
        name = f"video_{'test' if v > 3 else 'validation'}_{v:07}.npy"
        np.save(folder / name, sequence(random, 90 + 10 * v, 1 + v % 2))
    return folder.parent


def test_the_same_settings_give_the_same_features_in_any_order(synthetic):
    targets = sequence(np.random.default_rng(0), 60, 3)
    first = synthetic.Generator().features("a", targets)
    synthetic.Generator().features("b", targets)
    again = synthetic.Generator().features("a", targets)
    assert [array.shape for array in first] == [(60, 2048), (60, 1024)]
    assert all(array.dtype == np.float16 and np.isfinite(array).all() for array in first)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    for other in (synthetic.Generator().features("b", targets), synthetic.Generator(seed=1).features("a", targets)):
        assert not np.array_equal(first[0], other[0])
    assert 0.8 < first[0].astype(np.float32).std() < 1.6  # no scaling is needed before training


def test_features_know_nothing_of_the_future(synthetic):
    targets = sequence(np.random.default_rng(0), 60, 3)
    later = targets.copy()
    later[40:] = targets[0]
    changed = [
        np.abs(one - other).max(axis=1)
        for one, other in zip(
            synthetic.Generator().latents("a", targets), synthetic.Generator().latents("a", later), strict=True
        )
    ]
    assert targets[40:, 3].any()
    assert all((change[:40] == 0).all() and (change > 0).any() for change in changed)


def test_background_says_nothing_and_ambiguous_no_class(synthetic):
    means = synthetic.Generator().means("flow")
    assert (means[BACKGROUND] == 0).all()
    assert means[AMBIGUOUS] == pytest.approx(means[1:21].mean(axis=0), abs=0.5)
    assert len(np.unique(means.round(6), axis=0)) == len(THUMOS_CLASSES)


def named(rows: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The action (N,), counted from 1, that a chunk (N, rank) lies furthest towards: a perfect classifier of it."""
    return 1 + (rows @ directions.T).argmax(axis=1)


def test_evidence_is_weak_in_a_chunk_and_grows_with_context(synthetic, script):
    """Well inside an instance, an action is named better from two seconds, and better still knowing the background."""
    random, generator = np.random.default_rng(0), synthetic.Generator()
    videos = [sequence(random, 400, 1 + v % 20) for v in range(60)]
    for stream, name in enumerate(("rgb", "flow")):
        directions, right = generator.directions(name)[2:22], {"chunk": [], "two seconds": [], "and background": []}
        for v, targets in enumerate(videos):
            rows = generator.latents(str(v), targets)[stream]
            inside = np.convolve(targets[:, 1:21].sum(axis=1), np.ones(8))[: len(targets)] == 8
            scene = rows[targets[:, BACKGROUND] > 0].mean(axis=0)
            views = (rows, script.running_mean(rows, 8), script.running_mean(rows, 8) - scene)
            for found, view in zip(right.values(), views, strict=True):
                found.extend(named(view[inside], directions) == targets[inside].argmax(axis=1))
        chunk, seconds, background = (np.mean(found) for found in right.values())
        assert 0.1 < chunk < 0.5
        assert chunk + 0.1 < seconds < background - 0.05 < 0.95


def test_labels_are_the_published_ones(synthetic, shared, tmp_path):
    names = [path.name for path in sorted((shared / "data/thumos14/target_perframe").glob("*.npy"))[::60]]
    published = tmp_path / "published" / "target_perframe"
    published.mkdir(parents=True)
    for name in names:
        (published / name).symlink_to(shared / "data/thumos14/target_perframe" / name)
    info = synthetic.write_features(tmp_path / "features", published.parent, synthetic.Generator())
    dataset = read_dataset(tmp_path / "features", info)
    seen = 0
    for subset in ("training", "testing"):
        for video in dataset.split(subset).videos:
            wanted = np.load(published / f"{video.id}.npy")
            assert video.features[:2].shape == (2, 3072) and len(video.features) == len(wanted)
            assert np.array_equal(video.targets, wanted)
            seen += 1
    assert seen == len(names) == 7


def test_features_are_not_made_twice(synthetic, published, tmp_path):
    synthetic.write_features(tmp_path / "features", published, synthetic.Generator())
    files = sorted((tmp_path / "features").rglob("*.npy"))
    assert len(files) == 12
    before = [file.stat().st_mtime_ns for file in files]
    synthetic.write_features(tmp_path / "features", published, synthetic.Generator())
    assert [file.stat().st_mtime_ns for file in files] == before
    with pytest.raises(OutputError, match="another generator"):
        synthetic.write_features(tmp_path / "features", published, synthetic.Generator(seed=1))


def test_rows_run_once_and_resume(script, synthetic, published, tmp_path, monkeypatch, capsys):
    streams = {name: replace(getattr(synthetic.Generator(), name), width=48) for name in ("rgb", "flow")}
    monkeypatch.setattr(script, "Generator", lambda: synthetic.Generator(**streams))
    output = tmp_path / "record.json"
    arguments = [str(published), "--work", str(tmp_path / "work"), "--width", "32", "--epochs", "1", "-o", str(output)]
    script.main([*arguments, "--rows", "memory-0"])
    script.main([*arguments, "--rows", "memory-0", "memory-8"])
    record = json.loads(output.read_text())
    assert [entry["row"] for entry in record["rows"]] == ["memory-0", "memory-8"]
    assert record["what"] == "synthetic features on THUMOS'14 labels"
    assert set(record["baselines"]) == {"chance", "ridge-1-chunk", "ridge-8-chunks", "ridge-32-chunks"}
    for entry in record["rows"]:
        assert entry["interval"][0] <= entry["interval"][1] and 0 < entry["mAP"] <= 1
        assert set(entry["AP"]) == set(THUMOS_CLASSES[1:3])
    assert record["rows"][1]["model"]["long_length"] == 32
    capsys.readouterr()
    monkeypatch.setattr(script, "train_model", lambda *_, **__: pytest.fail("a row of the record was run again"))
    script.main([*arguments, "--rows", "memory-0", "memory-8"])
    assert "| memory-8 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="another size"):
        script.main([*arguments[:-4], "--epochs", "2", "-o", str(output), "--rows", "memory-0"])


def test_every_row_of_the_study_is_a_model(script):
    shapes = {row: script.settings(row, 0, script.SMALL, (2048, 1024))[0] for row in script.ROWS}
    assert len(set(shapes.values())) == len(shapes)
    assert {shapes[f"memory-{seconds}"].long_length for seconds in (0, 8, 32, 128, 512)} == {0, 32, 128, 512, 2048}
    full, _ = script.settings(script.PROPOSED, 0, script.FULL, (2048, 1024))
    assert (full.d_model, full.n_heads, full.n_long) == (1024, 16, 512)
    assert set(script.REDUCED) <= set(script.ROWS)


def test_the_documentation_shows_the_record(script):
    record = json.loads((BENCHMARKS / "thumos-synthetic.json").read_text())
    assert record["size"] == asdict(script.SMALL)
    assert record["chunks"] == [203363, 225222]  # all of THUMOS'14, the short videos too
    page = (BENCHMARKS.parent / "docs" / "explanation" / "synthetic-study.md").read_text()
    lines = [line for line in script.table(record).splitlines() if not line.startswith("|--")]
    rows = [re.sub(r"\| +(?=\|)", "| ", line) for line in lines]
    assert len(rows) > 10 and [row for row in rows if row not in page] == []


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
