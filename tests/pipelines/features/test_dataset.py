"""Data sets of feature folders and labels, also in the published layout."""

import json
from pathlib import Path

import numpy as np
import pytest

from lstr.errors import LabelsError, LstrError, RecipeError
from lstr.kinds import configure
from lstr.labels.label_set import THUMOS_CLASSES, VideoLabels, segments_of, targets
from lstr.pipelines.features.dataset import read_dataset, read_split
from lstr.windows.windows import gather
from tests.support.foreign_stores import write_store

CLASSES = ["Background", "A", "B", "Ambiguous"]
STREAMS = {"rgb_kinetics_resnet50": 6, "flow_kinetics_bninception": 4}


def write_features(root: Path, videos: dict[str, int], streams=STREAMS) -> Path:
    """Write random features of `videos`, id to number of chunks, in float16; return `root`."""
    random = np.random.default_rng(0)
    for folder, width in streams.items():
        arrays = {video: random.normal(size=(length, width)).astype(np.float16) for video, length in videos.items()}
        write_store(root / folder, "npy", arrays)
    return root


def write_info(root: Path, lengths: dict[str, int], name="Mine", **changes) -> Path:
    """Write random targets and a data_info.json; the last video is for testing."""
    arrays = {video: (np.random.default_rng(n).random((n, 4)) < 0.3).astype(float) for video, n in lengths.items()}
    for rows in arrays.values():
        rows[:, 0] = ~rows[:, 1:].any(1)
    write_store(root / "target_perframe", "npy", arrays)
    *train, test = lengths
    entry = {"data_root": f"data/{name}", "class_names": CLASSES, "num_classes": 4, "ignore_index": 3, "fps": 4}
    entry |= {"metrics": "AP", "train_session_set": train, "test_session_set": [test]} | changes
    path = root.parent / "data_info.json"
    path.write_text(json.dumps({name: entry}))
    return path


@pytest.fixture
def root(tmp_path):
    return write_features(tmp_path / "data" / "Mine", {"a": 40, "c": 22})


@pytest.fixture
def info(root):
    """Their data_info.json: a is for training, c for testing."""
    return write_info(root, {"a": 40, "c": 22})


def test_the_published_layout_is_read(tmp_path):
    lengths = {"a": 40, "b": 31, "c": 22}
    root = write_features(tmp_path / "data" / "THUMOS", lengths)
    data = read_dataset(root, write_info(root, lengths | {"b": 33}, "THUMOS"))
    assert data.labels.classes == tuple(CLASSES)
    train, test = data.split("training"), data.split(None)
    assert [v.id for v in train.videos] == ["a", "b"] and [v.id for v in test.videos] == ["c"]
    for video in (*train.videos, *test.videos):
        n = len(video.features)
        assert n == lengths[video.id]
        assert np.array_equal(video.targets, np.load(root / "target_perframe" / f"{video.id}.npy")[:n])
        assert video.features[np.arange(n)].dtype == np.float32 and video.features[:].shape == (n, 10)
    assert [(f.severity, f.kind, f.video) for f in data.check()] == [("warning", "other length", "b")]


def test_class_index_replaces_class_names_as_in_the_published_file_of_trn(root, info):
    (entry,) = json.loads(info.read_text()).values()
    del entry["class_names"]
    info.write_text(json.dumps({"HDD": entry | {"class_index": ["background", *CLASSES[1:]]}}))
    assert read_dataset(root, info).labels.classes == tuple(CLASSES)
    info.write_text(json.dumps({"HDD": entry}))
    with pytest.raises(LabelsError, match="HDD"):
        read_dataset(root, info)


