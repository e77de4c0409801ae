"""Features of other programs from training to events: formats, rates, and features of two kinds."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import lstr
from lstr.batch import predict
from lstr.chunk import Clock
from lstr.errors import CheckpointError, RecipeError, VideoError
from lstr.pipelines.model_files.packing import write_model
from tests.support.feature_set import TINY_SETTINGS
from tests.support.foreign_stores import write_store

SECONDS = 12
SEGMENTS = {f"v{n}": [(1.3 + n / 7, 3.1 + n / 3), (6.7, 8.9 - n / 9)] for n in range(5)}
"""Start and end in seconds, at which no chunk of any rate begins"""


def rows_of(video: str, clock: Clock, seconds: int = SECONDS) -> np.ndarray:
    """Return features (L, 8) float32 of a video: noise, with larger first three numbers during the action."""
    length = int(seconds * clock.rate)
    rows = np.random.default_rng([ord(video[-1]), length]).normal(0, 0.3, (length, 8)).astype(np.float32)
    for start, end in SEGMENTS[video]:
        first, stop = clock.first(start), clock.end(end)
        rows[max(0, first) : stop, :3] += 2.0
    return rows


def write_set(folder: Path, clock: Clock, seconds: int = SECONDS) -> tuple[Path, Path]:
    """Write a store and its labels: three videos for training, one for validation, one for testing."""
    subsets = ("training", "training", "training", "validation", "testing")
    database = {
        video: {
            "subset": subset,
            "duration": SECONDS,
            "annotations": [{"segment": list(times), "label": "wave"} for times in segments],
        }
        for (video, segments), subset in zip(SEGMENTS.items(), subsets, strict=True)
    }
    labels = folder / "labels.json"
    labels.write_text(json.dumps({"classes": ["Background", "wave"], "database": database}))
    arrays = {video: rows_of(video, clock, seconds) for video in SEGMENTS}
    return write_store(folder / "store", "npz packed", arrays), labels


TINY = {**TINY_SETTINGS, "model.dropout": "0", "train.lr": "0.01", "train.warmup": "0.1"}
"""Settings of a model that learns the action in a hundred steps"""


def train(folder, store, labels, max_steps=1, settings=None, **options):
    settings = {**TINY, "train.seed": "1", "train.max_steps": str(max_steps), **(settings or {})}
    return lstr.train(store, labels, folder / "run", settings=settings, device="cpu", **options).checkpoint


def detect_timeline(model, store, video):
    """Detect all videos; return the timeline of one, and its segments as an array of starts and ends."""
    decisions = model.detect(store)
    list(decisions)
    timeline = decisions.timelines[video]
    return timeline, np.array([(segment["start"], segment["end"]) for segment in timeline["segments"]])


@pytest.mark.long
@pytest.mark.parametrize("rate", ["5", pytest.param("30000/1001", marks=pytest.mark.slow)])
def test_actions_are_detected_at_each_rate(tmp_path, rate):
    """Within a chunk of their labels, by evaluation and detection alike."""
    clock = Clock(Fraction(rate))
    store, labels = write_set(tmp_path, clock)
    path = train(tmp_path, store, labels, 80, {"features.rate": rate})
    document = lstr.evaluate(path, store, labels, subset="testing", device="cpu").document
    assert document["lstr"]["mAP"] > 0.95 and document["delay"]["median"] <= 2 * clock.seconds
    assert document.get("seconds_per_chunk", 0.25) == clock.seconds
    with lstr.load(path) as model:
        assert model.clock == clock and model.store["formats"] == {"rgb": "npz"}
        timeline, segments = detect_timeline(model, store, "v4")
        scores = np.stack([d.scores for d in model.detect_features(rows_of("v4", clock))])
    expected = [(clock.at(clock.first(start)), clock.at(clock.end(end))) for start, end in SEGMENTS["v4"]]
    assert segments.shape == (2, 2) and np.abs(segments - expected).max() <= clock.seconds + 1e-9
    assert all(time == float(clock.nearest(time) / clock.rate) for time in segments.flat), "times of chunks, exactly"
    assert timeline["seconds_per_chunk"] == clock.seconds and timeline["chunks"] == len(scores)
    assert np.abs(scores - predict(model.model, rows_of("v4", clock)).numpy()).max() < 1e-5


@pytest.fixture(scope="module")
def videomae(tmp_path_factory):
    """A model with its store, labels and clock: 7.5 features per second, each at the end of a window of 16 frames."""
    folder = tmp_path_factory.mktemp("videomae")
    clock = Clock(Fraction(15, 2), Fraction(2, 5))
    store, labels = write_set(folder, clock, seconds=11)
    settings = {"features.rate": "7.5", "features.offset": "0.4", "features.name": "VideoMAE"}
    return train(folder, store, labels, 120, settings), store, labels, clock


@pytest.mark.long
def test_times_include_the_offset_of_the_features(videomae):
    path, store, labels, clock = videomae
    result = lstr.evaluate(path, store, labels, subset="testing", device="cpu")
    assert result.document["lstr"]["mAP"] > 0.95
    with lstr.load(path) as model:
        timeline, segments = detect_timeline(model, store, "v1")
        assert next(model.detect(store)).time == 0.4 + 2 / 15 == clock.at(1)
        part = list(model.detect(store, limits=lstr.Limits(start=5.0, duration=1.0)))
    expected = [clock.at(clock.first(start)) for start, _ in SEGMENTS["v1"]]
    assert np.abs(segments[:, 0] - expected).max() <= clock.seconds + 1e-9
    assert timeline["clock"] == {"rate": "15/2", "offset": "2/5"}
    assert clock.at(part[0].chunk) <= 5.0 < part[0].time and len(part) == 5 * 8


@pytest.mark.long
def test_features_of_two_kinds_are_not_mixed(videomae, tmp_path, small_set):
    """A packed model has the rate and the description of its features too."""
    path, store, _, clock = videomae
    model = write_model(tmp_path / "wave.lstr", path, None, {})
    assert "VideoMAE" in model.card() and "7.5" in model.card()
    with lstr.load(model.path) as packed, lstr.load(path) as checkpoint:
        assert packed.clock == clock and packed.store == checkpoint.store
        assert [d.score for d in packed.detect(store)] == [d.score for d in checkpoint.detect(store)]
        with pytest.raises(CheckpointError, match="VideoMAE"):
            list(packed.detect(small_set.videos))
        with pytest.raises(RecipeError):
            list(packed.detect(small_set.features))
    with pytest.raises(CheckpointError):
        model.recipe  # noqa: B018
    with lstr.load(small_set.checkpoint) as extracting, pytest.raises(RecipeError):
        list(extracting.detect(store))
    with pytest.raises(RecipeError):
        train(tmp_path, small_set.features, small_set.labels, settings={"features.rate": "5"})


@pytest.mark.long
def test_invalid_vectors_are_refused(videomae):
    path, _, _, clock = videomae
    with lstr.load(path) as model:
        for vector in (np.ones(7), "text", {"flow": np.ones(8)}):
            with pytest.raises(VideoError):
                list(model.detect_features([rows_of("v0", clock)[0], vector]))
        rows = [{"rgb": row} for row in rows_of("v0", clock)[:5]]
        assert [d.time for d in model.detect_features(rows)] == [clock.at(k) for k in range(1, 6)]


@pytest.mark.long
def test_a_run_resumes_only_with_the_same_features(tmp_path):
    store, labels = write_set(tmp_path, Clock(Fraction(15, 2)))
    settings = {"features.rate": "7.5"}
    train(tmp_path, store, labels, settings=settings)
    train(tmp_path, store, labels, settings=settings, resume=True)
    with pytest.raises(CheckpointError, match=r"data\.store\.rate"):
        train(tmp_path, store, labels, settings={"features.rate": "5"}, resume=True)
    config = tmp_path / "run" / "config.json"
    with lstr.load(lstr.train(store, labels, tmp_path / "copy", config=config, device="cpu").checkpoint) as model:
        assert model.clock == Clock(Fraction(15, 2)), "config.json has the rate too"
