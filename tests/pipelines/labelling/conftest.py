"""Labels projects."""

import pytest

from lstr.pipelines.labelling.label import label
from lstr.pipelines.labelling.project import Project


@pytest.fixture
def project(tmp_path):
    """A new project, with the durations of two videos."""
    with Project(tmp_path / "labels.json", durations={"a": 20.0, "complete": 5.0}) as opened:
        yield opened


@pytest.fixture
def labelling(folder, tmp_path):
    """The project of the videos in the `folder` of a test's module."""
    with label([str(folder)], tmp_path / "labels.json") as opened:
        yield opened
