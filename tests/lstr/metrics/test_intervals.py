"""Intervals: resamples of videos equal the metrics of their videos, and rates have Poisson intervals."""

import numpy as np
import pytest
from scipy.special import pdtr, pdtrc

from lstr.labels.label_set import segments_of
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.metrics.intervals import draw, interval, interval_text, rate_interval
from lstr.metrics.per_frame import per_frame, resampled_means
from lstr.metrics.ranked import measure_instances, start_precision
from lstr.metrics.segmentation import measure_segmentation
from tests.support.drawn import scores_of, targets_of

CLASSES = ("Background", "A", "B", "Ambiguous")


def events(videos):
    return [VideoEvents(segments_of(on, CLASSES), segments_of(scores > 0.5, CLASSES), 10.0) for scores, on in videos]


def starts(videos, draws):
    scores, targets = zip(*videos, strict=True)
    return start_precision(scores, targets, [segments_of(on, CLASSES) for on in targets], CLASSES, (1, 3), draws)


MEASURES = {
    "segmentation": (lambda v, d: measure_segmentation(*zip(*v, strict=True), CLASSES, draws=d), "edit"),
    "instances": (lambda v, d: measure_instances(events(v), CLASSES, draws=d), "mean"),
    "starts": (starts, "mean"),
    "actions": (lambda v, d: measure_events(events(v), CLASSES, d)["together"], "recall"),
}


@pytest.mark.parametrize("together", [10, 10**6], ids=["computed in parts", "at once"])
@pytest.mark.parametrize("name", MEASURES)
def test_intervals_equal_those_of_resampled_videos(name, together, monkeypatch):
    monkeypatch.setattr("lstr.metrics.per_frame.CELLS_TOGETHER", together)
    measure, figure = MEASURES[name]
    random = np.random.default_rng(1)
    texts = [["".join(random.choice(list("..AAAB?"), 40)) for _ in range(2)] for _ in range(5)]
    videos = [(scores_of(scores), targets_of(on)) for scores, on in texts]
    draws, values = draw(5, 12), []
    for times in draws:
        result = measure([videos[i] for i in np.repeat(np.arange(5), times)], None)
        values.append(result[figure] if name != "actions" else result["iou"]["0.3"][figure])
    edges = interval(np.array(values))
    assert measure(videos, draws)["interval"][figure] == pytest.approx(edges) and edges[0] < edges[1]


@pytest.mark.parametrize("classes", [CLASSES, (*CLASSES[:3], "C")])
def test_means_per_frame_equal_those_of_resampled_videos(classes):
    """A class that was not drawn is in no mean: one video has B, and another has no action."""
    rng = np.random.default_rng(0)
    scores = [rng.random((20 + i, 4)) for i in range(4)]
    shares = ([0.5, 0.4, 0, 0.1], [0.5, 0.4, 0, 0.1], [0.5, 0, 0.4, 0.1], [1, 0, 0, 0])
    targets = [np.eye(4, dtype=int)[rng.choice(4, len(rows), p=p)] for rows, p in zip(scores, shares, strict=True)]
    draws = [*draw(4, 10), np.array([4, 0, 0, 0]), np.array([0, 0, 0, 4])]
    means = [resampled_means(scores, targets, classes, np.stack(draws), c) for c in (False, True)]
    for i, times in enumerate(draws):
        chosen = np.repeat(np.arange(4), times)
        rows, on = np.concatenate([scores[v] for v in chosen]), np.concatenate([targets[v] for v in chosen])
        expected = per_frame(rows, on, classes)
        assert [means[0][i], means[1][i]] == pytest.approx([expected["mAP"], expected["mcAP"]], nan_ok=True)


def test_draws_are_the_same_for_every_checkpoint():
    assert (draw(7, 50) == draw(7, 50)).all() and draw(7, 0).shape == (0, 7)
    assert (draw(7, 50).sum(axis=1) == 7).all() and len(np.unique(draw(7, 50), axis=0)) > 40


def test_an_interval_has_95_percent_of_the_values():
    assert interval(np.arange(101) / 100) == pytest.approx([0.025, 0.975])
    assert interval(np.array([0.5, np.nan])) == [0.5, 0.5] and np.isnan(interval(np.array([np.nan]))).all()
    for edges, figures in (([139.2, 533.9], ["140", "530"]), ([0.0253, 5.57], ["0.025", "5.6"]), ([0.0, 3.0], ["3.0"])):
        assert all(figure in interval_text(edges) for figure in figures)


@pytest.mark.parametrize("count, hours", [(1, 0.5), (2, 3.0), (130, 0.5), (0, 15 / 3600)])
def test_a_rate_has_the_interval_of_a_poisson_count(count, hours):
    low, high = rate_interval(count, hours)
    if count:
        assert pdtrc(count - 1, low * hours) == pytest.approx(0.025)
        assert pdtr(count, high * hours) == pytest.approx(0.025)
    else:
        assert low == 0 and pdtr(0, high * hours) == pytest.approx(0.05), "an upper bound"
    assert low <= count / hours < high and rate_interval(count, 0) is None
