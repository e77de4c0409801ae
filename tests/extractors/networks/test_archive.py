"""The container of a model file: the same bytes again, and every way of harm that is known refused in one sentence."""

import hashlib
import io
import json
import pickle
import struct
import zipfile

import pytest
import torch
from safetensors.torch import save

from lstr.errors import WeightsError
from lstr.extractors.networks import archive
from lstr.extractors.networks.archive import (
    Archive,
    is_archive,
    is_member,
    member_path,
    write_archive,
)
from lstr.extractors.networks.weights_file import read_content

RGB = "rgb.safetensors"


@pytest.fixture
def path(tmp_path):
    tensors = {
        "b": torch.arange(6.0).reshape(2, 3),
        "a": torch.tensor([1, 2]),
        "c": torch.ones(3, dtype=torch.bfloat16),
    }
    write_archive(tmp_path / "x.lstr", {"classes": ["fäll"]}, "# card\n", {RGB: (tensors, "a note")})
    return tmp_path / "x.lstr"


def members_of(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as container:
        return {name: container.read(name) for name in container.namelist()}


def written(path, members: dict[str, bytes], harm=lambda info: None, honest: bool = True) -> None:
    """Members as another program might pack them; `honest` gives model.json their real sizes and hashes."""
    document = json.loads(members["model.json"])
    if honest:
        entries = {n: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in members.items()}
        del entries["model.json"]
        members = members | {"model.json": json.dumps(document | {"members": entries}).encode()}
    with zipfile.ZipFile(path, "w") as container:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            harm(info)
            container.writestr(info, content, info.compress_type)


def refused(path, words: str, name: str = RGB) -> None:
    with pytest.raises(WeightsError, match=words) as caught:
        Archive(path).tensors(name)
    assert caught.value.hint and caught.value.exit_code == 4 and "\n" not in str(caught.value)


def test_what_is_written_is_read(path):
    found = Archive(path)
    assert found.document["format"] == "lstr-model/1" and found.document["classes"] == ["fäll"]
    tensors, note = found.tensors(RGB)
    assert note == "a note" and tensors["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert {name: t.dtype for name, t in tensors.items()} == {
        "a": torch.int64,
        "b": torch.float32,
        "c": torch.bfloat16,
    }
    assert found.read("card.md") == b"# card\n" and "flow.safetensors" not in found


def test_the_same_content_gives_the_same_bytes(path, tmp_path):
    tensors = {
        "c": torch.ones(3, dtype=torch.bfloat16),
        "a": torch.tensor([1, 2]),
        "b": torch.arange(6.0).reshape(2, 3),
    }
    write_archive(tmp_path / "y.lstr", {"classes": ["fäll"]}, "# card\n", {RGB: (tensors, "a note")})
    assert (tmp_path / "y.lstr").read_bytes() == path.read_bytes()


def test_tensors_lie_in_the_file_as_in_memory(path):
    """Stored, and at a multiple of 64 bytes, so that other programs can map them."""
    with zipfile.ZipFile(path) as container:
        info = container.getinfo(RGB)
        begin = info.header_offset + 30 + len(info.filename) + len(info.extra)
        assert begin % 64 == 0 and path.read_bytes()[begin : begin + info.file_size] == container.read(RGB)


def test_a_member_is_a_weights_file(path):
    assert member_path(path, "rgb") == path / RGB and is_member(path / RGB) and not is_member(path)
    assert read_content(path / RGB)["lstr"] == Archive(path).note(RGB) == "a note"
    assert is_archive(path) and not is_archive(path.parent) and not is_archive(path.parent / "none")


def test_opening_reads_no_tensors(path, monkeypatch):
    """A file of which the tensors are harmed opens; they are looked at when they are needed."""
    content = path.read_bytes()
    tensors = members_of(path)[RGB]
    assert content.count(tensors) == 1
    path.write_bytes(content.replace(tensors, tensors[:-1] + b"\1"))
    assert Archive(path).document["classes"] == ["fäll"]
    refused(path, "is damaged .Bad CRC-32 for file .rgb.safetensors")


def test_a_wrong_hash(path):
    members = members_of(path)
    tensors = save(
        {"b": torch.zeros(2, 3), "a": torch.tensor([1, 2]), "c": torch.ones(3, dtype=torch.bfloat16)},
        {"lstr": "a note"},
    )
    assert len(tensors) == len(members[RGB])
    written(path, members | {RGB: tensors}, honest=False)
    refused(path, "SHA-256")


@pytest.mark.parametrize("length", [1 << 62, 100 << 20, 200])
def test_a_huge_header(path, length):
    written(path, members_of(path) | {RGB: struct.pack("<Q", length) + b"{}" + bytes(90)})
    refused(path, f"{length} bytes")


def test_a_header_of_tensors_that_are_not_there(path):
    header = json.dumps({"x": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    written(path, members_of(path) | {RGB: struct.pack("<Q", len(header)) + header})
    refused(path, "is not a safetensors file")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "C:\\x"])
def test_a_path_outside(path, name):
    written(path, members_of(path) | {name: b"x"})
    refused(path, "outside the file")
    assert not (path.parent.parent / "x").exists()


def test_a_pickle_is_not_read(path, monkeypatch):
    harm = pickle.dumps(pytest.fail)
    written(path, members_of(path) | {RGB: harm})
    refused(path, "is not a safetensors file")
    written(path, members_of(path) | {"data.pkl": harm})
    refused(path, "data.pkl")
    content = io.BytesIO()
    torch.save({"state_dict": {}}, content)
    written(path, {n: c for n, c in members_of(path).items() if n != "data.pkl"} | {RGB: content.getvalue()})
    refused(path, "is not a safetensors file")


@pytest.mark.parametrize("kept", [0, 4, 60, 0.5, -1])
def test_a_file_cut_short(path, kept):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept) if isinstance(kept, float) else kept])
    refused(path, "cut short")


