"""Fixtures that several test files share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

# The models of the tests are so small that a second thread only waits for the first.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data, which is not part of the repository."""
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("LSTR_SHARED", default))
    if not (folder / "data").is_dir():
        pytest.skip(f"no reference data in {folder}; set LSTR_SHARED to the folder that holds data/golden")
    return folder
