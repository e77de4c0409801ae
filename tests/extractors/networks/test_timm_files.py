"""Weights of timm: the list of free ones, what timm states of others, and their hash on first use."""

import functools
import hashlib
import json
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models import get_pretrained_cfg

from lstr.errors import RecipeError, WeightsError
from lstr.extractors.networks import published_files
from lstr.extractors.networks.published import choose, find_weights, weights_by_stream
from lstr.extractors.networks.published_files import dataset_of, read_manifest, timm_file

LISTED = [entry for entry in read_manifest() if entry.network.startswith("timm:")]
TEST = "timm:test_vit.r160_in1k"  # timm's own smallest network of tokens


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry.network[5:])
def test_the_list_says_what_timm_says(entry):
    about = get_pretrained_cfg(entry.network.removeprefix("timm:"))
    assert entry.licence.lower().startswith(about.license) and about.license == "apache-2.0"
    assert (tuple(entry.mean), tuple(entry.std)) == (about.mean, about.std) and entry.side == about.input_size[-1]
    if entry.sha256_prefix:  # torch.hub's custom: the name of the file ends with the beginning of its hash
        assert entry.address == about.url and entry.name.endswith(f"-{entry.sha256_prefix}.pth")
    else:
        assert entry.address == f"https://huggingface.co/{about.hf_hub_id}/resolve/main/model.safetensors"
        assert "no hash is known" in entry.note


def test_names_of_networks():
    (entry,) = choose(["timm:mobilenetv4_conv_small"])
    assert entry == choose(["timm:mobilenetv4_conv_small.e2400_r224_in1k"])[0] and entry in LISTED
    assert timm_file("convnextv2_atto").licence == "cc-by-nc-4.0"
    for name in ("resnot", "hf-hub:some/network", "../resnet18", ""):
        with pytest.raises(RecipeError, match="has no network"):
            choose([f"timm:{name}"])
    with pytest.raises(WeightsError, match="no place of weights"):
        timm_file("gcvit_xxtiny.in1k")


@pytest.fixture
def served(tmp_path, monkeypatch):
    """timm's network as it publishes one, over HTTP in the place of the hub; its folder and tensors."""
    folder = tmp_path / "hub" / timm_file(TEST[5:]).address.partition("huggingface.co/")[2]
    folder.parent.mkdir(parents=True)
    torch.manual_seed(0)
    save_file(timm.create_model(TEST[5:], pretrained=False).state_dict(), folder)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=tmp_path / "hub")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        monkeypatch.setattr(published_files, "HUB", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield folder
        server.shutdown()
        thread.join()


def test_what_is_not_on_the_list_needs_its_licence_accepted(lstr, served):
    home = Path(os.environ["LSTR_HOME"])
    for more in ([], ["--accept-licence", "mit"]):
        code, out, err = lstr("weights", "fetch", TEST, *more)
        assert code == 4 and "'apache-2.0'" in err and "--accept-licence apache-2.0" in err and not out
    assert not (home / "fetched.json").exists()
    code, out, err = lstr("weights", "fetch", TEST, "--accept-licence", "apache-2.0")
    path, sha256 = Path(out.strip()), hashlib.sha256(served.read_bytes()).hexdigest()
    assert code == 0 and path.read_bytes() == served.read_bytes() and "trusted this once" in err and sha256 in err

    (listed,) = (e for e in json.loads(lstr("weights", "list", "--json")[1]) if e["network"] == TEST)
    assert listed["here"] and listed["pinned"] and listed["sha256_prefix"] == sha256 and listed["side"] == 160
    (verdict,) = json.loads(lstr("weights", "check", "--json")[1])
    assert (verdict["state"], verdict["network"], verdict["stream"]) == ("ok", TEST, "rgb")
    assert verdict["origin"]["licence"] == "apache-2.0" and verdict["origin"]["sha256"] == sha256
    assert find_weights(TEST, "rgb") == weights_by_stream([TEST])["rgb"] == weights_by_stream([str(path)])["rgb"]
    assert dataset_of(path) == "custom", "as on a machine that has not fetched it"

    path.write_bytes(b"another")
    assert lstr("weights", "check")[0] == 4
    save_file({"other": torch.zeros(1)}, served)
    code, _, err = lstr("weights", "fetch", TEST)
    assert code == 4 and "is not the published" in err, "trusted on first use alone"


@pytest.mark.parametrize("text", ["{", "[]", '{"weights": [{}]}', '{"weights": 3}'])
def test_a_damaged_record_of_fetched_files(lstr, text):
    path = Path(os.environ["LSTR_HOME"]) / published_files.PINS
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    code, _, err = lstr("weights", "list")
    assert code == 4 and str(path) in err and err.count("hint: ") == 1


@pytest.mark.parametrize(
    ("name", "suffix"), [("convnext_atto.d2_in1k", ".pth"), ("vit_small_patch14_dinov2.lvd142m", ".safetensors")]
)
def test_files_of_timm_are_known_by_their_network(name, suffix, tmp_path):
    from lstr.extractors.networks.table import known_network
    from lstr.extractors.networks.weights import identify

    state, path = timm.create_model(name, pretrained=False).state_dict(), tmp_path / f"file{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    assert identify(path, known_network(f"timm:{name}")) == (f"timm:{name}", "rgb")
