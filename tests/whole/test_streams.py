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
