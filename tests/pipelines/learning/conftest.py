"""Drawn videos to learn from, and one thread to learn with."""

from pathlib import Path

import pytest

from lstr.extractors.stages import torch_threads
from tests.support.learning import write_videos


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads have a part in the bits, and two learnings on a machine with other work may plan different numbers."""
    with torch_threads(1):
        yield


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    return write_videos(tmp_path_factory.mktemp("drawn ones"))
