"""Published weights: the manifest, and `lstr weights list | fetch | check`."""

import functools
import hashlib
import json
import os
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from lstr.errors import ConfigError, WeightsError
from lstr.extractors.networks import manifest
from lstr.extractors.networks.build import identify, randomise
from lstr.extractors.networks.manifest import dataset_of, published_by_hash, read_manifest
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.published import choose, find_weights, named_weights, weights_by_stream
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.features.recipes import choose_recipe, weights_for
from lstr.pipelines.training.recogniser import initial_weights
from tests.support.backbones import build_backbone
from tests.support.exportable import write_exportable


def test_the_manifest_is_whole():
    entries = read_manifest()
    assert len({e.name for e in entries}) == len(entries)
    for entry in entries:
        assert entry.stream in ("rgb", "flow")
        assert re.fullmatch(r"https://\S+", entry.address) and entry.note
        if entry.package:
            assert entry.package.endswith(f"/{entry.name}") and re.fullmatch(r"[0-9a-f]{64}", entry.sha256_prefix)
            assert entry.sha256_prefix[:8] in entry.name and entry.licence.startswith("Apache-2.0")
            continue
        if entry.network.startswith("timm:"):  # test_timm_files.py
            continue
        assert entry.network in NETWORKS and entry.name in entry.address
        if entry.sha256_prefix:  # model zoos write the hash into the name
            assert re.fullmatch(r"[0-9a-f]{8,}", entry.sha256_prefix) and entry.sha256_prefix in entry.name
        else:
            assert "no hash" in entry.note
    for recipe in ("kinetics", "activitynet"):
        assert sorted(e.stream for e in entries if e.recipe == recipe) == ["flow", "rgb"]


def test_the_manifest_keeps_to_the_facts(shared):
    facts = (shared / "facts" / "feature-extraction.md").read_text()
    for entry in read_manifest():
        of_a_package = entry.package or entry.network.startswith("timm:")
        assert of_a_package or (entry.sha256_prefix or entry.name) in facts


def test_choose():
    assert [e.stream for e in choose(["kinetics"])] == ["rgb", "flow"]
    (flow,) = choose(["1410c1ccb470", "bninception_flow_kinetics_init-1410c1ccb470.pth"])
    assert flow.network == "bninception" and flow.recipe == "kinetics"
    with pytest.raises(WeightsError, match="'kinetix'") as caught:
        choose(["kinetics", "kinetix"])
    assert "lstr weights list" in caught.value.hint


