"""A model that was taught, exported, and made a page."""

import pytest

from tests.conftest import made_once
from tests.support.web_set import WebSet, write_web_set


@pytest.fixture(scope="session")
def web(base) -> WebSet:
    """Made once for all processes; skips where ONNX Runtime Web cannot be fetched."""
    root = base / "web set"
    root.mkdir(exist_ok=True)
    return made_once(root / "made", lambda _: write_web_set(root))
