"""Per-frame evaluation and its two baselines."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import CheckpointError, LabelsError
from lstr.kinds import change, make_model
from lstr.metrics.per_frame import per_frame
from lstr.pipelines.evaluation.analysis import analyse, resample
from lstr.pipelines.evaluation.scoring import Scoring, baseline_scores, score_split
from lstr.pipelines.features.dataset import TwoStreamArray, read_split, subset_of
from lstr.pipelines.progress import result_of


def test_it_is_the_metric_of_the_scores(small_set):
    split = read_split(small_set.features, small_set.labels, "training")
    loaded = load(small_set.checkpoint)
    result = result_of(score_split(loaded, split)).document
    scores = np.concatenate([predict(loaded.model, v.features[:]).numpy() for v in split.videos])
    truth = np.concatenate([v.targets for v in split.videos])
    assert result["lstr"] == per_frame(scores, truth, loaded.classes)
    assert result["lstr"]["mAP"] > 0.9 > result["time_prior"]["mAP"] > result["chance"]["mAP"]
    assert (result["videos"], result["chunks"], result["random_weights"]) == (3, 60, True)
    for label, entry in result["chance"]["per_class"].items():
        share = truth[:, split.labels.classes.index(label)].mean()
        assert entry["AP"] == pytest.approx(share) and entry["cAP"] == pytest.approx(0.5)


def test_videos_that_it_has_learnt_from_are_marked(small_set):
    split = read_split(small_set.features, small_set.labels, "training")
    loaded = load(small_set.checkpoint)
    result = result_of(score_split(loaded, split)).document
    assert result["learnt_from"] == [video.id for video in split.videos]
    new = result_of(score_split(loaded, read_split(small_set.features, small_set.labels, "testing"))).document
    assert "learnt_from" not in new


def test_baselines_see_the_training_subset_only(small_set, tmp_path):
    content = json.loads(small_set.labels.read_text())
    before = baseline_scores(read_split(small_set.features, small_set.labels, None).labels, [20])
    for video in content["database"].values():
        if video["subset"] == "testing":
            video["annotations"] = []
    changed = tmp_path / "labels.json"
    changed.write_text(json.dumps(content))
    after = baseline_scores(read_split(small_set.features, changed, None).labels, [20])
    assert all((a == b).all() for name in before for a, b in zip(before[name], after[name], strict=True))


def test_unknown_subsets_and_classes_are_refused(small_set, tmp_path):
    labels = read_split(small_set.features, small_set.labels, None).labels
    assert subset_of(labels, None) == "testing"
    with pytest.raises(LabelsError, match="odd"):
        subset_of(labels, "odd")
    content = json.loads(small_set.labels.read_text())
    content["classes"] = [*content["classes"], "somersault"]
    (tmp_path / "labels.json").write_text(json.dumps(content))
    split = read_split(small_set.features, tmp_path / "labels.json", "testing")
    with pytest.raises(CheckpointError, match="somersault"):
        result_of(score_split(load(small_set.checkpoint), split))


def shortened(video, length):
    cut = TwoStreamArray(video.features.rgb[:length], video.features.flow[:length])
    return replace(video, features=cut, targets=video.targets[:length])


def test_short_videos_are_scored_unless_the_published_set_is_asked_for(small_set):
    split, loaded = read_split(small_set.features, small_set.labels, "training"), load(small_set.checkpoint)
    work, first = loaded.config.work_length, split.videos[0]
    mixed = replace(split, videos=[shortened(first, length) for length in (work, work - 1, 1)])
    made = result_of(score_split(loaded, mixed))
    assert made.document["convention"] == "corrected" and [len(rows) for rows in made.scores] == [work, work - 1, 1]
    result = result_of(score_split(loaded, mixed, Scoring(published=True))).document
    assert (result["videos"], result["chunks"], result["convention"]) == (1, work, "published")
    with pytest.raises(LabelsError, match=str(work)):
        result_of(score_split(loaded, replace(mixed, videos=mixed.videos[1:]), Scoring(published=True)))


@pytest.mark.parametrize(("kind", "chunks"), [("gatehub", 18), ("oadtr", 15), ("rnn", 19)])
def test_the_published_chunks_are_those_of_the_kind(lstr, small_set, tmp_path, kind, chunks):
    """Of a video of 19 chunks and one of a single chunk, with a work memory of 2 and 2 chunks predicted ahead."""
    split, loaded = read_split(small_set.features, small_set.labels, "training"), load(small_set.checkpoint)
    ahead = {"anticipation": 2} if kind == "oadtr" else {}
    config = change(loaded.config, {"kind": kind, "work_length": 2, "long_length": 0, **ahead})
    loaded = replace(loaded, config=config, model=make_model(config, len(loaded.classes)).eval())
    videos = [replace(shortened(split.videos[0], length), id=split.videos[at].id) for at, length in ((0, 19), (1, 1))]
    short = replace(split, videos=videos)
    everything = result_of(score_split(loaded, short))
    made = result_of(score_split(loaded, short, Scoring(published=True)))
    assert (everything.document["chunks"], everything.document["kind"]) == (20, kind)
    assert (made.document["videos"], made.document["chunks"]) == (1, chunks)
    first, stop = {"gatehub": (1, 19), "oadtr": (1, 16), "rnn": (0, 19)}[kind]
    scored = per_frame(everything.scores[0][first:stop], videos[0].targets[first:stop], loaded.classes)
    assert made.document["lstr"] == scored
    analysed = analyse(made, resample(made, 5))
    published = {m: scored[m] for m in ("mAP", "mcAP")} | {"videos": 1, "chunks": chunks}
    assert analysed["conventions"]["published"] == published
    assert analysed["published_rule"] == {"gatehub": "GateHUB", "oadtr": "OadTR", "rnn": "LSTR"}[kind]


def test_a_stream_scores_the_same(small_set):
    split, loaded = read_split(small_set.features, small_set.labels, "training"), load(small_set.checkpoint)
    batch, stream = (result_of(score_split(loaded, split, Scoring(mode))) for mode in ("batch", "stream"))
    for a, b in zip(batch.scores, stream.scores, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=0)
