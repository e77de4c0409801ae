"""Model files from the Hub, fetched by the real huggingface_hub from a stand-in of the Hub's interface."""

import hashlib
import json
import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lstr.errors import CheckpointError
from lstr.pipelines.model_files import hub as fetching
from lstr.pipelines.model_files.hub_address import HubAddress
from lstr.pipelines.model_files.packing import write_model
from tests.support.hub import SIGNATURE, Client, Hub, environment

HEAD = b"PK\x03\x04" + bytes(26) + b"model.json"
TOKEN = "hf_mine_and_secret"


def content(seed: int, size: int = 200_000) -> bytes:
    """What begins as a model file does."""
    return HEAD + bytes([seed]) * size


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    """A Hub with a repository of two commits, a client that reaches it, and the folder of its cache."""
    home = tmp_path_factory.mktemp("hf home ")
    with Hub() as hub:
        repository = hub.add("me/falls")
        old = repository.commit({"fall.lstr": content(1)}, "v1")
        new = repository.commit({"fall.lstr": content(2), "code.py": b"print(1)"}, "main", "at/home")
        with Client(hub, home) as client:
            yield SimpleNamespace(hub=hub, repository=repository, home=home, old=old, new=new, get=client.get)


@pytest.mark.long
def test_a_file_is_fetched_once(online):
    """And only that file; what is told of it is the commit that the branch meant, and the hash."""
    online.hub.asked.clear()
    found = online.get("hf://me/falls/fall.lstr")
    assert found["commit"] == online.new and found["sha256"] == digest(content(2))
    assert found["address"] == f"hf://me/falls@{online.new}/fall.lstr"
    assert found["path"].startswith(str(online.home)) and found["path"].endswith("/fall.lstr")
    assert [method for method, *_ in online.hub.asked] == ["HEAD", "GET"]
    assert online.get("hf://me/falls/fall.lstr") == found
    assert [method for method, *_ in online.hub.asked] == ["HEAD", "GET", "HEAD"]
    assert online.get(found["address"]) == found
    assert len(online.hub.asked) == 3, "a commit that is here needs no network"


@pytest.mark.long
def test_revisions(online):
    for revision, commit, seed in (("v1", online.old, 1), ("at%2Fhome", online.new, 2), (online.old, online.old, 1)):
        found = online.get(f"hf://me/falls@{revision}/fall.lstr")
        assert (found["commit"], found["sha256"]) == (commit, digest(content(seed)))


@pytest.mark.long
def test_a_branch_that_has_moved(online):
    moving = online.hub.add("me/moving")
    moving.commit({"f.lstr": content(3)}, "main")
    first = online.get("hf://me/moving/f.lstr")
    moving.commit({"f.lstr": content(4)}, "main")
    assert online.get("hf://me/moving/f.lstr")["sha256"] == digest(content(4))
    assert online.get(first["address"]) == first


@pytest.mark.long
def test_a_hash_that_differs_is_refused(online):
    assert online.get(f"hf://me/falls@v1/fall.lstr#sha256={digest(content(1))}")["commit"] == online.old
    refused = online.get(f"hf://me/falls/fall.lstr#sha256={digest(content(1))}")
    assert refused["error"] == "CheckpointError" and "is another file" in refused["says"]
    assert digest(content(2)) in refused["says"] and refused["hint"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("address", "words", "hint"),
    [
        ("hf://me/none/f.lstr", "has no repository me/none", "check the name"),
        ("hf://me/private/f.lstr", "has no repository me/private, or does not show it to you", "hf auth login"),
        ("hf://me/gated/f.lstr", "me/gated on the Hub is gated", "ask for access"),
        ("hf://me/falls@v9/fall.lstr", "has no revision v9", "a branch, a tag or a commit"),
        ("hf://me/falls/wall.lstr", "has no file wall.lstr in main", "among the files"),
        ("hf://me/falls/code.py", "nothing else is fetched", "lstr pack"),
        ("hf://me/odd/pickle.lstr", "is no model file, whatever its name is", "lstr has written"),
        ("hf://me/odd/empty.lstr", "is no model file, whatever its name is", "lstr has written"),
    ],
)
def test_what_cannot_be_had_is_said_in_a_sentence(online, address, words, hint):
    files = {"pickle.lstr": pickle.dumps({"a": print}), "empty.lstr": b""}
    online.hub.add("me/odd").commit(files, "main")
    for name in ("private", "gated"):
        online.hub.add(f"me/{name}", **{name: True}).commit({"f.lstr": content(5)}, "main")
    refused = online.get(address)
    assert refused["error"] == "CheckpointError" and words in refused["says"] and hint in refused["hint"]
    assert refused["says"].endswith(".") and "\n" not in refused["says"] + refused["hint"]


