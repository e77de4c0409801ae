"""Published weights, weights folders and model files: downloads, the manifest, `lstr weights`, origin and licence."""

import hashlib
import json
import os
import re
import shutil
import urllib.request
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lstr.checkpoint import save
from lstr.errors import ConfigError, RecipeError, WeightsError
from lstr.extractors.networks import download as module
from lstr.extractors.networks import manifest
from lstr.extractors.networks.archive import Archive
from lstr.extractors.networks.build import build_network, fingerprint, identify
from lstr.extractors.networks.download import download
from lstr.extractors.networks.manifest import dataset_of, origin_of, published_by_hash, read_manifest
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.published import check, choose, find_weights, named_weights
from lstr.extractors.networks.weights_file import (
    ModelCard,
    WeightSources,
    is_weights_folder,
    read_card,
    read_state_dict,
    sha256_of,
)
from lstr.extractors.networks.weights_folder import blind_fold, cards_of, open_weights, write_network
from lstr.extractors.presets import Preset, StreamPreset
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.model_files.packing import unpack_model, write_model
from lstr.pipelines.training.recogniser import initial_weights
from tests.support.backbones import build_backbone
from tests.support.errors import assert_error
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, NAMES, RGB_DIM, SMALL
from tests.support.http_servers import Handler, Server
from tests.support.model_files import write_exportable

