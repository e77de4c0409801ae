"""Scores of checkpoints on labelled features, their baselines, and the events of an evaluation."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lstr import checkpoint
from lstr.batch import predict
from lstr.errors import LabelsError
from lstr.kinds import change, configure, make_model
from lstr.labels.label_set import AMBIGUOUS
from lstr.metrics.per_frame import per_frame
from lstr.pipelines.evaluation.analysis import analyse, resample, without_nan
from lstr.pipelines.evaluation.evaluate import OTHER_CHUNKS, RANDOM, EvaluateOptions, evaluate
from lstr.pipelines.evaluation.scoring import Scoring, baseline_scores, pooled_metrics, score_split
from lstr.pipelines.features.dataset import TwoStreamArray, read_split
from lstr.pipelines.progress import Finished, Notice, Progress, result_of
from tests.support.feature_set import TINY


@pytest.fixture
def loaded(small_set):
    return checkpoint.load(small_set.checkpoint)


@pytest.fixture
def split(small_set):
    return read_split(small_set.features, small_set.labels, "training")


def score(loaded, split, *scoring):
    return result_of(score_split(loaded, split, *scoring))


def test_metrics_of_scores_and_baselines(small_set, loaded, split):
    result = score(loaded, split).document
    scores = np.concatenate([predict(loaded.model, v.features[:]).numpy() for v in split.videos])
    truth = np.concatenate([v.targets for v in split.videos])
    assert result["lstr"] == per_frame(scores, truth, loaded.classes)
    assert result["lstr"]["mAP"] > 0.9 > result["time_prior"]["mAP"] > result["chance"]["mAP"]
    assert (result["videos"], result["chunks"], result["random_weights"]) == (3, 60, True)
    for label, values in result["chance"]["per_class"].items():
        share = truth[:, split.labels.classes.index(label)].mean()
        assert values["AP"] == pytest.approx(share) and values["cAP"] == pytest.approx(0.5)
    assert result["learnt_from"] == [video.id for video in split.videos]
    testing = read_split(small_set.features, small_set.labels, "testing")
    assert "learnt_from" not in score(loaded, testing).document


def test_baselines_use_only_the_training_subset(split):
    videos = {i: replace(v, segments=()) if v.subset == "testing" else v for i, v in split.labels.videos.items()}
    assert videos != split.labels.videos
    after = baseline_scores(replace(split.labels, videos=videos), [20])
    for name, scores in baseline_scores(split.labels, [20]).items():
        np.testing.assert_array_equal(scores, after[name])
    first, *others = (video.id for video in split.videos)
    videos = {i: replace(v, subset="training" if i == first else "testing") for i, v in split.labels.videos.items()}
    one_trained = replace(split, labels=replace(split.labels, videos=videos))
    assert pooled_metrics(one_trained, {}, folds=[[first], others]) == {}, "a fold has no other video to train on"


def shorten(video, length):
    features = TwoStreamArray(video.features.rgb[:length], video.features.flow[:length])
    return replace(video, features=features, targets=video.targets[:length])


@pytest.mark.parametrize(
    ("kind", "first", "stop", "code"),
    [("lstr", 0, 19, "LSTR"), ("gatehub", 1, 19, "GateHUB"), ("oadtr", 1, 16, "OadTR"), ("rnn", 0, 19, "LSTR")],
)
def test_published_chunks_of_a_kind(loaded, split, kind, first, stop, code):
    """Of videos of 19 chunks and one chunk, with a work memory of 2 and, for OadTR, 2 chunks predicted ahead.

    A video that is shorter than the work memory is excluded.
    """
    ahead = {"anticipation": 2} if kind == "oadtr" else {}
    config = change(loaded.config, {"kind": kind, "work_length": 2, "long_length": 0, **ahead})
    loaded = replace(loaded, config=config, model=make_model(config, len(loaded.classes)).eval())
    short = replace(split, videos=[shorten(split.videos[0], 19), shorten(split.videos[1], 1)])
    corrected, published = score(loaded, short), score(loaded, short, Scoring(published=True))
    assert (corrected.document["chunks"], corrected.document["kind"]) == (20, kind)
    assert (published.document["videos"], published.document["chunks"]) == (1, stop - first)
    assert (corrected.document["convention"], published.document["convention"]) == ("corrected", "published")
    with pytest.raises(LabelsError):
        score(loaded, replace(short, videos=short.videos[1:]), Scoring(published=True))
    targets = short.videos[0].targets[first:stop]
    expected = per_frame(corrected.scores[0][first:stop], targets, loaded.classes)
    assert published.document["lstr"] == expected
    analysed = analyse(corrected, resample(corrected, 5))
    means = {mean: expected[mean] for mean in ("mAP", "mcAP")}
    assert analysed["conventions"]["published"] == means | {"videos": 1, "chunks": stop - first}
    assert analysed["published_rule"] == code and analysed["conventions"]["corrected"]["chunks"] == 20


def test_a_stream_has_the_same_scores(loaded, split):
    batch, stream = (score(loaded, split, Scoring(mode=mode)).scores for mode in ("batch", "stream"))
    for a, b in zip(batch, stream, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=0)


def test_the_last_event_of_an_evaluation_has_the_metrics(small_set, loaded, split, tmp_path):
    about = {"features": [small_set.features], "labels": small_set.labels, "subset": "training", "output": tmp_path}
    options = EvaluateOptions([small_set.checkpoint], resamples=20, **about)
    *events, last = evaluate(options)
    assert [event.done for event in events if isinstance(event, Progress)] == [0, 1, 2, 3]
    assert RANDOM in [event.text for event in events if isinstance(event, Notice)]
    assert isinstance(last, Finished) and not any(isinstance(event, Finished) for event in events)
    assert last.result.document["lstr"] == without_nan(score(loaded, split).document["lstr"])
    assert last.result.page == tmp_path / "report.html" and RANDOM in last.result.page.read_text()
    assert json.loads((tmp_path / "evaluation.json").read_text()) == last.result.document


def test_a_warning_if_checkpoints_are_scored_on_different_chunks(feature_set, tmp_path):
    """Each of two videos has 64 chunks: MiniROAD scores all, GateHUB all but the first."""
    paths = [tmp_path / f"{kind}.pt" for kind in ("miniroad", "gatehub")]
    for path in paths:
        config = configure(**TINY | {"rgb_dim": 6, "flow_dim": 2, "long_stride": 1}, kind=path.stem)
        checkpoint.save(path, make_model(config, 3), ("Background", "A", "B"), None, {})
    for published, chunks in ((True, [128, 126]), (False, [128, 128])):
        where = {"features": [feature_set.features], "labels": feature_set.labels}
        *events, last = evaluate(EvaluateOptions(paths, **where, resamples=20, published=published))
        notices = [event.text for event in events if isinstance(event, Notice)]
        assert (OTHER_CHUNKS in notices) is published
        assert [entry["chunks"] for entry in last.result.document["checkpoints"]] == chunks


def test_ambiguous_labels_are_excluded_if_the_model_lacks_the_class(small_set, loaded, split, tmp_path):
    name, content, labels = split.videos[0].id, json.loads(small_set.labels.read_text()), tmp_path / "labels.json"
    content["classes"].append(AMBIGUOUS)
    content["database"][name]["annotations"].append({"label": AMBIGUOUS, "segment": [0, 1]})
    labels.write_text(json.dumps(content))
    about = {"features": [small_set.features], "labels": labels, "subset": "training"}
    options = EvaluateOptions([small_set.checkpoint], **about, resamples=20)
    document = result_of(evaluate(options)).document
    keep = [slice(4 * (video.id == name), None) for video in split.videos]
    scores = [predict(loaded.model, v.features[:]).numpy()[k] for v, k in zip(split.videos, keep, strict=True)]
    targets = [video.targets[k] for video, k in zip(split.videos, keep, strict=True)]
    expected = per_frame(np.concatenate(scores), np.concatenate(targets), loaded.classes)
    assert document["lstr"] == without_nan(expected)
    assert document["chunks"] == 60 and document["confusion"]["classes"] == [*loaded.classes, AMBIGUOUS]
