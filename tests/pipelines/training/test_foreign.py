"""Features of other people from training to events: each form, each rate, and what does not belong together."""

from fractions import Fraction

import numpy as np
import pytest

import lstr
from lstr.batch import predict
from lstr.chunk import Clock
from lstr.errors import CheckpointError, LabelsError, RecipeError, VideoError
from lstr.pipelines.model_files.packing import write_model
from tests.support.foreign_stores import FORMATS, SEGMENTS, TINY, rows_of, write_labels, write_set, write_store


def trained(folder, store, labels, max_steps=1, **options):
    """The checkpoint of a tiny model after some steps."""
    settings = {**TINY, "train.seed": "1", "train.max_steps": str(max_steps), **options.pop("settings", {})}
    return lstr.train(store, labels, folder / "run", settings=settings, device="cpu", **options).checkpoint


@pytest.mark.parametrize("form", [FORMATS[0], *(pytest.param(form, marks=pytest.mark.long) for form in FORMATS[1:])])
def test_each_form_is_learnt_from(tmp_path, form):
    store, labels, clock = write_set(tmp_path, form, "7.5")
    path = trained(tmp_path, store, labels, settings={"features.rate": "7.5"})
    with lstr.load(path) as model:
        assert model.clock == clock and model.store["formats"] == {"rgb": form.partition(" ")[0]}
        decisions = list(model.detect(store, limits=lstr.Limits(duration=2)))
    assert len(decisions) == 5 * 15
    assert [one.time for one in decisions[:15]] == [float(Fraction(k, 1) / clock.rate) for k in range(1, 16)]
    expected = predict(model.model, rows_of("v0", clock)[:15]).numpy()
    assert np.abs(np.stack([one.scores for one in decisions[:15]]) - expected).max() < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("rate", ["5", pytest.param("30000/1001", marks=pytest.mark.slow)])
