"""The record of kinds by instances: what a row holds, and that every kind has settings."""

import numpy as np
import pytest

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import segments_of
from lstr.pipelines.datasets.dataset import LabelledVideo
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.training.config import resolve
from lstr.timeline import DEFAULT
from tests.support.benchmarks import benchmark

pytestmark = pytest.mark.long
CLASSES = ("Background", "A", "B", "Ambiguous")


@pytest.fixture(scope="module")
def script():
    return benchmark("instances")


def test_a_row_holds_every_figure_with_four_digits(script):
    random, videos = np.random.default_rng(0), []
    for name in "xyz":
        on = np.eye(4, dtype=np.uint8)[np.repeat(random.integers(0, 3, 10), 4)]
        videos.append(LabelledVideo(name, np.zeros((40, 1), np.float32), on))
    scores = [np.clip(0.6 * v.targets + random.uniform(0, 0.4, (40, 4)), 0, 1) for v in videos]
    told = [
        detect_events(rows, CLASSES, DEFAULT, segments_of(v.targets, CLASSES))
        for rows, v in zip(scores, videos, strict=True)
    ]
    row = script.measured(told, scores, videos, CLASSES)
    drawn = row.pop("drawn")
    assert row.keys() == {"frames", "instances", "starts", "segments", "events", "per_class"}
    assert row["per_class"].keys() == {"A", "B"} and len(row["instances"]["mAP"]) == 5
    low, high = row["instances"]["interval"]["mean"]
    assert low <= row["instances"]["mean"] <= high and round(low, 4) == low
    assert np.percentile(drawn, 2.5) == pytest.approx(low, abs=1e-4)
    assert told[0].seconds == 40 / FEATURES_PER_SECOND


def test_every_kind_has_settings_on_both_kinds_of_set(script):
    assert set(script.KINDS) <= script.CANDIDATES.keys()
    for changes in script.ON_THUMOS.values():
        size = script.thumos.SMALL
        chosen = {**size.changes(), **{f"model.{name}": value for name, value in changes.items()}}
        model, _ = resolve("thumos14", chosen, (size.rgb, size.flow))
        assert model.kind == changes.get("kind", "lstr")
