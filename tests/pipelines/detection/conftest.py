"""Fixtures of the tests of detection."""

import pytest

from lstr.pipelines.detection.model import load_checkpoint, open_networks
from tests.support.detections import ONE_THREAD
from tests.support.videos import remux


@pytest.fixture(scope="module")
def loaded(small_set):
    return load_checkpoint(small_set.checkpoint)


@pytest.fixture(scope="module")
def networks(loaded):
    """Networks, flow workers and warnings, which the tests of a file share."""
    with open_networks(loaded, ONE_THREAD) as opened:
        yield opened


@pytest.fixture(scope="session")
def streams(small_set, tmp_path_factory) -> list[bytes]:
    """Two of the videos as MPEG-TS."""
    folder = tmp_path_factory.mktemp("streams")
    names = ("scene_00", "scene_03")
    return [remux(small_set.videos / f"{name}.mp4", folder / f"{name}.ts").read_bytes() for name in names]
