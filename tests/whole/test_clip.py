"""A small random CLIP through the commands: features, few-shot training with its texts, a model file, its export."""

import json

import numpy as np
import pytest

from tests.support.tiny_clip import NAME, SIDE, WIDTH, write_tiny_clip

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.mark.long
def test_features_training_model_file_and_export(small_set, lstr, tmp_path):
    weights = write_tiny_clip(tmp_path)
    recipe = {"rgb": {"network": f"clip:{NAME}", "weights": str(weights)}, "flow": None}
    sizes = {"long_side": 2 * SIDE, "short_side": SIDE, "crop": SIDE}
    (tmp_path / "clip.json").write_text(json.dumps(recipe | sizes))
    features, run, model = tmp_path / "features", tmp_path / "run", tmp_path / "toad.lstr"

    def done(*words):
        code, out, err = lstr(*words)
        assert code == 0, err
        return out, err

    done("extract", small_set.videos, "-o", features, "--recipe", tmp_path / "clip.json")
    small = {"model.d_model": WIDTH, "model.n_heads": 4, "model.l_enc": 2, "model.d_feedforward": 32}
    small |= {"train.epochs": 2, "train.warmup_epochs": 1, "train.text": weights}
    settings = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    words = ("train", features, "--labels", small_set.labels, "-o", run, "--preset", "toad-2-shot", *settings)
    _, err = done(*words)
    assert "random" not in err
    done("pack", run / "checkpoint.pt", "-o", model)
    done("export", model, "-o", tmp_path / "exported.lstr")
    video = sorted(small_set.videos.glob("*.mp4"))[0]
    for file, folder in ((model, "one"), (tmp_path / "exported.lstr", "other")):
        done("detect", video, "-m", file, "-o", tmp_path / folder, "-f", "npy,json")
    one, other = (np.load(tmp_path / folder / f"{video.stem}.scores.npy") for folder in ("one", "other"))
    assert one.shape == other.shape == (20, 6) and np.abs(one - other).max() < 1e-4
