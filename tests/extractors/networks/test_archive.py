"""The container of a model file: reproducible bytes, and refusal of harmful files."""

import io
import json
import pickle
import struct
import zipfile

import pytest
import torch

from lstr.errors import WeightsError
from lstr.extractors.networks.archive import Archive, write_archive

RGB = "rgb.safetensors"
TENSORS = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor([1, 2]), "c": torch.ones(3, dtype=torch.bfloat16)}


def write(path, parts, **document) -> None:
    write_archive(path, {"classes": ["fäll"], **document}, "# card\n", parts)


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "x.lstr", {RGB: (TENSORS, "a note")})
    return tmp_path / "x.lstr"


def members_of(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as container:
        return {name: container.read(name) for name in container.namelist()}


def pack(path, members: dict[str, bytes], change=lambda info: None) -> None:
    """Pack members as another program might."""
    with zipfile.ZipFile(path, "w") as container:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            change(info)
            container.writestr(info, content, info.compress_type)


def check_refused(path) -> None:
    with pytest.raises(WeightsError) as caught:
        Archive(path).tensors(RGB)
    assert caught.value.exit_code == 4 and "\n" not in str(caught.value)


def test_members_are_read_as_written(path, tmp_path):
    archive = Archive(path)
    assert archive.document["format"] == "lstr-model/1" and archive.document["classes"] == ["fäll"]
    tensors, note = archive.tensors(RGB)
    assert note == "a note" and tensors.keys() == TENSORS.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == TENSORS[name].dtype and torch.equal(tensor, TENSORS[name])
    assert archive.read("card.md") == b"# card\n" and "flow.safetensors" not in archive
    write(tmp_path / "y.lstr", {RGB: (dict(reversed(TENSORS.items())), "a note")})
    assert (tmp_path / "y.lstr").read_bytes() == path.read_bytes(), "equal content gives equal bytes"
    with zipfile.ZipFile(path) as container:  # stored and aligned, so that other programs can map tensors
        info = container.getinfo(RGB)
        begin = info.header_offset + 30 + len(info.filename) + len(info.extra)
        assert begin % 64 == 0 and path.read_bytes()[begin : begin + info.file_size] == container.read(RGB)


def test_damaged_tensors(path):
    """The file opens; tensors are checked when they are read, by the checksum of ZIP and by their hash."""
    content, members = path.read_bytes(), members_of(path)
    damaged = members[RGB][:-1] + b"\1"
    path.write_bytes(content.replace(members[RGB], damaged))
    assert Archive(path).document["classes"] == ["fäll"]
    check_refused(path)
    pack(path, members | {RGB: damaged})
    check_refused(path)


ABSENT = json.dumps({"x": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
PICKLE = pickle.dumps(pytest.fail)
TORCH = io.BytesIO()
torch.save({"state_dict": {}}, TORCH)


@pytest.mark.parametrize(
    "parts",
    [
        *({RGB: struct.pack("<Q", length) + b"{}" + bytes(90)} for length in (1 << 62, 100 << 20, 200)),
        {RGB: struct.pack("<Q", len(ABSENT)) + ABSENT},
        {RGB: PICKLE},
        {"data.pkl": PICKLE},
        {RGB: TORCH.getvalue()},
        *({name: b"x"} for name in ("../x", "/etc/x", "a/../../x", "C:\\x")),
        {f"{k}": b"" for k in range(100)},
    ],
)
def test_harmful_members(path, parts):
    """Wrong headers, pickles, paths outside of the file, and too many members."""
    write(path, {RGB: (TENSORS, None), **parts})
    check_refused(path)
    assert not (path.parent.parent / "x").exists()


def test_other_formats(path):
    for form in ("lstr-model/3", "other/1"):
        write(path, {}, format=form)
        check_refused(path)


def test_a_zip_bomb(path):
    def compress(info):
        info.compress_type = zipfile.ZIP_DEFLATED if info.filename == RGB else zipfile.ZIP_STORED

    write(path, {RGB: bytes(100 << 20)})
    pack(path, members_of(path), compress)
    assert path.stat().st_size < 200_000
    check_refused(path)


def test_harmful_directory_entries(path):
    """A link, an encrypted member, a size that includes the next member, and two members with one name."""

    def link(info):
        info.external_attr = 0o120777 << 16 if info.filename == "card.md" else 0

    whole = path.read_bytes()
    pack(path, members_of(path), link)
    check_refused(path)
    begin, encrypted, larger = whole.rindex(b"card.md") - 46, bytearray(whole), bytearray(whole)
    for flags in (begin + 8, whole.index(b"card.md") - 30 + 6):
        encrypted[flags] |= 1
    larger[begin + 20 : begin + 28] = struct.pack("<II", 5000, 5000)
    for content in (encrypted, larger):
        path.write_bytes(content)
        check_refused(path)
    path.write_bytes(whole)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as container:
        container.writestr(RGB, b"other")
    check_refused(path)