@pytest.mark.long
def test_a_transfer_that_breaks_off(online):
    """It goes on where it was; what the client had not written yet is asked for again."""
    size = 12 << 20
    online.hub.add("me/large").commit({"f.lstr": content(6, size), "g.lstr": content(7)}, "main")
    online.hub.asked.clear()
    online.hub.cuts[:] = [11 << 20]
    assert online.get("hf://me/large/f.lstr")["sha256"] == digest(content(6, size))
    first, second = online.hub.of_store()
    assert "range" not in first and second["range"] == f"bytes={10 << 20}-", "it is written by ten megabytes"
    online.hub.asked.clear()
    online.hub.cuts[:] = [100_000]
    assert online.get("hf://me/large/g.lstr")["sha256"] == digest(content(7))
    assert ["range" in headers for headers in online.hub.of_store()] == [False, False]


@pytest.mark.long
def test_a_transfer_that_never_ends_well_leaves_no_half_file(online):
    online.hub.add("me/broken").commit({"f.lstr": content(8)}, "main")
    online.hub.cuts[:] = [50_000] * 6
    refused = online.get("hf://me/broken/f.lstr")
    assert "did not come whole" in refused["says"] and "run it again" in refused["hint"]
    assert SIGNATURE not in json.dumps(refused)
    online.hub.cuts.clear()
    left = [path for path in (online.home / "hub" / "models--me--broken").rglob("*.lstr")]
    assert not left and online.get("hf://me/broken/f.lstr")["sha256"] == digest(content(8))


@pytest.mark.long
def test_without_a_network(online, tmp_path):
    """What was fetched before is there, also by the name of a branch; all else is an error that says why."""
    here, gone = "hf://me/falls@v1/fall.lstr", "hf://me/falls/never.lstr"
    before = online.get(here)
    for more in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        with Client(online.hub, online.home, **more) as client:
            assert client.get(here) == before
            if "HF_HUB_OFFLINE" in more:
                refused = client.get(gone)
                assert "$HF_HUB_OFFLINE forbids to fetch it" in refused["says"] and "unset" in refused["hint"]


@pytest.mark.slow
def test_a_hub_that_is_not_there(online):
    """Before it gives up, huggingface_hub tries for twenty seconds."""
    assert online.get("hf://me/falls/fall.lstr")["commit"] == online.new
    with Client(online.hub, online.home, HF_ENDPOINT="http://127.0.0.1:9") as client:
        refused = client.get("hf://me/falls/never.lstr")
        assert "The Hub cannot be reached" in refused["says"] and "check the network" in refused["hint"]
    online.hub.status = 503
    try:
        assert "The Hub answers 503" in online.get("hf://me/falls@v7/fall.lstr")["says"]
        assert online.get("hf://me/falls/fall.lstr")["commit"] == online.new, "what is here is used"
    finally:
        online.hub.status = 0


@pytest.mark.long
def test_tokens(online, tmp_path):
    """They go to the Hub and to no store, and are in no message."""
    online.hub.tokens.add(TOKEN)
    for name in ("mine", "theirs"):
        online.hub.add(f"me/{name}", private=name == "mine", gated=name == "theirs").commit(
            {"f.lstr": content(9)}, "main"
        )
    online.hub.repositories["me/mine"].readers = (TOKEN,)
    online.hub.asked.clear()
    with Client(online.hub, tmp_path, HF_TOKEN=TOKEN) as client:
        answers = [client.get("hf://me/mine/f.lstr"), client.get("hf://me/theirs/f.lstr")]
        assert answers[0]["sha256"] == digest(content(9)) and "is gated" in answers[1]["says"]
        online.hub.status = 403
        answers.append(client.get("hf://me/falls@v5/fall.lstr"))
        online.hub.status = 0
        assert "forbids" in answers[-1]["says"]
    assert all("authorization" not in headers for headers in online.hub.of_store())
    assert any(TOKEN in headers.get("authorization", "") for *_, headers in online.hub.asked)
    with Client(online.hub, tmp_path, HF_TOKEN="hf_unknown_and_secret") as client:
        answers.append(client.get("hf://me/falls@v5/fall.lstr"))
        assert "does not accept the token" in answers[-1]["says"]
    said = json.dumps(answers)
    assert TOKEN not in said and "hf_unknown_and_secret" not in said and SIGNATURE not in said


