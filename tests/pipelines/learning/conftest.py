"""Videos to train on, and one thread for training."""

import json
from pathlib import Path

import pytest

from lstr.extractors.stages import torch_threads
from lstr.pipelines.scenes import SceneConfig, render_scenes


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    """Six videos, two of them held out, in a subfolder with a space in its name."""
    return render_in_subfolder(tmp_path_factory.mktemp("rendered videos"), 6, 2)


@pytest.fixture(scope="module")
def few_videos(tmp_path_factory) -> Path:
    """Three such videos, one of them held out."""
    return render_in_subfolder(tmp_path_factory.mktemp("few videos"), 3, 1)


def render_in_subfolder(root: Path, n_videos: int, n_testing: int) -> Path:
    labels = render_scenes(root, SceneConfig(n_videos, n_testing, seconds=5.0, width=96, height=64))
    content = json.loads(labels.read_text())
    content["database"] = {f"day 1/{name}": entry for name, entry in content["database"].items()}
    labels.write_text(json.dumps(content))
    (root / "videos" / "day 1").mkdir()
    for path in (root / "videos").glob("*.mp4"):
        path.rename(root / "videos" / "day 1" / path.name)
    return root


@pytest.fixture(scope="module", autouse=True)
def single_thread():
    """The number of threads changes results, and on a busy machine two plans may have different numbers."""
    with torch_threads(1):
        yield
