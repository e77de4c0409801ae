"""Addresses of model files on the Hub: what is one, what is none, and what a path in the Hub's cache once was."""

from pathlib import Path

import pytest

from lstr.errors import CheckpointError
from lstr.pipelines.model_files.hub_address import HubAddress, hub_file, is_hub_address

COMMIT, SHA256 = "0123456789abcdef" * 2 + "01234567", "ab" * 32


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf://me/falls/fall.lstr", HubAddress("me/falls", "fall.lstr")),
        ("hf://me/falls@v1.2/at home/fall.lstr", HubAddress("me/falls", "at home/fall.lstr", "v1.2")),
        (f"hf://me/falls@{COMMIT}/fall.lstr", HubAddress("me/falls", "fall.lstr", COMMIT)),
        ("hf://me/falls@night%2Fkitchen/fall.lstr", HubAddress("me/falls", "fall.lstr", "night/kitchen")),
        ("hf://me/falls@refs/pr/7/fall.lstr", HubAddress("me/falls", "fall.lstr", "refs/pr/7")),
        (f"hf://Me-2/a.b_c/f.lstr#sha256={SHA256}", HubAddress("Me-2/a.b_c", "f.lstr", None, SHA256)),
    ],
)
def test_what_is_an_address(text, address):
    """Its text is the same again, and a path that was made of it means it too."""
    assert is_hub_address(text) and HubAddress.parse(text) == address and str(address) == text
    assert is_hub_address(Path(text)) and HubAddress.parse(Path(text)) == address


def test_other_words_of_the_same():
    """The Hub's own tools write the kind of repository in front; digits of a hash may be capital."""
    assert HubAddress.parse("hf://models/me/falls/f.lstr") == HubAddress("me/falls", "f.lstr")
    assert HubAddress.parse(f"hf://me/falls/f.lstr#sha256={SHA256.upper()}").sha256 == SHA256


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hf://fall.lstr", "is no address"),
        ("hf://me/falls", "is no address"),
        ("hf://me/../f.lstr", "is no address"),
        ("hf://me/a--b/f.lstr", "is no address"),
        ("hf://-me/falls/f.lstr", "is no address"),
        ("hf://me/falls@/f.lstr", "is no address"),
        (f"hf://me/falls/f.lstr#sha256={SHA256[1:]}", "is no address"),
        ("hf://me/falls/f.lstr#md5=1", "is no address"),
        ("hf://me/falls/../../f.lstr", "names no file"),
        ("hf://me/falls//f.lstr", "names no file"),
        ("hf://me/falls/a\\b.lstr", "names no file"),
        ("hf://me/falls/\x1b[31m.lstr", "names no file"),
        ("hf://me/falls@..%2F..%2Fx/f.lstr", "names no revision"),
        ("hf://me/falls@%2Fetc/f.lstr", "names no revision"),
        ("hf://me/falls@a..b/f.lstr", "names no revision"),
        ("hf://me/falls/model.py", "nothing else is fetched"),
        ("hf://me/falls/checkpoint.pt", "nothing else is fetched"),
        ("hf://datasets/me/falls/f.lstr", "one of the Hub's datasets"),
    ],
)
def test_what_is_none(text, words):
    with pytest.raises(CheckpointError, match=words) as caught:
        HubAddress.parse(text)
    assert caught.value.hint


def test_a_token_in_an_address_is_not_said_again():
    with pytest.raises(CheckpointError) as caught:
        HubAddress.parse("hf://me:hf_secret@me/falls/f.lstr")
    assert "hf_secret" not in f"{caught.value}{caught.value.hint}"


def test_paths_that_are_no_addresses():
    for name in ("fall.lstr", "hf/fall.lstr", "https://huggingface.co/me/falls", Path("/hf:/x"), None):
        assert not is_hub_address(name)


def test_what_a_path_in_the_cache_was(tmp_path, monkeypatch):
    place = tmp_path / "models--me--a-b.c" / "snapshots" / COMMIT / "sub"
    place.mkdir(parents=True)
    (place / "f.lstr").write_bytes(b"")
    found = hub_file(place / "f.lstr")
    assert str(found.address) == f"hf://me/a-b.c@{COMMIT}/sub/f.lstr"
    assert found.to_dict() == {
        "address": str(found.address),
        "commit": COMMIT,
        "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }
    monkeypatch.chdir(place)
    assert hub_file("f.lstr").address == found.address
    assert hub_file(tmp_path / "f.lstr") is None and hub_file("/models--a--b/snapshots/main/f.lstr") is None
