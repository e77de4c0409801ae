"""Fixtures of the tests of detection."""

import pytest

from lstr.pipelines.detection import model
from tests.support.detections import ONE_THREAD, open_networks
from tests.support.videos import remux


@pytest.fixture(scope="module")
def loaded(small_set):
    return model.load_checkpoint(small_set.checkpoint)


@pytest.fixture(scope="module")
def networks(loaded):
    """Networks, flow workers and warnings, which the tests of a file share."""
    opened = model.Networks(loaded, ONE_THREAD)
    yield open_networks(loaded, opened.open())
    opened.close()


@pytest.fixture(scope="session")
def streams(small_set, tmp_path_factory) -> list[bytes]:
    """Two of the videos as MPEG-TS."""
    folder = tmp_path_factory.mktemp("streams")
    names = ("scene_00", "scene_03")
    return [remux(small_set.videos / f"{name}.mp4", folder / f"{name}.ts").read_bytes() for name in names]
