"""Drawings of an evaluation have room for what is in them; matplotlib warns of one that has not."""

import pytest

from lstr.pipelines.evaluation.figures import draw_operating_curves
from lstr.pipelines.pages.figure import render

pytestmark = pytest.mark.filterwarnings("error:constrained_layout")


def test_what_is_known_of_a_rate_is_within_the_axes():
    """No false alarm in 16 s leaves 680 an hour open: that line went far out of axes that ended at 1."""
    found = {"labels": 3, "found": 2, "false_alarms": 0, "false_alarms_per_hour": 0.0}
    points = [{"false_alarms_per_hour": 0.0, "recall": 0.6}]
    document = {
        "confusion": {"classes": ["Background", "fall"]},
        "events": {
            "hours": 16 / 3600,
            "together": found,
            "per_class": {"fall": found},
            "operating_curves": {"together": points, "per_class": {"fall": points}},
        },
    }
    figure = draw_operating_curves(document)
    assert figure.axes[0].get_xlim()[1] > 600
    assert b"fill: #ffffff" not in render(figure, "svg"), "a page may be dark"
