"""Videos to train on, and one thread for training."""

from pathlib import Path

import pytest

from lstr.extractors.stages import torch_threads
from tests.support.learning import write_videos


@pytest.fixture(scope="module", autouse=True)
def single_thread():
    """The number of threads changes results, and on a busy machine two plans may have different numbers."""
    with torch_threads(1):
        yield


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    return write_videos(tmp_path_factory.mktemp("rendered videos"))
