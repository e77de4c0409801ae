"""`lstr detect --say`: phrases by a small random CLIP, end to end, and as they are computed by hand."""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch

from lstr.pipelines.detection.zero_shot import NOTHING, say
from tests.support.tiny_clip import NAME, SIDE, WIDTH, tiny_clip, write_tiny_clip

PHRASES = ("a person falls", "somebody waves")
NETWORK = f"recipe.rgb.network=clip:{NAME}"


@dataclass(frozen=True)
class Clip:
    """A video, and the weights of the small CLIP."""

    video: Path
    weights: Path


@pytest.fixture
def clip(small_set, tmp_path_factory):
    return Clip(sorted((small_set.videos).glob("*.mp4"))[0], write_tiny_clip(tmp_path_factory.mktemp("clip")))


def said(clip, *phrases):
    words = [word for phrase in phrases for word in ("--say", phrase)]
    return ["detect", clip.video, *words, "--weights", f"clip={clip.weights}", "--set", NETWORK]


def features_of(clip, lstr, folder):
    """Features of the video by the small CLIP, through a recipe file."""
    recipe = {"rgb": {"network": f"clip:{NAME}", "weights": str(clip.weights)}, "flow": None}
    sizes = {"long_side": 2 * SIDE, "short_side": SIDE, "crop": SIDE}
    (folder / "clip.json").write_text(json.dumps({"based_on": "kinetics", **recipe, **sizes}))
    code, _, err = lstr("extract", clip.video, "-o", folder / "features", "--recipe", folder / "clip.json")
    assert code == 0, err
    return np.load(next((folder / "features").rglob(f"{clip.video.stem}.npy"))).astype(np.float32)


@pytest.mark.long
def test_phrases_are_scored_as_by_hand(clip, lstr, tmp_path):
    features = features_of(clip, lstr, tmp_path)
    assert features.shape == (20, WIDTH)
    code, _, err = lstr(*said(clip, *PHRASES), "-o", tmp_path / "out", "--on", "0.3", "--off", "0.2")
    assert code == 0, err
    for words in ("9.24 mean mAP", "20.11 mAP at an IoU of 0.3", "63.3 %", "zero-shot"):
        assert words in " ".join(err.split())
    assert "random" not in err, "the file's weights are not known to be so"
    with torch.inference_mode():
        texts = tiny_clip().encode_text(open_clip.get_tokenizer(NAME)([NOTHING, *PHRASES])).numpy()
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    means = np.stack([features[max(0, k - 7) : k + 1].mean(0) for k in range(20)])
    logits = 100 * means / np.linalg.norm(means, axis=1, keepdims=True) @ texts.T
    expected = np.exp(logits - logits.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    scores = np.load(tmp_path / "out" / f"{clip.video.stem}.scores.npy")
    assert np.abs(scores - expected).max() < 2e-3
    timeline = json.loads((tmp_path / "out" / f"{clip.video.stem}.json").read_text())
    assert timeline["decided"] == 20 and {one["label"] for one in timeline["segments"]} <= {*PHRASES}
    lines = [json.loads(line) for line in (tmp_path / "out" / f"{clip.video.stem}.jsonl").read_text().splitlines()]
    assert not any("ahead" in line for line in lines), "no next chunk is scored, for nothing has learnt it"
    assert (tmp_path / "out" / f"{clip.video.stem}.html").is_file()


@pytest.mark.long
def test_random_weights_are_called_random(clip, lstr):
    words = ["detect", clip.video, "--say", PHRASES[0], "--weights", "random", "--set", NETWORK]
    code, out, err = lstr(*words, "--set", "max_chunks=2", "-f", "jsonl")
    assert code == 0 and "random weights: what it says has nothing to do with the video" in " ".join(err.split())
    assert len([line for line in out.splitlines() if "chunk" in json.loads(line)]) == 2


def test_the_prompt_of_everything_else_can_be_changed(clip):
    made = [say(PHRASES, str(clip.weights), f"clip:{NAME}", *prompt) for prompt in ((), ("an empty room",))]
    one, other = (said.checkpoint.model.classifier.weight for said in made)
    assert torch.equal(one[1:], other[1:]) and not torch.allclose(one[0], other[0])
    assert made[0].checkpoint.classes == ("Background", *PHRASES) and not made[0].is_random


def test_what_is_missing_is_said_in_one_sentence(clip, lstr):
    for words, expected in (
        (["--say", "a"], "needs? the weights of a CLIP.*lstr weights fetch clip:ViT-B-32-quickgelu.openai"),
        (["--say", "a", "--weights", "clip:ViT-B-32-quickgelu.openai"], "is not on this machine.*weights fetch"),
        (["--say", "a", "--weights", clip.weights], "does not say which CLIP.*--set recipe.rgb.network"),
        (["--say", "a", "--weights", "random", "--set", "recipe.rgb.network=resnet18"], "resnet18 is no CLIP"),
        (["--say", " ", "--weights", "random", "--set", NETWORK], "'' is no phrase"),
        (["--say", "a", "--say", "a", "--weights", "random", "--set", NETWORK], "'a' is said twice"),
        (["--say", "a", "-m", "m.lstr"], "--say is in place of a model"),
        (["--say", "a", "--weights", "x", "--weights", "y"], "--weights once"),
        (["--set", "say.background=x"], "add --say TEXT"),
    ):
        code, _, err = lstr("detect", clip.video, *words)
        assert code and re.search(expected, " ".join(err.split())), (words, err)
        assert "Traceback" not in err


def test_without_open_clip_it_says_what_to_install(clip, lstr, monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    code, _, err = lstr(*said(clip, "a person falls")[:-1], "recipe.rgb.network=clip:RN101")
    assert code and "open_clip is not installed" in err and 'pip install "lstr-video[clip]"' in err