@pytest.mark.parametrize("fault", ["row", "width", "stream"])
def test_faulty_features_are_named(tmp_path, fault):
    lengths = {name: 40 for name in "abcd"}
    root = write_features(tmp_path / "data" / "Mine", lengths)
    path = root / "flow_kinetics_bninception" / "b.npy"
    array = np.load(path)
    array[33, 1] = np.inf
    np.save(path, array if fault == "row" else array[:, :3])
    if fault == "stream":
        path.unlink()
    values = {"row": (str(path), "row 33"), "width": ("'b'", "flow", "width 3"), "stream": ("b (flow)",)}[fault]
    with pytest.raises(LstrError) as caught:
        for video in read_split(root, write_info(root, lengths), "training").videos:
            video.features[:]
    assert all(value in str(caught.value) for value in values)


def test_published_targets_survive_conversion_to_segments(shared):
    path = shared / "data" / "thumos14" / "target_perframe" / "video_validation_0000051.npy"
    published = np.load(path)
    video = VideoLabels("training", None, segments_of(published, THUMOS_CLASSES))
    assert published[:, 1:].any() and np.array_equal(targets(video, THUMOS_CLASSES, len(published)), published)


def test_a_data_set_is_chosen_by_name(root, info):
    (entry,) = json.loads(info.read_text()).values()
    info.write_text(json.dumps({name: entry | {"data_root": f"data/{name}"} for name in ("THUMOS", "TVSeries")}))
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
def test_an_invalid_data_info_is_refused(root, changes, value):
    with pytest.raises(LabelsError) as caught:
        read_dataset(root, write_info(root, {"a": 40, "c": 22}, **changes))
    assert value in str(caught.value) + caught.value.hint


def test_feature_folders_are_joined(small_set, tmp_path):
    roots = [write_features(tmp_path / "1", {"a": 40}), write_features(tmp_path / "2", {"b": 30, "c": 22})]
    info = write_info(roots[1], {"a": 40, "b": 30, "c": 22})
    assert [(v.id, len(v.features)) for v in read_split(roots, info, "training").videos] == [("a", 40), ("b", 30)]
    streams = {"rgb_anet_resnet50": 6, "flow_kinetics_bninception": 4}
    other_streams = write_features(tmp_path / "3", {"x": 30}, streams)
    same_video = write_features(tmp_path / "4", {"b": 30})
    for folder in (other_streams, same_video, small_set.features):
        with pytest.raises(RecipeError):
            read_split([roots[1], folder], info, "training")


def test_streams_are_chosen_by_name(root, info):
    write_features(root, {"a": 40, "c": 22}, {"rgb_anet_resnet50": 8, "flow_anet_resnet50": 7})
    with pytest.raises(RecipeError) as caught:
        read_split(root, info, "training")
    assert "--set rgb_features=rgb_anet_resnet50" in caught.value.hint
    assert read_dataset(root, info, ("rgb_anet_resnet50", "flow_anet_resnet50")).split("training").dims == (8, 7)
    with pytest.raises(RecipeError, match="rgb_clip"):
        read_dataset(root, info, ("rgb_clip", None))


def test_files_do_not_stay_mapped(root, info):
    """Linux allows 65,530 maps per process; HACS has 70,594 files."""
    (video,) = read_split(root, info, "training").videos
    windows = gather(video.features, [30], configure(rgb_dim=6, flow_dim=4))
    assert windows.long.shape == (1, 512, 10) and str(root) not in Path("/proc/self/maps").read_text()
    (root / "rgb_kinetics_resnet50" / "a.npy").unlink()
    with pytest.raises(RecipeError, match="a.npy"):
        video.features[3]


def test_chunks_after_a_binary_table_are_ambiguous(tmp_path):
    root = write_features(tmp_path / "data", {"a": 20, "b": 9})
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("time,walk\n0,0\n1,1\n")
    labels = read_dataset(root, [tmp_path / "a.csv", tmp_path / "b.csv"]).labels
    assert labels.classes == ("Background", "walk", "Ambiguous")
    for name, n in (("a", 20), ("b", 9)):
        classes = targets(labels.videos[name], labels.classes, n).argmax(axis=1).tolist()
        assert classes == [0] * 4 + [1] * 4 + [2] * (n - 8)
