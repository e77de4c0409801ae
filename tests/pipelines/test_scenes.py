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


def test_labels_are_inside_the_video(rendered):
    folder, labels = rendered
    assert labels["classes"] == list(CLASSES) and labels["classes"][0] == "Background"
    assert set(labels["database"]) == {path.stem for path in (folder / "videos").iterdir()}
    assert [entry["subset"] for entry in labels["database"].values()] == ["training", "training", "testing"]
    for entry in labels["database"].values():
        ends = [0.0, *(annotation["segment"][1] for annotation in entry["annotations"])]
        assert entry["duration"] == 6.0 and entry["annotations"] and ends[-1] < 6.0
        for annotation, before in zip(entry["annotations"], ends, strict=False):
            assert annotation["label"] in ACTIONS and before < annotation["segment"][0] < annotation["segment"][1]


def test_pixels_move_in_actions_and_rest_in_pauses(rendered):
    folder, labels = rendered
    for name, entry in labels["database"].items():
        with av.open(str(folder / "videos" / f"{name}.mp4")) as container:
            frames = np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)]).astype(np.int16)
        change = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3))
        middle = (np.arange(len(change)) + 1) / 25
        acting = np.zeros(len(change), bool)
        for annotation in entry["annotations"]:
            start, end = annotation["segment"]
            inside = (start <= middle) & (middle < end)
            acting |= inside
            assert change[inside].mean() > 2 * change[middle < 0.4].mean(), annotation
        assert change[acting].mean() > 2 * change[~acting].mean()


def test_videos_differ_and_a_second_run_keeps_whole_files_and_repairs_the_rest(tmp_path):
    config = SceneConfig(n_videos=3, n_testing=1, seconds=4, width=64, height=64)
    calls = [(event.done, event.total) for event in rendering(tmp_path, config)]
    assert calls == [(1, 3), (2, 3), (3, 3)]
    videos = tmp_path / "videos"
    kept, cut, lost = (videos / f"scene_{k:02d}.mp4" for k in range(3))
    stamp, whole, last = kept.stat().st_mtime_ns, cut.read_bytes(), lost.read_bytes()
    assert len({kept.read_bytes(), whole, last}) == 3
    cut.write_bytes(whole[:200])
    lost.unlink()
    (videos / ".scene_02.mp4.tmp-abc").write_bytes(b"killed here")
    (tmp_path / ".labels.json.tmp-abc").write_bytes(b"{")
    render_scenes(tmp_path, config)
    assert kept.stat().st_mtime_ns == stamp and (cut.read_bytes(), lost.read_bytes()) == (whole, last)
    assert not list(tmp_path.rglob(".*"))
