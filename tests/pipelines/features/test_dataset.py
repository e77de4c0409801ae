"""Feature folders and labels in the forms that the field has them."""

import json
from pathlib import Path

import numpy as np
import pytest

from lstr.errors import LabelsError, LstrError, RecipeError
from lstr.kinds import configure
from lstr.labels.label_set import THUMOS_CLASSES, VideoLabels, segments_of, targets
from lstr.pipelines.features.dataset import read_dataset, read_split
from lstr.windows.windows import gather

CLASSES = ["Background", "A", "B", "Ambiguous"]
STREAMS = (("rgb_kinetics_resnet50", 6), ("flow_kinetics_bninception", 4))


def features(root: Path, videos: dict[str, int], streams=STREAMS, dtype=np.float32) -> Path:
    """Random features of `videos` (id to chunks) under `root`."""
    random = np.random.default_rng(0)
    for folder, width in streams:
        for video, length in videos.items():
            (root / folder).mkdir(parents=True, exist_ok=True)
            np.save(root / folder / f"{video}.npy", random.normal(size=(length, width)).astype(dtype))
    return root


def published(root: Path, lengths: dict[str, int], name="Mine", **changes) -> Path:
    """A data_info.json beside `root`, and random targets in it; the last video is for testing."""
    (root / "target_perframe").mkdir(parents=True, exist_ok=True)
    for video, length in lengths.items():
        hot = (np.random.default_rng(length).random((length, 4)) < 0.3).astype(np.float64)
        hot[:, 0] = ~hot[:, 1:].any(1)
        np.save(root / "target_perframe" / f"{video}.npy", hot)
    *train, test = lengths
    entry = {"data_root": f"data/{name}", "class_names": CLASSES, "num_classes": 4, "ignore_index": 3, "fps": 4}
    entry |= {"metrics": "AP", "train_session_set": train, "test_session_set": [test]} | changes
    path = root.parent / "data_info.json"
    other = {"TVSeries": entry | {"data_root": "data/TVSeries"}}
    path.write_text(json.dumps({name: entry} | (other if name == "THUMOS" else {})))
    return path


def test_the_published_layout(tmp_path):
    lengths = {"a": 40, "b": 31, "c": 22}
    root = features(tmp_path / "data" / "THUMOS", lengths, dtype=np.float16)
    data = read_dataset(root, published(root, lengths | {"b": 33}, "THUMOS"))
    assert data.labels.classes == tuple(CLASSES)
    train, test = data.split("training"), data.split(None)
    assert [v.id for v in train.videos] == ["a", "b"] and [v.id for v in test.videos] == ["c"]
    for video in (*train.videos, *test.videos):
        n = len(video.features)
        assert n == lengths[video.id]
        assert np.array_equal(video.targets, np.load(root / "target_perframe" / f"{video.id}.npy")[:n])
        assert video.features[np.arange(n)].dtype == np.float32 and video.features[:].shape == (n, 10)
    assert [(f.severity, f.kind, f.video) for f in data.check()] == [("warning", "other length", "b")]


def test_class_index_and_background_are_read(tmp_path):
    """As the published file of TRN has them."""
    root = features(tmp_path / "data" / "Mine", {"a": 40, "c": 22})
    path = published(root, {"a": 40, "c": 22})
    (entry,) = json.loads(path.read_text()).values()
    entry["class_index"] = ["background", *entry.pop("class_names")[1:]]
    path.write_text(json.dumps({"HDD": entry}))
    assert read_dataset(root, path).labels.classes == tuple(CLASSES)
    del entry["class_index"]
    path.write_text(json.dumps({"HDD": entry}))
    with pytest.raises(LabelsError, match="HDD"):
        read_dataset(root, path)


@pytest.mark.parametrize("fault", ["row", "width", "stream"])
def test_a_fault_of_features_is_named(tmp_path, fault):
    """The video, the stream, and the row; the commands on features read them through the same array."""
    lengths = {name: 40 for name in "abcd"}
    root = features(tmp_path / "data" / "Mine", lengths)
    path = root / STREAMS[1][0] / "b.npy"
    if fault == "stream":
        path.unlink()
    else:
        array = np.load(path)
        array[33, 1] = np.inf
        np.save(path, array if fault == "row" else array[:, :3])
    named = {"row": (str(path), "row 33"), "width": ("'b'", "flow", "width 3"), "stream": ("b (flow)",)}[fault]
    with pytest.raises(LstrError) as caught:
        for video in read_split(root, published(root, lengths), "training").videos:
            video.features[:]
    assert all(value in str(caught.value) for value in named) and caught.value.hint