@pytest.mark.long
def test_a_cache_that_cannot_be_written(online, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with Client(online.hub, tmp_path / "file") as client:
        refused = client.get("hf://me/falls/fall.lstr")
    assert "cannot be kept here" in refused["says"] and "$HF_HOME" in refused["hint"]


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="huggingface_hub is not installed") as caught:
        fetching.fetch_model(HubAddress("me/falls", "fall.lstr"))
    assert caught.value.hint == "pip install 'lstr-video[hub]'"


@pytest.mark.slow
def test_commands_take_addresses(online, small_set, tmp_path):
    """As a user types them; what comes of it names address, commit and hash."""
    model = write_model(tmp_path / "r.lstr", small_set.checkpoint, None, {}).path
    commit = online.hub.add("me/drawn").commit({"r.lstr": model.read_bytes()}, "main")
    address = "hf://me/drawn/r.lstr"
    pinned = f"hf://me/drawn@{commit}/r.lstr"
    hub = {"address": pinned, "commit": commit, "sha256": digest(model.read_bytes())}
    variables = environment(online.hub, tmp_path / "home", LSTR_HOME=str(tmp_path / "own home"))

    def run(*words, code=0, **more) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "lstr_cli.main", *map(str, words)]
        ran = subprocess.run(command, capture_output=True, text=True, env=variables | more, cwd=tmp_path)
        assert ran.returncode == code, ran.stderr
        return ran

    video = small_set.videos / "scene_03.mp4"
    ran = run("info", address, "--json")
    assert json.loads(ran.stdout)["hub"] == hub and f"model: {pinned} (SHA-256 {hub['sha256']})" in ran.stderr
    few = ["--set", "max_chunks=2", "--json"]
    for words, more in ((["-m", address], {}), ([], {"LSTR_CHECKPOINT": address})):
        timeline = json.loads(run("detect", video, *words, *few, **more).stdout)
        assert timeline["hub"] == hub and timeline["decided"] == 2
    ran = run("evaluate", address, small_set.features, "--labels", small_set.labels, "--json")
    assert json.loads(ran.stdout)["hub"] == hub
    run("unpack", address, "-o", tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "checkpoint.pt").is_file()
    (tmp_path / "w.toml").write_text(f'model = "{address}"\n[sources.hall]\naddress = "rtsp://127.0.0.1:9/x"\n')
    assert run("watch", "w.toml", "--check").stdout.startswith("hall: ")
    (tmp_path / "w.toml").write_text(f'\nmodel = "{address}x"\n[sources.hall]\naddress = "rtsp://127.0.0.1:9/x"\n')
    assert (
        "w.toml:2: model: hf://me/drawn/r.lstrx is no model file by its name"
        in run("watch", "w.toml", "--check", code=2).stderr
    )
    ran = run("detect", video, "-m", "hf://me/drawn/s.lstr", code=4)
    sentence, hint = (
        "me/drawn on the Hub has no file s.lstr in main.",
        "look for its name among the files of the repository.",
    )
    assert ran.stderr == f"error: {sentence}\nhint: {hint}\n"
    code = f"import lstr\nprint(lstr.load({address!r}).hub['commit'])\n"
    code += f"print(next(lstr.detect({str(video)!r}, {address!r})).chunk)\n"
    folders = f"{str(small_set.features)!r}, {str(small_set.labels)!r}"
    code += f"print(lstr.evaluate({address!r}, {folders}).document['hub']['sha256'])\n"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)
    assert ran.stdout.split() == [commit, "0", hub["sha256"]], ran.stderr
