"""Vectors of the classes' texts: from files of vectors, and from a CLIP by TOAD's prompts."""

import json

import numpy as np
import open_clip
import pytest
import torch
from safetensors.numpy import save_file

from lstr.checkpoints import checkpoint
from lstr.errors import ConfigError, LstrError
from lstr.extractors.errors import WeightsError
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.twostream import build_twostream
from lstr.extractors.weights.sources import WeightSources
from lstr.labels.label_set import read_labels
from lstr.pipelines.training.texts import read_texts
from tests.support.tiny_clip import NAME, SIDE, tiny_clip, write_tiny_clip

CLASSES = ("Background", "PoleVault", "Ambiguous")
ROWS = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)


def test_files_of_vectors_by_names(tmp_path):
    np.savez(tmp_path / "t.npz", classes=["PoleVault", "Background"], now=ROWS, next=2 * ROWS)
    metadata = {"classes": json.dumps(["PoleVault", "Background"])}
    save_file({"now": ROWS, "next": 2 * ROWS}, tmp_path / "t.safetensors", metadata)
    for name in ("t.npz", "t.safetensors"):
        now, after = read_texts(str(tmp_path / name), CLASSES, None)
        assert np.array_equal(now, np.stack([ROWS[1], ROWS[0], np.zeros(8)])), "by name; the ambiguous class has none"
        assert torch.equal(after, 2 * now)
    np.savez(tmp_path / "now.npz", classes=["PoleVault", "Background"], now=ROWS)
    now, after = read_texts(str(tmp_path / "now.npz"), CLASSES, None)
    assert torch.equal(now, after)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"classes": ["Background"], "now": ROWS[:1]}, "has no text of PoleVault"),
        ({"classes": ["PoleVault", "Background"], "now": ROWS[:1]}, "not one vector a class"),
        ({"classes": ["PoleVault", "Background"], "now": ROWS, "next": ROWS[:, :3]}, "not one vector a class"),
        ({"now": ROWS}, "holds no vectors of texts"),
    ],
)
def test_files_with_mistakes(arrays, words, tmp_path):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises((LstrError, WeightsError), match=words) as caught:
        read_texts(str(tmp_path / "t.npz"), CLASSES, None)
    assert caught.value.hint


def test_a_clip_makes_them_by_the_prompts_of_the_description(tmp_path):
    file = write_tiny_clip(tmp_path)
    preset = Preset(StreamPreset(f"clip:{NAME}"), None, short_side=SIDE, crop=SIDE)
    recipe = build_twostream(preset, WeightSources(rgb=str(file)), "cpu").recipe
    now, after = read_texts(str(file), CLASSES, recipe)
    texts = ["a video of a person background.", "a video of a person polevault."]
    texts += [f"{text[:-1]} in the future." for text in texts]
    with torch.inference_mode():
        expected = tiny_clip().encode_text(open_clip.get_tokenizer(NAME)(texts))
    torch.testing.assert_close(torch.cat([now[:2], after[:2]]), expected)
    assert not now[2].any() and not after[2].any()
    with pytest.raises(ConfigError, match="the features are of no CLIP"):
        read_texts(str(file), CLASSES, None)


@pytest.mark.long
def test_a_model_is_trained_with_them_and_carries_them(small_set, lstr, tmp_path):
    """The features are 1,600 wide, so one layer comes before the blocks; the texts are as wide as these."""
    classes = [*reversed(read_labels(small_set.labels).classes)]
    now = np.random.default_rng(1).normal(size=(len(classes), 16)).astype(np.float32)
    np.savez(tmp_path / "t.npz", classes=classes, now=now)
    words = ["train", small_set.features, "--labels", small_set.labels]
    small = {"model.d_model": 16, "train.epochs": 1, "train.shots": 1, "train.text": tmp_path / "t.npz"}
    settings = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    code, _, err = lstr(*words, "-o", tmp_path / "run", "--preset", "toad-small", *settings)
    assert code == 0, err
    assert "random vectors in place of texts" not in err
    loaded = checkpoint.load(tmp_path / "run" / "checkpoint.pt")
    rows = now[[classes.index(name) for name in loaded.classes]]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.abs(loaded.model.classifier.weight.numpy() - rows).max() < 1e-6
    assert np.abs(loaded.model.next_classifier.weight.numpy() - rows).max() < 1e-6
    kind = ["--set", "model.kind=rnn", "--set", f"train.text={tmp_path / 't.npz'}"]
    code, _, err = lstr(*words, "-o", tmp_path / "other", *kind)
    assert code == 2 and "kind rnn has no texts" in err
    code, out, err = lstr(*words, "-o", tmp_path / "third", "--preset", "toad-small", *settings[:-2])
    assert code == 0 and "random vectors in place of texts" in " ".join(err.split())
