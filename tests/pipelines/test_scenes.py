"""The rendered set: honest labels, playable files, motion where the labels say so."""

import json

import av
import numpy as np
import pytest

from lstr.pipelines.scenes import ACTIONS, CLASSES, SceneConfig, render_scenes, rendering

SMALL = SceneConfig(n_videos=3, n_testing=1, seconds=6.0, fps=25, seed=3)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    labels = render_scenes(folder, SMALL)
    return folder, json.loads(labels.read_text(encoding="utf-8"))


def decode(path):
    """Frames (N, H, W, 3) as int16, so that differences keep their sign."""
    with av.open(str(path)) as container:
        return np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)]).astype(np.int16)


def test_labels_are_activitynet_and_inside_the_video(rendered):
    folder, labels = rendered
    assert labels["classes"] == list(CLASSES) and labels["classes"][0] == "Background"
    assert set(labels["database"]) == {path.stem for path in (folder / "videos").iterdir()}
    assert [entry["subset"] for entry in labels["database"].values()] == ["training", "training", "testing"]
    for entry in labels["database"].values():
        end_before = 0.0
        assert entry["duration"] == 6.0 and entry["annotations"]
        for annotation in entry["annotations"]:
            start, end = annotation["segment"]
            assert annotation["label"] in ACTIONS
            assert end_before < start < end < entry["duration"]
            end_before = end


def test_pixels_move_in_actions_and_rest_in_pauses(rendered):
    folder, labels = rendered
    for name, entry in labels["database"].items():
        change = np.abs(np.diff(decode(folder / "videos" / f"{name}.mp4"), axis=0)).mean(axis=(1, 2, 3))
        middle = (np.arange(len(change)) + 1) / 25
        acting = np.zeros(len(change), bool)
        for annotation in entry["annotations"]:
            start, end = annotation["segment"]
            inside = (start <= middle) & (middle < end)
            acting |= inside
            assert change[inside].mean() > 2 * change[middle < 0.4].mean(), annotation
        assert change[acting].mean() > 2 * change[~acting].mean()


def test_videos_differ_and_seed_decides(rendered, tmp_path):
    folder, _ = rendered
    first, second, third = (path.read_bytes() for path in sorted((folder / "videos").iterdir()))
    assert len({first, second, third}) == 3
    again = render_scenes(tmp_path / "again", SMALL)
    assert again.read_bytes() == (folder / "labels.json").read_bytes()
    assert (tmp_path / "again" / "videos" / "scene_01.mp4").read_bytes() == second


def test_second_run_keeps_whole_files_and_mends_the_rest(tmp_path):
    config = SceneConfig(n_videos=3, n_testing=1, seconds=4, width=64, height=64)
    calls = [(event.done, event.total) for event in rendering(tmp_path, config)]
    assert calls == [(1, 3), (2, 3), (3, 3)]
    videos = tmp_path / "videos"
    kept, cut, lost = (videos / f"scene_{k:02d}.mp4" for k in range(3))
    stamp, whole = kept.stat().st_mtime_ns, cut.read_bytes()
    cut.write_bytes(whole[:200])
    lost.unlink()
    (videos / ".scene_02.mp4.tmp-abc").write_bytes(b"killed here")
    (tmp_path / ".labels.json.tmp-abc").write_bytes(b"{")
    render_scenes(tmp_path, config)
    assert kept.stat().st_mtime_ns == stamp
    assert cut.read_bytes() == whole and lost.exists()
    assert not list(tmp_path.rglob(".*"))
