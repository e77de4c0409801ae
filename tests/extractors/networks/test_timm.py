"""Networks of timm: what timm says of them, their weights in a local file or on the list of published files."""

import copy
import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models import get_pretrained_cfg
from torch import nn

from lstr.errors import RecipeError, WeightsError
from lstr.extractors.networks import manifest
from lstr.extractors.networks.manifest import dataset_of, read_manifest
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.published import choose, find_weights, weights_by_stream
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.recipe import Recipe
from lstr.extractors.twostream import build_twostream, rebuild_twostream

MAPS, TOKENS = "timm:mobilenetv4_conv_small", "timm:test_vit"


def preset(stream: str, network: str, **others) -> Preset:
    parts = {"rgb": None, "flow": None, stream: StreamPreset(network)}
    return Preset(**parts, flow_algorithm="difference", short_side=64, crop=64, **others)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Networks with their classifiers as timm publishes them, and their files."""
    folder, found = tmp_path_factory.mktemp("timm"), {}
    for name in (MAPS, TOKENS):
        torch.manual_seed(3)
        kind = {"dynamic_img_size": True} if name == TOKENS else {}
        network = timm.create_model(name.removeprefix("timm:"), pretrained=False, **kind).eval()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
        save_file(network.state_dict(), folder / f"{name[5:]}.safetensors")
        found[name] = network, str(folder / f"{name[5:]}.safetensors")
    return found


def test_an_entry_says_what_timm_says():
    maps, tokens = find_network(MAPS), find_network(TOKENS)
    assert (maps.width, maps.depthwise, maps.multiple, maps.licence) == (1280, True, 1, "apache-2.0")
    assert maps.inputs["rgb"].mean == pytest.approx((123.675, 116.28, 103.53))
    assert maps.finetuning["rgb"]["batch_size"] == 48
    assert (tokens.width, tokens.depthwise, tokens.multiple) == (64, False, 16) and not tokens.fits(72)


@pytest.mark.parametrize("network", [MAPS, TOKENS])
@torch.inference_mode()
def test_rgb_features_of_a_local_file_are_those_of_timm(published, network):
    theirs, file = published[network]
    twostream = build_twostream(preset("rgb", network), WeightSources({"rgb": file}), "cpu")
    part = twostream.recipe.rgb
    assert (part.network, part.weights, part.stem) == (network, "custom", None)
    assert part.folder("rgb") == f"rgb_custom_{network.replace(':', '-')}"
    assert Recipe.from_dict(twostream.recipe.to_dict()) == twostream.recipe
    assert rebuild_twostream(twostream.recipe, WeightSources({"rgb": file}), "cpu").recipe == twostream.recipe
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 64, 64, 3), np.uint8)
    x = (torch.from_numpy(images[:, 0]).float() - torch.tensor(part.mean)) / torch.tensor(part.std)
    theirs = copy.deepcopy(theirs)
    theirs.reset_classifier(0, *([""] if network == MAPS else []))
    expected = theirs(x.permute(0, 3, 1, 2))
    expected = expected.mean((2, 3)) if network == MAPS else expected
    torch.testing.assert_close(torch.from_numpy(twostream.pooled("rgb", images)), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["resnot", "hf-hub:some/network", "local-dir:/tmp", "../resnet18", ""])
def test_names_that_are_none_of_timm(name, monkeypatch):
    """Nothing is asked over the network."""
    monkeypatch.setattr("socket.socket.connect", lambda *given: pytest.fail("it asked the network"))
    with pytest.raises(RecipeError):
        find_network(f"timm:{name}")
    with pytest.raises(WeightsError):
        choose([f"timm:{name}"])


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(RecipeError) as caught:
        find_network("timm:resnet26")
    assert "lstr-video[timm]" in caught.value.hint


LISTED = [entry for entry in read_manifest() if entry.network.startswith("timm:")]
TEST = "timm:test_vit.r160_in1k"  # timm's own smallest network of tokens


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry.network[5:])
def test_the_list_says_what_timm_says(entry):
    about = get_pretrained_cfg(entry.network.removeprefix("timm:"))
    assert entry.licence.lower().startswith(about.license) and about.license == "apache-2.0"
    if entry.sha256_prefix:  # torch.hub's custom: the name of the file ends with the beginning of its hash
        assert entry.address == about.url and entry.name.endswith(f"-{entry.sha256_prefix}.pth")
    else:
        assert entry.address == f"https://huggingface.co/{about.hf_hub_id}/resolve/main/model.safetensors"
        assert "no hash is known" in entry.note


def test_a_file_without_a_published_hash_is_trusted_once(lstr, tmp_path, monkeypatch):
    home, source = Path(os.environ["LSTR_HOME"]), tmp_path / "source.safetensors"
    entry = {**vars(LISTED[0]), "name": "vit.safetensors", "network": TEST, "sha256_prefix": None, "pinned": False}
    (tmp_path / "manifest.json").write_text(json.dumps({"weights": [entry]}))
    monkeypatch.setattr(manifest, "MANIFEST", tmp_path / "manifest.json")
    torch.manual_seed(0)
    save_file(timm.create_model(TEST[5:], pretrained=False).state_dict(), source)
    code, out, err = lstr("weights", "fetch", TEST, "--from", source)
    path, sha256 = Path(out.strip()), hashlib.sha256(source.read_bytes()).hexdigest()
    assert code == 0 and path.read_bytes() == source.read_bytes() and "trusted this once" in err and sha256 in err

    (listed,) = json.loads(lstr("weights", "list", "--json")[1])
    assert listed["here"] and listed["pinned"] and listed["sha256_prefix"] == sha256
    (verdict,) = json.loads(lstr("weights", "check", "--json")[1])
    assert (verdict["state"], verdict["network"], verdict["stream"]) == ("ok", TEST, "rgb")
    assert verdict["origin"]["licence"] == entry["licence"] and verdict["origin"]["sha256"] == sha256
    assert find_weights(TEST, "rgb") == weights_by_stream([TEST])["rgb"] == weights_by_stream([str(path)])["rgb"]
    assert dataset_of(path) == "custom", "as on a machine that has not fetched it"

    path.write_bytes(b"another")
    assert lstr("weights", "check")[0] == 4
    save_file({"other": torch.zeros(1)}, source)
    code, _, err = lstr("weights", "fetch", TEST, "--from", source)
    assert code == 4 and "is not the published" in err, "trusted on first use alone"
    for text in ("{", "[]", '{"weights": [{}]}', '{"weights": 3}'):
        (home / manifest.PINS).write_text(text)
        code, _, err = lstr("weights", "list")
        assert code == 4 and str(home / manifest.PINS) in err and err.count("hint: ") == 1