def test_a_bomb(path):
    """A hundred megabytes of zeros in a hundred kilobytes."""

    def compress(info):
        info.compress_type = zipfile.ZIP_DEFLATED if info.filename == RGB else zipfile.ZIP_STORED

    written(path, members_of(path) | {RGB: bytes(100 << 20)}, compress)
    assert path.stat().st_size < 200_000
    refused(path, "'rgb.safetensors' that is compressed")


def test_two_members_of_one_name(path):
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as container:
        container.writestr(RGB, b"other")
    refused(path, "two members")


def test_links_folders_and_encryption(path):
    def link(info):
        info.external_attr = 0o120777 << 16 if info.filename == "card.md" else 0

    written(path, members_of(path), link)
    refused(path, "'card.md' that is a link or a folder")
    content = bytearray(path.read_bytes())
    for begin in (content.rindex(b"card.md") - 46 + 8, content.index(b"card.md") - 30 + 6):
        content[begin] |= 1
    path.write_bytes(content)
    refused(path, "'card.md' that is encrypted")


def test_a_member_larger_than_its_place(path):
    """A size in the list of members that reaches over the next one, or over the end of the file."""
    content = bytearray(path.read_bytes())
    begin = content.rindex(b"card.md") - 46
    content[begin + 20 : begin + 28] = struct.pack("<II", 5000, 5000)
    path.write_bytes(content)
    refused(path, "'card.md' that is larger than its place")


def test_a_list_of_too_many_members(path):
    written(path, members_of(path) | {f"{k}": b"" for k in range(100)})
    refused(path, "members")


def test_a_document_that_is_too_large(path, monkeypatch):
    monkeypatch.setattr(archive, "MOST_JSON", 100)
    refused(path, "model.json .* bytes")


def test_other_formats(path):
    members = members_of(path)
    document = json.loads(members["model.json"])
    for found, words in (("lstr-model/3", "newer lstr: its format is lstr-model/3"), ("other/1", "not of the format")):
        written(path, members | {"model.json": json.dumps(document | {"format": found}).encode()})
        refused(path, words)
    for wrong in (b"[]", b"{", b"[" * 100_000):
        with zipfile.ZipFile(path, "w") as container:
            container.writestr("model.json", wrong)
        refused(path, "model.json in .* is not a JSON object")


def test_members_that_are_not_stated(path):
    members = members_of(path)
    written(path, members | {"flow.safetensors": members[RGB]}, honest=False)
    refused(path, "does not contain the members")
    written(path, members | {"card.md": b"longer than it was"}, honest=False)
    refused(path, "card.md in .* the size")