@pytest.fixture(scope="module")
def flow_file(tmp_path_factory):
    """A weights file of the flow network, as SSN published its own: no counters, (1, C) batch norm."""
    network = build_backbone("bninception")
    randomise(network, 3)
    state = {k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")}
    path = tmp_path_factory.mktemp("published") / "flow.pth"
    torch.save({"state_dict": {k: v[None] if "_bn." in k else v for k, v in state.items()}}, path)
    return path


@pytest.fixture
def published(flow_file, tmp_path, monkeypatch):
    """That file as the only published one, served over HTTP. Yields its manifest entry."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=flow_file.parent)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        entry = {
            **vars(choose(["1410c1ccb470"])[0]),
            "name": "flow.pth",
            "address": f"http://127.0.0.1:{server.server_port}/flow.pth",
            "sha256_prefix": hashlib.sha256(flow_file.read_bytes()).hexdigest()[:8],
        }
        (tmp_path / "manifest.json").write_text(json.dumps({"weights": [entry]}))
        monkeypatch.setattr(manifest, "MANIFEST", tmp_path / "manifest.json")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield entry
        server.shutdown()
        thread.join()


@pytest.mark.long
def test_fetch_then_check(lstr, published, flow_file, tmp_path):
    home = Path(os.environ["LSTR_HOME"])
    code, out, err = lstr("weights", "check")
    assert code == 4 and "No published weights" in err and "lstr weights fetch" in err
    code, out, err = lstr("weights", "fetch")
    assert code == 0 and out == f"{home / 'flow.pth'}\n" and "-o features --weights kinetics" in err
    assert (home / "flow.pth").read_bytes() == flow_file.read_bytes()
    assert json.loads(lstr("weights", "list", "--json")[1])[0]["here"] is True

    code, out, _ = lstr("weights", "check", "--json")
    (verdict,) = json.loads(out)
    assert code == 0 and (verdict["state"], verdict["network"], verdict["stream"]) == ("ok", "bninception", "flow")
    assert verdict["published"] == "flow.pth" and verdict["sha256"].startswith(published["sha256_prefix"])
    assert dataset_of(home / "flow.pth") == "kinetics"

    with (home / "flow.pth").open("r+b") as file:
        file.seek(1000)
        file.write(b"!")
    code, out, err = lstr("weights", "check")
    assert code == 4 and "damaged" in out and err.count("hint: ") == 1 and "lstr weights fetch" in err
    assert lstr("weights", "fetch", "flow.pth")[0] == 0 and lstr("weights", "check")[0] == 0, "fetched again"
    before = (home / "flow.pth").stat().st_mtime_ns
    assert lstr("weights", "fetch", published["sha256_prefix"], "--from", "http://127.0.0.1:9/")[0] == 0
    assert (home / "flow.pth").stat().st_mtime_ns == before, "what is whole is not fetched again"


def test_mirrors(lstr, published, flow_file, tmp_path):
    home = Path(os.environ["LSTR_HOME"])
    address = published["address"]
    for mirror in (flow_file, flow_file.parent, address, address.removesuffix("flow.pth")):
        assert lstr("weights", "fetch", "kinetics", "--from", mirror)[0] == 0, mirror
        (home / "flow.pth").unlink()
    code, _, err = lstr("weights", "fetch", "--from", tmp_path / "none")
    assert code == 2 and "does not exist" in err
    (tmp_path / "other.pth").write_text("another file")
    code, _, err = lstr("weights", "fetch", "--from", tmp_path / "other.pth")
    assert code == 4 and "is not the published flow.pth" in err and [p.name for p in home.iterdir()] == ["runtimes"]
    code, _, err = lstr("weights", "fetch", "--from", address + ".gone")
    assert code == 4 and "404" in err and err.count("hint: ") == 1
    code, _, err = lstr("weights", "fetch", "kinetix")
    assert code == 4 and "lstr weights list" in err


def test_one_file_cannot_stand_for_two(lstr, flow_file):
    code, _, err = lstr("weights", "fetch", "kinetics", "--from", flow_file)
    assert code == 2 and "2 are to be fetched" in err and "error: " in err


def test_fetched_weights_by_name(published, tmp_path):
    home = Path(os.environ["LSTR_HOME"])
    with pytest.raises(WeightsError, match="not on this machine") as caught:
        find_weights("kinetics", "flow")
    assert "lstr weights fetch flow.pth" in caught.value.hint and caught.value.exit_code == 4
    home.mkdir(exist_ok=True)
    (home / "flow.pth").touch()
    assert find_weights("kinetics", "flow") == find_weights("flow.pth", "flow") == str(home / "flow.pth")
    with pytest.raises(WeightsError, match="for the flow stream"):
        find_weights("flow.pth", "rgb")
    assert find_weights("own.pth", "rgb") == "own.pth", "not ours to judge"


def test_a_folder_of_pictures_is_no_weights(tmp_path, monkeypatch):
    """A folder `imagenet` where somebody works hid the published weights of `--recipe pretrained`."""
    (entry,) = choose(["imagenet"])
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "mine.json").write_text('{"based_on": "grey", "grey": {"weights": "imagenet"}}')
    monkeypatch.chdir(tmp_path)
    place = str(entry.place)
    assert find_weights("imagenet", "flow") == place and weights_by_stream(["imagenet"], ["grey"]) == {"grey": place}
    for recipe in ("grey", "mine.json"):
        preset = choose_recipe(recipe)
        assert weights_for(preset, {}) == {"grey": place}
        assert initial_weights(preset, None, {})["grey"].path == entry.place
    with pytest.raises(WeightsError, match="not a finished weights folder"):
        find_weights("./imagenet", "rgb")
    (tmp_path / "imagenet").rmdir()
    (tmp_path / "imagenet").touch()
    assert find_weights("imagenet", "rgb") == "imagenet", "a file is meant"


@pytest.mark.parametrize("command", [("extract", "videos", "-o", "features"), ("detect", "video.mp4")])
def test_commands_take_a_recipe_for_weights(lstr, published, command):
    code, _, err = lstr(*command, "--weights", "flow=kinetics")
    assert code == 4 and "not on this machine" in err and "lstr weights fetch flow.pth" in err


@pytest.mark.parametrize(
    "words", ["extract videos -o f --weights ", "extract videos -o f --weights rgb=", "weights check "]
)
def test_a_model_file_without_networks_is_no_source_of_weights(lstr, tmp_path, words):
    """Features of random networks were made of one, and every fetched file was checked in its place."""
    code, _, err = lstr(*f"{words}{write_exportable(tmp_path).path}".split())
    assert code == 4 and "model.lstr holds no weights of networks" in err and err.count("hint: ") == 1


@pytest.mark.long
def test_check_says_what_any_file_is(lstr, flow_file, tmp_path):
    state = torch.load(flow_file)["state_dict"]
    rgb = {**state, "conv1_7x7_s2.weight": torch.zeros(64, 3, 7, 7)}
    torch.save(rgb, tmp_path / "rgb.pth")
    assert identify(tmp_path / "rgb.pth") == ("bninception", "rgb")
    torch.save({**state, "conv1_7x7_s2.weight": torch.zeros(64, 6, 7, 7)}, tmp_path / "six.pth")
    (tmp_path / "text.pth").write_text("hello")
    code, out, err = lstr("weights", "check", *(tmp_path / f"{n}.pth" for n in ("rgb", "six", "text")), "--json")
    rgb, six, text = json.loads(out)
    assert code == 4 and (rgb["state"], rgb["network"], rgb["stream"]) == ("ok", "bninception", "rgb")
    assert rgb["published"] is None and six["state"] == text["state"] == "unfit" and "conv1_7x7_s2" in six["reason"]
    code, _, err = lstr("weights", "check", tmp_path / "none.pth")
    assert code == 2 and "none.pth" in err


def test_a_published_file_is_known_by_its_hash(published, flow_file, tmp_path):
    (tmp_path / "renamed.pth").write_bytes(flow_file.read_bytes())
    assert dataset_of(tmp_path / "renamed.pth") == "kinetics"
    (tmp_path / "mine.pth").write_bytes(b"mine")
    assert dataset_of(tmp_path / "mine.pth") == "custom" and published_by_hash("0" * 64) is None


def test_weights_have_names_in_python():
    """What the warning of random networks says to write was an AttributeError, and by stream no file."""
    (entry,) = choose(["imagenet"])
    grey = {"grey": str(entry.place)}
    for named in ("imagenet", {"grey": "imagenet"}, entry.name, {"grey": entry.place}):
        assert named_weights(named, ["grey"]) == grey
        for networks in (NetworkOptions(weights=named), {"weights": named}):
            assert NetworkOptions.of(networks, ["grey"]).weights == grey
    assert named_weights(entry.place, ["rgb"]) == {"rgb": str(entry.place)}, "a file says its stream itself"
    assert named_weights(None, ["grey"]) == {} and named_weights({"grey": None}, ["grey"]) == {"grey": None}
    for wrong in (["imagenet"], {"colour": "imagenet"}, {7: "imagenet"}):
        with pytest.raises(ConfigError, match="The weights are") as caught:
            named_weights(wrong, ["grey"])
        assert "rgb" in caught.value.hint
