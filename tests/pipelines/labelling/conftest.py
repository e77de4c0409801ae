"""A labels project that is served."""

import pytest

from lstr.pipelines.labelling.label import label


@pytest.fixture
def labelling(folder, tmp_path):
    """The project of the videos in the `folder` of a test's module."""
    with label([str(folder)], tmp_path / "labels.json") as opened:
        yield opened
