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
from lstr.extractors.networks.build import randomise
from lstr.extractors.networks.manifest import dataset_of, read_manifest
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.published import choose, find_weights, named_weights, weights_by_stream
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.features.recipes import choose_recipe, weights_for
from lstr.pipelines.training.recogniser import initial_weights
from tests.support.backbones import build_backbone
from tests.support.exportable import write_exportable
from tests.support.mistakes import mistake


def test_the_manifest_keeps_to_the_facts(shared):
    entries, facts = read_manifest(), (shared / "facts" / "feature-extraction.md").read_text()
    assert len({e.name for e in entries}) == len(entries)
    for entry in entries:
        assert entry.stream in ("rgb", "flow") and re.fullmatch(r"https://\S+", entry.address) and entry.note
        if entry.network.startswith("timm:"):  # test_timm_files.py
            continue
        assert entry.network in NETWORKS
        if entry.sha256_prefix:  # model zoos write the hash into the name
            assert re.fullmatch(r"[0-9a-f]{8,}", entry.sha256_prefix) and entry.sha256_prefix[:8] in entry.name
        else:
            assert "no hash" in entry.note
        if entry.package:
            assert entry.licence.startswith("Apache-2.0") and len(entry.sha256_prefix) == 64
        else:
            assert (entry.sha256_prefix or entry.name) in facts and entry.name in entry.address
    for recipe in ("kinetics", "activitynet"):
        assert sorted(e.stream for e in entries if e.recipe == recipe) == ["flow", "rgb"]


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
    home, address = Path(os.environ["LSTR_HOME"]), published["address"]
    for command in (("weights", "check"), ("detect", "video.mp4", "--weights", "flow=kinetics")):
        code, _, err = lstr(*command)
        assert code == 4 and "lstr weights fetch" in err and err.count("hint: ") == 1
    with pytest.raises(WeightsError, match="flow"):
        find_weights("flow.pth", "rgb")
    code, out, _ = lstr("weights", "fetch")
    assert code == 0 and out == f"{home / 'flow.pth'}\n"
    assert find_weights("kinetics", "flow") == find_weights("flow.pth", "flow") == str(home / "flow.pth")
    assert (home / "flow.pth").read_bytes() == flow_file.read_bytes()
    assert json.loads(lstr("weights", "list", "--json")[1])[0]["here"] is True

    (tmp_path / "mine.pth").write_bytes(b"mine")
    code, out, _ = lstr("weights", "check", home / "flow.pth", tmp_path / "mine.pth", "--json")
    verdict, mine = json.loads(out)
    assert code == 4 and (verdict["state"], verdict["network"], verdict["stream"]) == ("ok", "bninception", "flow")
    assert verdict["published"] == "flow.pth" and verdict["sha256"].startswith(published["sha256_prefix"])
    assert mine["state"] == "unfit" and mine["published"] is None
    assert dataset_of(home / "flow.pth") == "kinetics" and dataset_of(tmp_path / "mine.pth") == "custom"

    with (home / "flow.pth").open("r+b") as file:
        file.seek(1000)
        file.write(b"!")
    assert lstr("weights", "check")[0] == 4
    for mirror in (flow_file, flow_file.parent, address, address.removesuffix("flow.pth")):
        assert lstr("weights", "fetch", "kinetics", "--from", mirror)[0] == 0, mirror
        assert (home / "flow.pth").read_bytes() == flow_file.read_bytes()
        (home / "flow.pth").unlink()
    assert lstr("weights", "fetch", published["sha256_prefix"])[0] == 0
    before = (home / "flow.pth").stat().st_mtime_ns
    assert lstr("weights", "fetch", "--from", "http://127.0.0.1:9/")[0] == 0
    assert (home / "flow.pth").stat().st_mtime_ns == before, "what is whole is not fetched again"


def test_what_cannot_be_fetched(lstr, published, flow_file, tmp_path):
    (tmp_path / "other.pth").write_text("another file")
    for code, *words in (
        (2, "--from", tmp_path / "none"),
        (4, "--from", tmp_path / "other.pth"),
        (4, "--from", published["address"] + ".gone"),
        (4, "kinetix"),
    ):
        mistake(lstr("weights", "fetch", *words), code)
    assert [path.name for path in Path(os.environ["LSTR_HOME"]).iterdir()] == ["runtimes"]


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


@pytest.mark.parametrize(
    "words", ["extract videos -o f --weights ", "extract videos -o f --weights rgb=", "weights check "]
)
def test_a_model_file_without_networks_is_no_source_of_weights(lstr, tmp_path, words):
    """Features of random networks were made of one, and every fetched file was checked in its place."""
    mistake(lstr(*f"{words}{write_exportable(tmp_path).path}".split()), 4, "model.lstr")


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