def test_actions_are_found_at_each_rate(tmp_path, rate):
    """What was planted is found within a chunk of where it is, by evaluation and by detection alike."""
    store, labels, clock = write_set(tmp_path, "npy", rate)
    path = trained(tmp_path, store, labels, 120, settings={"features.rate": rate})
    document = lstr.evaluate(path, store, labels, subset="testing", device="cpu").document
    assert document["lstr"]["mAP"] > 0.95 and document["delay"]["median"] <= 2 * clock.seconds
    assert document.get("seconds_per_chunk", 0.25) == clock.seconds
    with lstr.load(path) as model:
        decisions = model.detect(store)
        list(decisions)
        timeline = decisions.timelines["v4"]
        vectors = [one.scores for one in model.detect_features(rows_of("v4", clock))]
    found = [(one["start"], one["end"]) for one in timeline["segments"]]
    on_grid = [(clock.at(clock.first(start)), clock.at(clock.end(end))) for start, end in SEGMENTS["v4"]]
    assert len(found) == 2 and np.abs(np.array(found) - on_grid).max() <= clock.seconds + 1e-9
    edges = [time for one in found for time in one]
    assert edges == [float(clock.nearest(time) / clock.rate) for time in edges], "to the bit on the grid"
    assert timeline["seconds_per_chunk"] == clock.seconds and timeline["chunks"] == len(vectors)
    assert np.abs(np.stack(vectors) - predict(model.model, rows_of("v4", clock)).numpy()).max() < 1e-5


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A model of features at 7.5 a second that begin with the end of a window of 16 frames, its store and labels."""
    folder = tmp_path_factory.mktemp("learnt")
    clock = Clock(Fraction(15, 2), Fraction(2, 5))
    store = write_store(folder / "store", "npy", {video: rows_of(video, clock, seconds=11) for video in SEGMENTS})
    said = {"features.rate": "7.5", "features.offset": "0.4", "features.name": "VideoMAE"}
    labels = write_labels(folder / "labels.json")
    return trained(folder, store, labels, 120, settings=said), store, labels, clock


@pytest.mark.long
def test_what_begins_later_is_found_where_it_is(learnt):
    path, store, labels, clock = learnt
    result = lstr.evaluate(path, store, labels, subset="testing", device="cpu")
    assert result.document["lstr"]["mAP"] > 0.95
    with lstr.load(path) as model:
        decisions = model.detect(store)
        first = next(decisions)
        list(decisions)
        some = list(model.detect(store, limits=lstr.Limits(start=5.0, duration=1.0)))
    assert first.time == 0.4 + 2 / 15 == clock.at(1)
    timeline = decisions.timelines["v1"]
    on_grid = [clock.at(clock.first(start)) for start, _ in SEGMENTS["v1"]]
    starts = np.array([one["start"] for one in timeline["segments"]])
    assert np.abs(starts - on_grid).max() <= clock.seconds + 1e-9
    assert timeline["clock"] == {"rate": "15/2", "offset": "2/5"}
    assert clock.at(some[0].chunk) <= 5.0 < some[0].time and len(some) == 5 * 8


@pytest.mark.long
def test_a_packed_model_keeps_rate_and_description(learnt, tmp_path, small_set):
    """And does not mix these features with those that are made here."""
    path, store, *_ = learnt
    model = write_model(tmp_path / "wave.lstr", path, None, {})
    assert "VideoMAE" in model.card() and "7.5" in model.card()
    with lstr.load(model.path) as packed, lstr.load(path) as loose:
        assert packed.clock == learnt[3] and packed.store == loose.store
        assert [d.score for d in packed.detect(store)] == [d.score for d in loose.detect(store)]
        with pytest.raises(CheckpointError, match="VideoMAE"):
            list(packed.detect(small_set.videos))
        with pytest.raises(RecipeError):
            list(packed.detect(small_set.features))
    with pytest.raises(CheckpointError):
        model.recipe  # noqa: B018
    with lstr.load(small_set.checkpoint) as made_here, pytest.raises(RecipeError):
        list(made_here.detect(store))
    with pytest.raises(RecipeError):
        trained(tmp_path, small_set.features, small_set.labels, settings={"features.rate": "5"})


@pytest.mark.long
def test_vectors_that_do_not_fit_are_refused(learnt):
    path, _, _, clock = learnt
    with lstr.load(path) as model:
        for wrong in (np.ones(7), "text", {"flow": np.ones(8)}):
            with pytest.raises(VideoError):
                list(model.detect_features([rows_of("v0", clock)[0], wrong]))
        named = [{"rgb": row} for row in rows_of("v0", clock)[:5]]
        assert [one.time for one in model.detect_features(named)] == [clock.at(k) for k in range(1, 6)]


@pytest.mark.long
def test_a_run_resumes_with_the_same_features_alone(tmp_path):
    store, labels, _ = write_set(tmp_path, "npy", "7.5")
    said = {"features.rate": "7.5"}
    trained(tmp_path, store, labels, settings=said)
    trained(tmp_path, store, labels, settings=said, resume=True)
    with pytest.raises(CheckpointError, match=r"data\.store\.rate"):
        trained(tmp_path, store, labels, settings={"features.rate": "5"}, resume=True)
    again = lstr.train(store, labels, tmp_path / "again", config=tmp_path / "run" / "config.json", device="cpu")
    with lstr.load(again.checkpoint) as model:
        assert model.clock == Clock(Fraction(15, 2)), "a config.json says it too"


def test_ids_that_differ_are_suggested(tmp_path):
    store, _, _ = write_set(tmp_path, "npy", "5")
    labels = write_labels(tmp_path / "others.json", {video: f"test/{video}.mp4x" for video in SEGMENTS})
    with pytest.raises(LabelsError, match="test/v0.mp4x.*'v0'"):
        trained(tmp_path, store, labels, settings={"features.rate": "5"})
