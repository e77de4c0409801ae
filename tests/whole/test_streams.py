"""The streams grey, difference and change beside rgb and flow: from learning to an int8 detection, and their cache."""

import json

import numpy as np
import pytest

from lstr.extractors.streams import PICTURES, STREAMS
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.learn import learn
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import result_of

SIZE = {"size": [32, 48], "margin": 1.15}
SMALL = {
    "based_on": "smallest",
    "flow_algorithm": "dis",
    "long_side": 96,
    **{stream: {"network": "mobilenetv3", "crops": 2, **SIZE} for stream in STREAMS},
    "rgb": {"network": "mobilenetv3"},
    "flow": {"network": "shufflenetv2"},
}


@pytest.mark.slow
def test_five_streams_are_learnt_joined_and_detected_alike_from_pixels_and_features(small_set, tmp_path, lstr):
    """`change` is left as it began."""
    (tmp_path / "five.json").write_text(json.dumps(SMALL))
    settings = {"epochs": "1", "change.epochs": "0", "draws": "16", "model.d_model": "16", "train.epochs": "1"}
    how = {"settings": settings, "cache": tmp_path / "cache", "recipe": str(tmp_path / "five.json"), "device": "cpu"}
    output = str(tmp_path / "five.lstr")
    learnt = result_of(
        learn(LearnOptions([str(small_set.videos)], str(small_set.labels), output, folds=0, **how))
    ).model
    recipe, config = open_model(learnt).recipe, open_model(learnt).about["config"]
    assert recipe.streams == STREAMS and recipe.dims == (4 * 576, 1024)
    assert (config["rgb_dim"], config["flow_dim"]) == recipe.dims
    features = open_features(learnt.with_suffix(".learn") / "features")
    video_id = features.ids()[-1]
    arrays, (rgb, flow) = features.arrays(video_id), features.load(video_id)
    assert tuple(arrays) == STREAMS
    assert np.array_equal(np.asarray(rgb), np.concatenate([arrays[stream] for stream in PICTURES], 1))
    assert np.array_equal(np.asarray(flow), arrays["flow"])
    (tmp_path / "features").symlink_to(features.path)
    scores = []
    for source in (next(small_set.videos.rglob(f"{video_id}.mp4")), tmp_path / "features"):
        code, _, err = lstr("detect", source, "-m", learnt, "-f", "npy", "-o", tmp_path / f"{source.name} out")
        assert code == 0, err
        scores.append(np.load(next((tmp_path / f"{source.name} out").rglob(f"{video_id}*.npy"))))
    np.testing.assert_allclose(*scores, atol=1e-3)


@pytest.mark.long
def test_the_cache_makes_the_same_features(small_set, tmp_path, lstr):
    """It keeps no more than the streams need."""
    content = {name: value for name, value in SMALL.items() if name not in STREAMS or name in ("grey", "change")}
    (tmp_path / "some.json").write_text(json.dumps({**content, "flow": None, "rgb": None}))
    words = ["--labels", small_set.labels, "--recipe", tmp_path / "some.json"]
    settings = [f"--set={name}" for name in ("epochs=0", "precision=float32", f"cache={tmp_path / 'cache'}")]
    code, _, err = lstr("finetune", small_set.videos, *words, "-o", tmp_path / "w", *settings)
    assert code == 0, err
    (made,) = (json.loads(path.read_text()) for path in (tmp_path / "cache").glob("*/recipe.json"))
    assert made["keeps"] == "colour"
    found = []
    for cache in (tmp_path / "cache", "none"):
        out = tmp_path / f"from {cache == 'none'}"
        how = ("-o", out, "--recipe", tmp_path / "w", "--set", f"cache={cache}")
        code, _, err = lstr("extract", small_set.videos, *how)
        assert code == 0, err
        folder = open_features(out)
        assert folder.read_record(folder.ids()[0])["cached"] == (cache != "none")
        found.append({i: np.concatenate([*folder.arrays(i).values()], 1) for i in folder.ids()})
    for video_id, rows in found[0].items():
        np.testing.assert_allclose(rows, found[1][video_id], rtol=1e-4, atol=1e-5)
