"""Weights of timm on the list of published files: the list, a hash that is taken at the first fetch, and loading."""

import hashlib
import json
import os
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models import get_pretrained_cfg

from lstr.extractors.networks import manifest
from lstr.extractors.networks.build import identify
from lstr.extractors.networks.manifest import dataset_of, read_manifest
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.published import find_weights, weights_by_stream

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


@pytest.mark.parametrize(
    ("name", "suffix"), [("convnext_atto.d2_in1k", ".pth"), ("vit_small_patch14_dinov2.lvd142m", ".safetensors")]
)
def test_files_of_timm_are_known_by_their_network(name, suffix, tmp_path):
    state, path = timm.create_model(name, pretrained=False).state_dict(), tmp_path / f"file{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    assert identify(path, find_network(f"timm:{name}")) == (f"timm:{name}", "rgb")