def test_segments_of_published_targets_give_the_same_targets(shared):
    path = shared / "data" / "thumos14" / "target_perframe" / "video_validation_0000051.npy"
    published = np.load(path)
    video = VideoLabels("training", None, segments_of(published, THUMOS_CLASSES))
    assert published[:, 1:].any() and np.array_equal(targets(video, THUMOS_CLASSES, len(published)), published)


def test_a_file_of_several_data_sets(tmp_path):
    root = features(tmp_path / "data" / "elsewhere", {"a": 40, "c": 22})
    info = published(root, {"a": 40, "c": 22}, "THUMOS")
    with pytest.raises(LabelsError, match="TVSeries") as caught:
        read_dataset(root, info)
    assert "--set dataset=THUMOS" in caught.value.hint
    with pytest.raises(LabelsError, match="HACS"):
        read_dataset(root, info, dataset="HACS")
    assert set(read_dataset(root, info, dataset="TVSeries").labels.videos) == {"a", "c"}


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"class_names": ["A", "B"]}, "'A'"),
        ({"class_names": ["Background", "A", "A", "B"]}, "'A'"),
        ({"class_names": ["Background", ""]}, "''"),
        ({"class_names": "Background"}, "'Background'"),
        ({"class_names": ["Background", "A"]}, "shape"),
        ({"fps": "4"}, "'4'"),
        ({"train_session_set": ["a", "c"]}, "'c'"),
        ({"ignore_index": 2}, "Ambiguous"),
        ({"fps": 5}, "4 rows"),
        ({"train_session_set": ["a", "z"]}, "skip_missing=true"),
    ],
)
def test_a_data_info_that_does_not_fit(tmp_path, changes, value):
    root = features(tmp_path / "data" / "Mine", {"a": 40, "c": 22})
    with pytest.raises(LabelsError) as caught:
        read_dataset(root, published(root, {"a": 40, "c": 22}, **changes))
    assert value in str(caught.value) + caught.value.hint


def test_several_roots(small_set, tmp_path):
    one, two = features(tmp_path / "one", {"a": 40}), features(tmp_path / "two", {"b": 30, "c": 22})
    info = published(two, {"a": 40, "b": 30, "c": 22})
    split = read_split([one, two], info, "training")
    assert [(v.id, len(v.features)) for v in split.videos] == [("a", 40), ("b", 30)]
    other = features(tmp_path / "three", {"x": 30}, streams=(("rgb_anet_resnet50", 6), STREAMS[1]))
    features(one, {"b": 30})
    for roots in ([one, two], [one, other], [small_set.features, one]):  # a video twice, other streams, other recipes
        with pytest.raises(RecipeError) as caught:
            read_split(roots, info, "training")
        assert caught.value.hint


def test_streams_by_name(tmp_path):
    root = features(tmp_path / "data", {"a": 40, "c": 22})
    features(root, {"a": 40, "c": 22}, streams=(("rgb_anet_resnet50", 8), ("flow_anet_resnet50", 7)))
    info = published(root, {"a": 40, "c": 22})
    with pytest.raises(RecipeError) as caught:
        read_split(root, info, "training")
    assert "--set rgb_features=rgb_anet_resnet50" in caught.value.hint
    assert read_dataset(root, info, ("rgb_anet_resnet50", "flow_anet_resnet50")).split("training").dims == (8, 7)
    with pytest.raises(RecipeError, match="rgb_clip"):
        read_dataset(root, info, ("rgb_clip", None))


def test_nothing_stays_mapped(tmp_path):
    """A data set may have more files than a process may map (65,530 on Linux; HACS has 70,594)."""
    root = features(tmp_path / "data", {"a": 400, "c": 22})
    video = read_split(root, published(root, {"a": 400, "c": 22}), "training").videos[0]
    windows = gather(video.features, [390], configure(rgb_dim=6, flow_dim=4))
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(root) in line]
    assert windows.long.shape == (1, 512, 10) and maps == []
    (root / STREAMS[0][0] / "a.npy").unlink()
    with pytest.raises(RecipeError, match="a.npy"):
        video.features[3]


def test_chunks_after_a_table_of_0_and_1_are_not_background(tmp_path):
    root = features(tmp_path / "data", {"a": 20, "b": 9})
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("time,walk\n0,0\n1,1\n")
    dataset = read_dataset(root, [tmp_path / "a.csv", tmp_path / "b.csv"])
    assert dataset.labels.classes == ("Background", "walk", "Ambiguous")
    a, b = (targets(dataset.labels.videos[name], dataset.labels.classes, n) for name, n in (("a", 20), ("b", 9)))
    assert a.argmax(axis=1).tolist() == [0] * 4 + [1] * 4 + [2] * 12
    assert b.argmax(axis=1).tolist() == [0] * 4 + [1] * 4 + [2], "a whole chunk more"
