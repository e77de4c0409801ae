"""CLIP through open_clip: images and texts of a local file are those of open_clip, and mistakes are said."""

import sys

import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import load_file, save_file

from lstr.extractors.backbones.networks import known_network
from lstr.extractors.errors import RecipeError, WeightsError
from lstr.extractors.networks.clip_texts import encode_texts
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.recipe import Recipe
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from lstr.extractors.weights.sources import WeightSources
from lstr.pipelines.weights.published import choose
from tests.support.tiny_clip import NAME, SIDE, WIDTH, tiny_clip, write_tiny_clip

NETWORK = f"clip:{NAME}"
OPENAI = (122.771, 116.746, 104.094), (68.501, 66.632, 70.323)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_tiny_clip(tmp_path_factory.mktemp("clip"))


def preset(**streams):
    parts = {"rgb": None, "flow": None, **{name: StreamPreset(NETWORK) for name in streams}}
    return Preset(**parts, flow_algorithm="difference", short_side=SIDE, crop=SIDE)


def test_an_entry_says_what_open_clip_says(file):
    entry = known_network(NETWORK)
    assert (entry.width, entry.smallest, entry.licence) == (WIDTH, SIDE, "") and not entry.fits(SIDE + 16)
    assert entry.inputs["rgb"].mean == pytest.approx(OPENAI[0]) and entry.inputs["rgb"].std == pytest.approx(OPENAI[1])
    large = known_network("clip:ViT-B-16-quickgelu.openai")
    assert (large.width, large.smallest, large.licence) == (512, 224, "MIT")
    assert large.cost.seconds / known_network("resnet50").cost.seconds == pytest.approx(17.6 / 4.1, rel=0.1)


@torch.inference_mode()
def test_images_and_texts_are_those_of_open_clip(file):
    theirs = tiny_clip()
    twostream = build_twostream(preset(rgb=1), WeightSources(rgb=str(file)), "cpu")
    part = twostream.recipe.rgb
    assert (part.network, part.weights, part.dim, twostream.recipe.dims) == (NETWORK, "custom", WIDTH, (WIDTH, 0))
    assert part.folder("rgb") == f"rgb_custom_clip-{NAME}"
    assert Recipe.from_dict(twostream.recipe.to_dict()) == twostream.recipe
    assert rebuild_twostream(twostream.recipe, WeightSources(rgb=str(file)), "cpu").recipe == twostream.recipe
    images = np.random.default_rng(0).integers(0, 256, (3, 1, SIDE, SIDE, 3), np.uint8)
    wanted = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD
    mean, std = (255 * torch.tensor(numbers) for numbers in wanted)
    x = (torch.from_numpy(images[:, 0]) - mean) / std
    expected = theirs.encode_image(x.permute(0, 3, 1, 2).float())
    torch.testing.assert_close(torch.from_numpy(twostream.pooled("rgb", images)), expected, atol=1e-4, rtol=1e-3)
    texts = ["a person falls", "a video of a person PoleVault."]
    expected = theirs.encode_text(open_clip.get_tokenizer(NAME)(texts)).numpy()
    assert np.abs(encode_texts(NETWORK, file, texts) - expected).max() < 1e-6
    other = encode_texts(NETWORK, None, texts)
    assert other.shape == (2, WIDTH) and np.abs(other - expected).max() > 1e-3, "random weights are others"
    assert (encode_texts(NETWORK, None, texts) == other).all(), "and the same each time"


def test_a_file_that_does_not_fit_is_refused(file, tmp_path):
    tensors = load_file(file)
    save_file({n: t for n, t in tensors.items() if n.startswith("visual.")}, tmp_path / "images.safetensors")
    with pytest.raises(WeightsError, match="cannot encode texts") as caught:
        encode_texts(NETWORK, tmp_path / "images.safetensors", ["a"])
    assert "open_clip_model.safetensors" in caught.value.hint
    save_file({**tensors, "ln_final.weight": torch.ones(8)}, tmp_path / "other.safetensors")
    with pytest.raises(WeightsError, match="ln_final.weight is \\[8\\] where"):
        encode_texts(NETWORK, tmp_path / "other.safetensors", ["a"])
    save_file({n: t for n, t in tensors.items() if not n.startswith("visual.")}, tmp_path / "texts.safetensors")
    with pytest.raises(WeightsError, match="holds no clip:lstr-tiny tensor"):
        build_twostream(preset(rgb=1), WeightSources(rgb=str(tmp_path / "texts.safetensors")), "cpu")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ViT-B-9000", "has no CLIP 'ViT-B-9000'"),
        ("hf-hub:some/network", "has no CLIP"),
        ("ViT-B-32.mine", "knows no weights 'mine'"),
        ("ViT-B-32.openai", "another activation"),
        ("ViT-B-16-SigLIP", "need more than open_clip has"),
        ("coca_ViT-B-32", "need more than open_clip has"),
    ],
)
def test_names_that_cannot_be_used_are_said(name, words):
    with pytest.raises(RecipeError, match=words) as caught:
        known_network(f"clip:{name}")
    assert caught.value.hint
    if name == "ViT-B-32.openai":
        assert "clip:ViT-B-32-quickgelu.openai" in caught.value.hint


def test_it_takes_frames_alone(file):
    with pytest.raises(RecipeError, match="means and 3 deviations of its input"):
        build_twostream(preset(flow=1), WeightSources(), "cpu")


def test_files_by_name_and_tag():
    (listed,) = choose(["clip:ViT-B-32-quickgelu.openai"])
    assert listed.licence.startswith("MIT") and listed.name == "ViT-B-32-quickgelu.openai.safetensors"
    about = open_clip.get_pretrained_cfg("ViT-B-32-quickgelu", "openai")
    assert listed.address == f"https://huggingface.co/{about['hf_hub']}resolve/main/open_clip_model.safetensors"
    assert (tuple(listed.mean), tuple(listed.std)) == (about["mean"], about["std"])
    (other,) = choose(["clip:ViT-B-16.datacomp_xl_s13b_b90k"])
    assert (other.licence, other.sha256_prefix, other.side) == ("unknown", None, 224)
    assert "CLIP-ViT-B-16-DataComp.XL-s13B-b90K" in other.address
    with pytest.raises(WeightsError, match="does not say which weights") as caught:
        choose(["clip:ViT-B-16"])
    assert "laion2b_s34b_b88k" in caught.value.hint


def test_without_open_clip_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(RecipeError, match="open_clip is not installed") as caught:
        known_network("clip:RN50")
    assert caught.value.hint == 'pip install "lstr-video[clip]"'