CONTENT = np.random.default_rng(0).bytes(1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PREFIX = SHA256[:8]
QUIET = lambda *_: None  # noqa: E731


class FaultyHandler(Handler):
    """Serves `server.content` at every path, with the errors that the server was given."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, size = self.server, len(self.server.content)
        requested = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        server.starts.append(requested)
        start = requested if server.ranges else 0
        status = 416 if start >= size else 206 if start else 200
        body, span = server.content[start:], f"{start}-{size - 1}" if start < size else "*"
        if server.statuses:
            status, body = server.statuses.pop(0), b"sorry"
        self.send_response(status)
        self.send_header("Content-Type", server.content_type)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {span}/{size}")
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0) if server.cuts else None])
        self.close_connection = True


@pytest.fixture
def server(tmp_path):
    """A server; `starts` are the requested offsets, and `cuts` the bytes that each response sends."""
    with Server(tmp_path, FaultyHandler) as running:
        running.content, running.content_type = CONTENT, "application/octet-stream"
        running.ranges, running.starts, running.cuts, running.statuses = True, [], [], []
        running.address = f"{running.root}/weights.pth"
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0)


def names(folder) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    ("part", "prefix", "ranges", "cuts", "starts"),
    [
        (b"", PREFIX, True, [], [0]),
        (b"", PREFIX, True, [300_000, 1, 0], [0, 300_000, 300_001, 300_001]),  # closed connections are resumed
        (b"", PREFIX, False, [300_000], [0, 300_000]),  # a server without ranges sends the whole file again
        (CONTENT[:300_000], PREFIX, True, [], [300_000]),
        (CONTENT, PREFIX, True, [], [1_000_000]),  # a run that was killed before it could rename
        (b"another file" * 10, PREFIX, True, [], [120, 0]),
        (CONTENT + b"more", PREFIX, True, [], [1_000_004, 0]),
        (CONTENT[:1000], None, True, [], [0]),  # not trusted without a known hash
    ],
)
def test_downloads_resume(server, tmp_path, part, prefix, ranges, cuts, starts):
    """After a cut connection, and after an earlier run that wrote `part`."""
    server.ranges, server.cuts, progress = ranges, cuts, []
    target = tmp_path / "new folder" / "weights.pth"
    if part:
        target.parent.mkdir()
        target.with_name(".weights.pth.part").write_bytes(part)
    assert download(server.address, target, prefix, lambda *call: progress.append(call)) == SHA256
    assert target.read_bytes() == CONTENT and names(target.parent) == ["weights.pth"] and server.starts == starts
    assert part == CONTENT or progress[-1] == ("weights.pth", len(CONTENT), len(CONTENT))


def test_a_wrong_hash_keeps_the_previous_file(server, tmp_path):
    server.content = CONTENT[:-1] + b"!"
    (tmp_path / "weights.pth").write_text("previous")
    with pytest.raises(WeightsError, match=PREFIX) as caught:
        download(server.address, tmp_path / "weights.pth", PREFIX, QUIET)
    assert caught.value.exit_code == 4
    assert names(tmp_path) == ["weights.pth"] and (tmp_path / "weights.pth").read_text() == "previous"


def test_errors_of_the_server(server, tmp_path):
    server.statuses = [503, 429]  # a busy server: the request is repeated
    download(server.address, tmp_path / "weights.pth", PREFIX, QUIET)
    assert (tmp_path / "weights.pth").read_bytes() == CONTENT
    for statuses, tries in (([404], 1), ([403], 1), ([500] * module.MAX_CUTS, module.MAX_CUTS)):
        server.statuses, server.starts = [*statuses], []
        with pytest.raises(WeightsError, match=str(statuses[0])):
            download(server.address, tmp_path / "x.pth", PREFIX, QUIET)
        assert len(server.starts) == tries
    server.content_type = "text/html; charset=utf-8"
    for address in (server.address, "http://no-such-host.invalid/w.pth", str(tmp_path / "none.bin")):
        with pytest.raises(WeightsError):
            download(address, tmp_path / "x.pth", PREFIX, QUIET)
    assert names(tmp_path) == ["weights.pth"]
    server.content_type, server.cuts = "application/octet-stream", [300_000] + [0] * module.MAX_CUTS
    with pytest.raises(WeightsError, match="300000"):
        download(server.address, tmp_path / "x.pth", PREFIX, QUIET)
    assert names(tmp_path) == [".x.pth.part", "weights.pth"], "kept for a later run"


def test_redirects_to_other_hosts_but_not_to_weaker_protocols(server, tmp_path):
    """Content delivery networks serve published weights; the known hash protects them."""
    with Server(tmp_path) as redirecting:
        download(f"{redirecting.root}/to/{server.address}", tmp_path / "w.pth", PREFIX, QUIET)
        assert (tmp_path / "w.pth").read_bytes() == CONTENT
        for target in ("ftp://127.0.0.1/w.pth", "file:///etc/passwd"):
            with pytest.raises(WeightsError):
                download(f"{redirecting.root}/to/{target}", tmp_path / "x.pth", PREFIX, QUIET)
        redirecting.shutdown()
    secure = urllib.request.Request("https://published.example/w.pth")
    with pytest.raises(WeightsError, match="http://"):
        module.Redirects().redirect_request(secure, None, 302, "Found", {}, "http://elsewhere.example/w.pth")
    assert not (tmp_path / "x.pth").exists()


def test_the_manifest_agrees_with_the_notes(shared):
    entries, notes = read_manifest(), (shared / "facts" / "feature-extraction.md").read_text()
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.stream in ("rgb", "flow") and re.fullmatch(r"(https://|npm:@)\S+", entry.address) and entry.note
        prefix, is_of_timm = entry.sha256_prefix, entry.network.startswith("timm:")  # see test_packages.py
        assert is_of_timm or entry.network in NETWORKS
        is_packed = entry.package or entry.address.startswith("npm:")
        assert prefix is None or is_packed or prefix[:8] in entry.name, "model zoos put the hash into the name"
        assert is_of_timm or is_packed or (prefix or entry.name) in notes and entry.name in entry.address
        assert not entry.package or entry.licence.startswith("Apache-2.0") and len(prefix) == 64
    for recipe in ("kinetics", "activitynet"):
        assert sorted(entry.stream for entry in entries if entry.recipe == recipe) == ["flow", "rgb"]


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The manifest entry of the only published file, which is served over HTTP, and its path."""
    (tmp_path / "served").mkdir()
    path = tmp_path / "served" / "flow.pth"
    torch.save(build_backbone("bninception").state_dict(), path)
    with Server(path.parent) as running:
        entry = {**vars(choose(["1410c1ccb470"])[0]), "name": path.name, "address": f"{running.root}/flow.pth"}
        entry["sha256_prefix"] = sha256_of(path)[:8]
        (tmp_path / "manifest.json").write_text(json.dumps({"weights": [entry]}))
        monkeypatch.setattr(manifest, "MANIFEST", tmp_path / "manifest.json")
        yield entry, path
        running.shutdown()


@pytest.mark.long
def test_fetch_then_check(lstr, published, tmp_path):
    home, (entry, path) = Path(os.environ["LSTR_HOME"]), published
    address = entry["address"]
    for command in (("weights", "check"), ("detect", "video.mp4", "--weights", "flow=kinetics")):
        assert_error(lstr(*command), 4, "lstr weights fetch")
    with pytest.raises(WeightsError, match="flow"):
        find_weights("flow.pth", "rgb")
    code, out, _ = lstr("weights", "fetch")
    assert code == 0 and out == f"{home / 'flow.pth'}\n"
    assert find_weights("kinetics", "flow") == find_weights("flow.pth", "flow") == str(home / "flow.pth")
    assert (home / "flow.pth").read_bytes() == path.read_bytes()
    assert json.loads(lstr("weights", "list", "--json")[1])[0]["here"] is True

    (tmp_path / "mine.pth").write_bytes(b"mine")
    code, out, _ = lstr("weights", "check", home / "flow.pth", tmp_path / "mine.pth", "--json")
    verdict, mine = json.loads(out)
    assert code == 4 and (verdict["state"], verdict["network"], verdict["stream"]) == ("ok", "bninception", "flow")
    assert verdict["published"] == "flow.pth" and verdict["sha256"].startswith(entry["sha256_prefix"])
    assert mine["state"] == "unfit" and mine["published"] is None
    assert dataset_of(home / "flow.pth") == "kinetics" and dataset_of(tmp_path / "mine.pth") == "custom"

    (home / "flow.pth").write_bytes(path.read_bytes()[:-1] + b"!")
    assert lstr("weights", "check")[0] == 4
    for mirror in (path, path.parent, address, address.removesuffix("flow.pth")):
        assert lstr("weights", "fetch", "kinetics", "--from", mirror)[0] == 0, mirror
        assert (home / "flow.pth").read_bytes() == path.read_bytes()
        (home / "flow.pth").unlink()
    assert lstr("weights", "fetch", entry["sha256_prefix"])[0] == 0
    before = (home / "flow.pth").stat().st_mtime_ns
    assert lstr("weights", "fetch", "--from", "http://127.0.0.1:9/")[0] == 0
    assert (home / "flow.pth").stat().st_mtime_ns == before, "a complete file is not fetched again"


def test_errors_of_fetch(lstr, published, tmp_path):
    (tmp_path / "other.pth").write_text("another file")
    for source, code in ((tmp_path / "none", 2), (tmp_path / "other.pth", 4), (published[0]["address"] + ".gone", 4)):
        assert_error(lstr("weights", "fetch", "--from", source), code)
    assert_error(lstr("weights", "fetch", "kinetix"), 4, "kinetix")
    assert names(Path(os.environ["LSTR_HOME"])) == ["runtimes"]


@pytest.mark.parametrize(
    "words", ["extract {} -o f --weights {}", "extract {} -o f --weights rgb={}", "weights check {}"]
)
def test_a_model_file_without_networks_has_no_weights(lstr, tmp_path, words):
    assert_error(lstr(*words.format(*[write_exportable(tmp_path).path] * 2).split()), 4, "model.lstr")


def test_names_of_weights_in_python():
    (entry,) = choose(["imagenet"])
    grey = {"grey": str(entry.place)}
    for weights in ("imagenet", {"grey": "imagenet"}, entry.name, {"grey": entry.place}):
        assert named_weights(weights, ["grey"]) == grey
        for networks in (NetworkOptions(weights=weights), {"weights": weights}):
            assert NetworkOptions.of(networks, ["grey"]).weights == grey
    assert named_weights(entry.place, ["rgb"]) == {"rgb": str(entry.place)}, "the file contains its stream"
    assert named_weights(None, ["grey"]) == {} and named_weights({"grey": None}, ["grey"]) == {"grey": None}
    for wrong in (["imagenet"], {"colour": "imagenet"}, {7: "imagenet"}):
        with pytest.raises(ConfigError) as caught:
            named_weights(wrong, ["grey"])
        assert "rgb" in caught.value.hint


@pytest.mark.long
def test_written_networks_are_read(finetuned):
    weights = finetuned.weights
    read = open_weights(weights.path)
    assert is_weights_folder(weights.path) and not is_weights_folder(weights.path / "fold_1")
    assert read.recipe == weights.recipe and read.about == weights.about
    assert (read.about["name"], read.about["classes"], read.recipe.streams) == ("fälle", [*CLASSES], ("rgb", "flow"))
    assert read.about["folds"] == {"scene_00": 1, "scene_01": 2} and read.about["seconds"] == 1.0
    assert read.recipe.flow.folder("flow") == "flow_fälle_shufflenetv2"
    card, seen = read_card(read.file("flow", 2)), {"scene_00": read.about["training"]["scene_00"]}
    assert card == ModelCard("fälle", "flow", "shufflenetv2", CLASSES, seen, 0.5, 2)
    cards = cards_of(weights.path, "rgb", 2)
    assert blind_fold(cards, "scene_00", None) == 1
    assert blind_fold([replace(card, seen=read.about["training"]) for card in cards], "scene_00", None) is None
    for stream, name in NAMES.items():
        part, sources = weights.recipe.parts[stream], WeightSources({stream: str(weights.path)})
        assert len({part.sha256, *part.folds}) == 3
        for fold, sha256 in zip((None, 1, 2), (part.sha256, *part.folds), strict=True):
            assert identify(weights.file(stream, fold)) == (name, stream)
            network, rebuilt = build_network(stream, part, sources, fold=fold)
            assert fingerprint(network) == sha256 and rebuilt == replace(part, sha256=sha256)


@pytest.mark.long
def test_keys_of_files_are_the_published_ones(shared, tmp_path):
    head = {"cls_head.fc_cls.weight": torch.ones(2, 1024), "cls_head.fc_cls.bias": torch.zeros(2)}
    for stream, network in (("rgb", "resnet50"), ("flow", "bninception")):
        state = {f"backbone.{name}": tensor for name, tensor in build_backbone(network).state_dict().items()}
        write_network(tmp_path, state | head, ModelCard("w", stream, network, CLASSES, {}))
    facts = json.loads((shared / "facts" / "resnet50_tsn_mmaction2_keys.json").read_text())
    names = {name for name in facts if not name.startswith(("_", "note"))}
    assert names <= read_state_dict(tmp_path / "rgb.pth").keys()
    flow = read_state_dict(tmp_path / "flow.pth")
    assert flow["module.base_model.conv1_7x7_s2.weight"].shape == (64, 10, 7, 7)
    assert flow["module.new_fc.weight"].shape == (len(CLASSES), 1024) and "module.new_fc.bias" in flow


@pytest.mark.long
def test_check_and_info_of_a_weights_folder(lstr, finetuned):
    weights = finetuned.weights
    verdicts = [[v[k] for k in ("state", "stream", "network", "name", "fold", "seen")] for v in check([weights.path])]
    folds = [(None, 2), (1, 1), (2, 1)]
    assert verdicts == [["ok", s, n, "fälle", fold, seen] for s, n in NAMES.items() for fold, seen in folds]
    assert find_weights(str(weights.path), "rgb") == str(weights.path)
    with pytest.raises(RecipeError) as caught:
        open_features(weights.path)
    assert "--recipe" in caught.value.hint
    info = json.loads(lstr("info", weights.path, "--json")[1])
    assert info["kind"] == "weights folder" and info["pairs"] == 3
    assert info["training"] == ["scene_00", "scene_01"] and info["recipe_id"] == weights.recipe.id
    code, out, err = lstr("info", weights.file("rgb", 1))
    assert code == 0 and "scene_01" in out and "scene_00" not in out, err


LITE0 = Preset(StreamPreset("efficientnet-lite0"), None, short_side=64, crop=64)


@pytest.mark.long
def test_a_model_file_passes_on_the_origin_of_its_networks(lstr, finetuned, tmp_path):
    """Only the RGB network of this model file has an origin: the included weights."""
    imagenet = initial_weights(LITE0, "imagenet", {})["rgb"].origin
    assert imagenet.licence.startswith("Apache-2.0") and imagenet.dataset == "imagenet"
    assert published_by_hash(imagenet.sha256).name == imagenet.file and "Apache-2.0" in str(imagenet)
    assert initial_weights(LITE0, None, {})["rgb"].origin is None, "random weights"
    weights = shutil.copytree(finetuned.weights.path, tmp_path / "weights")
    content = torch.load(weights / "rgb.pth", weights_only=True)
    card = replace(read_card(weights / "rgb.pth"), origin=imagenet)
    torch.save({**content, "lstr": card.to_json()}, weights / "rgb.pth")
    network = make_model(configure(**TINY, rgb_dim=RGB_DIM), len(CLASSES)).eval()
    save(tmp_path / "c.pt", network, CLASSES, json.loads(finetuned.weights.recipe.to_json()), {}, {})
    model = write_model(tmp_path / "m.lstr", tmp_path / "c.pt", weights, {})
    entries = model.about["networks"]
    assert entries["rgb"]["origin"] == asdict(imagenet) and "origin" not in entries["flow"]
    assert model.recipe.id == finetuned.weights.recipe.id
    assert imagenet.licence in Archive(model.path).read("card.md").decode()
    code, out, _ = lstr("info", model.path, "--json")
    networks = json.loads(out)["networks"]
    assert code == 0 and networks["rgb"]["origin"] == asdict(imagenet) and "origin" not in networks["flow"]
    verdicts = json.loads(lstr("weights", "check", model.path, "--json")[1])
    assert [verdict["origin"] for verdict in verdicts] == [asdict(imagenet), None]
    torch.save(network.state_dict(), tmp_path / "mine.pth")
    assert origin_of(tmp_path / "mine.pth").licence is None
    unpacked = unpack_model(model.path, tmp_path / "parts") / "weights"
    assert origin_of(unpacked / "rgb.pth") == imagenet and origin_of(unpacked / "flow.pth") is None
    assert json.loads(lstr("info", unpacked, "--json")[1])["origins"] == {"rgb": str(imagenet)}
    assert initial_weights(SMALL, str(model.path), {})["rgb"].origin == imagenet
