"""The rendered videos: correct labels, playable files, and motion during the actions only."""

import json

import av
import numpy as np
import pytest

from lstr.pipelines.scenes import SceneConfig, render_scenes, rendering

SMALL = SceneConfig(n_videos=3, n_testing=1, seconds=6.0, seed=3)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    labels = render_scenes(folder, SMALL)
    return folder, json.loads(labels.read_text(encoding="utf-8"))


def test_pixels_change_during_actions_only(rendered):
    folder, labels = rendered
    for name, entry in labels["database"].items():
        with av.open(str(folder / "videos" / f"{name}.mp4")) as container:
            frames = np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)]).astype(np.int16)
        change = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3))
        middle = (np.arange(len(change)) + 1) / 30
        acting = np.zeros(len(change), bool)
        for annotation in entry["annotations"]:
            start, end = annotation["segment"]
            inside = (start <= middle) & (middle < end)
            acting |= inside
            assert change[inside].mean() > 2 * change[middle < 0.4].mean(), annotation
        assert change[acting].mean() > 2 * change[~acting].mean()


def test_a_second_run_repairs_incomplete_files(tmp_path):
    config = SceneConfig(n_videos=3, n_testing=1, seconds=4, width=64, height=64)
    calls = [(event.done, event.total) for event in rendering(tmp_path, config)]
    assert calls == [(1, 3), (2, 3), (3, 3)]
    videos = tmp_path / "videos"
    unchanged, truncated, deleted = (videos / f"scene_{k:02d}.mp4" for k in range(3))
    time, first, second = unchanged.stat().st_mtime_ns, truncated.read_bytes(), deleted.read_bytes()
    assert len({unchanged.read_bytes(), first, second}) == 3
    truncated.write_bytes(first[:200])
    deleted.unlink()
    (videos / ".scene_02.mp4.tmp-abc").write_bytes(b"incomplete")
    (tmp_path / ".labels.json.tmp-abc").write_bytes(b"{")
    render_scenes(tmp_path, config)
    assert unchanged.stat().st_mtime_ns == time
    assert (truncated.read_bytes(), deleted.read_bytes()) == (first, second)
    assert not list(tmp_path.rglob(".*"))
