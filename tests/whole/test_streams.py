"""The streams grey, difference and change beside rgb and flow: from learning to an int8 detection, and their cache."""

import json

import numpy as np
import pytest

from lstr.extractors.streams import PICTURES, STREAMS
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.learn import learn
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.model_files.model_file import open_model

pytestmark = pytest.mark.long

SIZE = {"size": [32, 48], "margin": 1.15}
SMALL = {
    "based_on": "smallest",
    "flow_algorithm": "dis",
    "long_side": 96,
    **{stream: {"network": "mobilenetv3", "crops": 2, **SIZE} for stream in STREAMS},
    "rgb": {"network": "mobilenetv3"},
    "flow": {"network": "shufflenetv2"},
}
DIMS = {"rgb": 4 * 576, "flow": 1024}


@pytest.fixture(scope="module")
def learning(small_set, tmp_path_factory):
    """The events of learning from all five streams, of which `change` is left as it began."""
    root = tmp_path_factory.mktemp("streams")
    (root / "five.json").write_text(json.dumps(SMALL))
    settings = {"epochs": "1", "change.epochs": "0", "draws": "16", "model.d_model": "16", "train.epochs": "1"}
    options = LearnOptions(
        [str(small_set.videos)],
        str(small_set.labels),
        str(root / "five.lstr"),
        settings=settings,
        cache=root / "cache",
        recipe=str(root / "five.json"),
        folds=0,  # each would have five networks more
        device="cpu",
    )
    return list(learn(options))


@pytest.fixture(scope="module")
def learnt(learning):
    return learning[-1].result.model


@pytest.mark.slow
def test_five_streams_are_learnt_and_joined(learnt):
    recipe = open_model(learnt).recipe
    assert recipe.streams == STREAMS and recipe.dims == (DIMS["rgb"], DIMS["flow"])
    config = open_model(learnt).about["config"]
    assert (config["rgb_dim"], config["flow_dim"]) == recipe.dims
    features = open_features(learnt.with_suffix(".learn") / "features")
    video_id = features.ids()[0]
    arrays, (rgb, flow) = features.arrays(video_id), features.load(video_id)
    assert tuple(arrays) == STREAMS
    assert np.array_equal(np.asarray(rgb), np.concatenate([arrays[stream] for stream in PICTURES], 1))
    assert np.array_equal(np.asarray(flow), arrays["flow"])


@pytest.mark.slow
def test_raw_video_has_the_scores_of_stored_features(learnt, small_set, tmp_path, lstr):
    features = open_features(learnt.with_suffix(".learn") / "features")
    video = next(small_set.videos.rglob(f"{features.ids()[-1]}.mp4"))
    (tmp_path / "features").symlink_to(features.path)
    words = ["-m", learnt, "-f", "npy"]
    code, _, err = lstr("detect", video, *words, "-o", tmp_path / "raw")
    assert code == 0, err
    code, _, err = lstr("detect", tmp_path / "features", *words, "-o", tmp_path / "stored")
    assert code == 0, err
    raw, stored = (np.load(next((tmp_path / name).rglob(f"{video.stem}*.npy"))) for name in ("raw", "stored"))
    np.testing.assert_allclose(raw, stored, atol=1e-3)


def test_the_cache_makes_the_same_features(small_set, tmp_path, lstr):
    """It keeps no more than the streams need."""
    content = {name: value for name, value in SMALL.items() if name not in STREAMS or name in ("grey", "change")}
    content |= {"flow": None, "rgb": None}
    (tmp_path / "some.json").write_text(json.dumps(content))
    words = ["--labels", small_set.labels, "--recipe", tmp_path / "some.json"]
    settings = [f"--set={name}" for name in ("epochs=0", "precision=float32", f"cache={tmp_path / 'cache'}")]
    code, _, err = lstr("finetune", small_set.videos, *words, "-o", tmp_path / "w", *settings)
    assert code == 0, err
    (made,) = (json.loads(path.read_text()) for path in (tmp_path / "cache").glob("*/recipe.json"))
    assert made["keeps"] == "colour"
    found = []
    for cache in (tmp_path / "cache", "none"):
        out = tmp_path / f"from {cache == 'none'}"
        code, _, err = lstr(
            "extract", small_set.videos, "-o", out, "--recipe", tmp_path / "w", "--set", f"cache={cache}"
        )
        assert code == 0, err
        folder = open_features(out)
        record = json.loads(folder.record(folder.ids()[0]).read_text())
        assert record["cached"] == (cache != "none")
        found.append({i: np.concatenate([*folder.arrays(i).values()], 1) for i in folder.ids()})
    for video_id, rows in found[0].items():
        np.testing.assert_allclose(rows, found[1][video_id], rtol=1e-4, atol=1e-5)
