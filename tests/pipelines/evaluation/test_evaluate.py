"""The evaluation job as Python callers use it: options in, events out."""

import json
from dataclasses import replace

import numpy as np

from lstr import checkpoint
from lstr.batch import predict
from lstr.kinds import configure, make_model
from lstr.labels.label_set import AMBIGUOUS
from lstr.metrics.per_frame import per_frame
from lstr.pipelines.evaluation.analysis import without_nan
from lstr.pipelines.evaluation.evaluate import OTHER_CHUNKS, RANDOM, EvaluateOptions, evaluate
from lstr.pipelines.evaluation.scoring import score_split
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.progress import Finished, Notice, Progress, result_of
from tests.support.feature_set import TINY


def options(small_set, *checkpoints, **more) -> EvaluateOptions:
    paths = checkpoints or (small_set.checkpoint,)
    return EvaluateOptions(paths, [small_set.features], small_set.labels, "training", resamples=20, **more)


def test_its_last_event_has_the_metrics(small_set, tmp_path):
    events = list(evaluate(options(small_set, output=tmp_path)))
    assert [event.done for event in events if isinstance(event, Progress)] == [0, 1, 2, 3]
    assert RANDOM in [event.text for event in events if isinstance(event, Notice)]
    assert [isinstance(event, Finished) for event in events] == [False] * (len(events) - 1) + [True]
    result = events[-1].result
    split = read_split(small_set.features, small_set.labels, "training")
    scored = result_of(score_split(checkpoint.load(small_set.checkpoint), split)).document
    assert result.document["lstr"] == without_nan(scored["lstr"])
    assert result.page == tmp_path / "report.html" and RANDOM in result.page.read_text()
    assert json.loads((tmp_path / "evaluation.json").read_text()) == result.document


def test_kinds_that_are_scored_on_different_chunks_are_compared_with_a_warning(feature_set, tmp_path):
    """Each of two videos has 64 chunks: GateHUB's first is never scored, and MiniROAD has all."""
    settings = {**TINY, "rgb_dim": 6, "flow_dim": 2, "long_stride": 1}
    for kind in ("miniroad", "gatehub", "rnn"):
        model = make_model(configure(**settings, kind=kind), 3)
        checkpoint.save(tmp_path / f"{kind}.pt", model, ("Background", "A", "B"), None, {})

    def told(*kinds, published=True):
        paths = [tmp_path / f"{kind}.pt" for kind in kinds]
        chosen = EvaluateOptions(paths, [feature_set.features], feature_set.labels, resamples=20, published=published)
        events = list(evaluate(chosen))
        return [event.text for event in events if isinstance(event, Notice)], events[-1].result.document["checkpoints"]

    texts, (first, second) = told("miniroad", "gatehub")
    assert OTHER_CHUNKS in texts and (first["chunks"], second["chunks"]) == (128, 126)
    assert (first["published_rule"], second["published_rule"]) == ("MiniROAD", "GateHUB")
    texts, (first, second) = told("gatehub", "rnn", published=False)
    assert OTHER_CHUNKS not in texts
    assert first["chunks"] == second["chunks"] == 128 and first["conventions"]["published"]["chunks"] == 126


def test_labels_may_leave_open_what_the_model_has_no_class_for(small_set, tmp_path):
    """`Ambiguous` of labels alone is in no figure, as that of a model."""
    content = json.loads(small_set.labels.read_text())
    content["classes"].append(AMBIGUOUS)
    name = min(i for i, video in content["database"].items() if video["subset"] == "training")
    content["database"][name]["annotations"].append({"label": AMBIGUOUS, "segment": [0, 1]})
    (tmp_path / "labels.json").write_text(json.dumps(content))
    chosen = replace(options(small_set), labels=tmp_path / "labels.json")
    document = result_of(evaluate(chosen)).document
    loaded = checkpoint.load(small_set.checkpoint)
    split = read_split(small_set.features, small_set.labels, "training")
    keep = [slice(4 * (video.id == name), None) for video in split.videos]
    scores = [predict(loaded.model, video.features[:]).numpy()[k] for video, k in zip(split.videos, keep, strict=True)]
    truth = [video.targets[k] for video, k in zip(split.videos, keep, strict=True)]
    expected = per_frame(np.concatenate(scores), np.concatenate(truth), loaded.classes)
    assert document["lstr"] == without_nan(expected)
    assert document["chunks"] == 60 and document["confusion"]["classes"] == [*loaded.classes, AMBIGUOUS]
