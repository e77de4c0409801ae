"""The rendered set: honest labels, playable files, motion where the labels say so."""

import json
from collections import Counter
from fractions import Fraction

import av
import numpy as np
import pytest

from lstr.pipelines.demo.scenes import ACTIONS, CLASSES, SceneConfig, render_scenes, rendering, schedule

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


def boxes(data):
    """Names of the outermost MP4 boxes, in file order."""
    names, at = [], 0
    while at < len(data):
        names.append(data[at + 4 : at + 8])
        at += int.from_bytes(data[at : at + 4], "big")
    return names


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


@pytest.mark.parametrize("seed", range(200))
def test_every_class_is_trained_twice_and_tested_once(seed):
    counts = {"training": Counter(), "testing": Counter()}
    for subset, segments in schedule(SceneConfig(seed=seed)).values():
        counts[subset].update(segment.label for segment in segments)
    assert min(counts["training"][action] for action in ACTIONS) >= 2
    assert min(counts["testing"][action] for action in ACTIONS) >= 1


def test_no_action_follows_itself_and_starts_are_spread():
    """A clock alone must not win: what runs at a given second differs from video to video."""
    starts = []
    for seed in range(20):
        for _, segments in schedule(SceneConfig(seed=seed, seconds=30)).values():
            names = [segment.label for segment in segments]
            assert all(a != b for a, b in zip(names, names[1:], strict=False))
            starts.append(segments[0].start)
    assert np.std(starts) > 0.25


def test_files_are_h264_ready_for_a_browser(rendered):
    folder, _ = rendered
    for path in (folder / "videos").iterdir():
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            assert stream.codec_context.name == "h264" and stream.pix_fmt == "yuv420p"
            assert (stream.width, stream.height) == (160, 120)
            assert stream.average_rate == 25
        assert len(decode(path)) == SMALL.n_frames == 150
        names = boxes(path.read_bytes())
        assert names.index(b"moov") < names.index(b"mdat")


def test_fractional_frame_rate(tmp_path):
    config = SceneConfig(n_videos=2, n_testing=1, seconds=4, width=96, height=64, fps=Fraction(30000, 1001))
    labels = json.loads(render_scenes(tmp_path, config).read_text(encoding="utf-8"))
    path = tmp_path / "videos" / "scene_00.mp4"
    with av.open(str(path)) as container:
        assert container.streams.video[0].average_rate == Fraction(30000, 1001)
    assert len(decode(path)) == 120
    assert labels["database"]["scene_00"]["duration"] == pytest.approx(120 * 1001 / 30000)


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


def test_who_leaves_early_leaves_whole_files_alone(tmp_path):
    config = SceneConfig(n_videos=40, n_testing=1, seconds=8, width=128, height=128)
    events = rendering(tmp_path, config)
    next(events)
    events.close()
    made = list(tmp_path.rglob("*.*"))
    assert 1 <= len(made) < 40 and {path.suffix for path in made} == {".mp4"}, "no video is begun anew, none is half"
    stamps = {path: path.stat().st_mtime_ns for path in made}
    next(rendering(tmp_path, config))
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


def test_another_config_replaces_old_files(tmp_path):
    render_scenes(tmp_path, SceneConfig(n_videos=2, n_testing=1, seconds=4, width=64, height=64))
    before = (tmp_path / "videos" / "scene_00.mp4").read_bytes()
    render_scenes(tmp_path, SceneConfig(n_videos=2, n_testing=1, seconds=4, width=64, height=64, seed=1))
    assert (tmp_path / "videos" / "scene_00.mp4").read_bytes() != before


def test_a_failed_video_leaves_no_file(tmp_path, monkeypatch):
    def broken(config, index, segments):
        yield np.zeros((config.height, config.width, 3), np.uint8)
        raise RuntimeError("lens cap")

    monkeypatch.setattr("lstr.pipelines.demo.scenes._frames", broken)
    with pytest.raises(RuntimeError, match="lens cap"):
        render_scenes(tmp_path, SMALL)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
