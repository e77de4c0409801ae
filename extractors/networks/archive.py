"""The container of a model file: a zip of JSON, text and tensors. Every size is checked before it is read.

Members are not compressed, and their names are fixed. `model.json` is the first member; it lists size and SHA-256 of
the others. Tensors are in the safetensors format, which contains only data: no pickle is read. An exported model has
ONNX graphs of known operations instead of tensors (`graph_file`).
"""

import hashlib
import json
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lstr.errors import OutputError, WeightsError, brief
from lstr.extractors.streams import STREAMS

if TYPE_CHECKING:  # only `tensors` needs torch
    from torch import Tensor

FORMATS = ("lstr-model/1", "lstr-model/2")  # of files with tensors, which every release reads, and of files with graphs
SUFFIX = ".lstr"
DOCUMENT = "model.json"
CARD = "card.md"
TENSORS, GRAPH = ".safetensors", ".onnx"
MEMBERS = (DOCUMENT, CARD, *(f"{name}{form}" for name in ("lstr", *STREAMS) for form in (TENSORS, GRAPH)))
MOST_JSON = 16 << 20  # bytes of model.json, and of a header of tensors
# Types of tensors in safetensors, and in numpy.
DTYPES = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    "BOOL": "|b1",
    "BF16": "<u2",  # the upper half of a float32, which numpy has no type for
}
MOST_INDEX = 4096  # bytes of the zip's list of its members
ALIGNMENT = 64  # bytes, so that tensors can be mapped into memory
START, END, ZIP64 = b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x07"
COPY_HINT = "copy or download the file again, or pack it again with `lstr pack`."
# The content of a member: bytes, or tensors by name with an optional text.
Part: TypeAlias = "bytes | tuple[Mapping[str, Tensor], str | None]"
FOREIGN = "use only model files that `lstr pack` or `lstr learn` wrote."


def is_archive(path: str | Path) -> bool:
    """Return whether a path is a model file, judged by its first bytes."""
    if not Path(path).is_file():  # opening a FIFO would block
        return False
    try:
        with Path(path).open("rb") as file:
            head = file.read(30 + len(DOCUMENT))
    except OSError:
        return False
    return head[:4] == START and head[30:] == DOCUMENT.encode()


def member_path(path: str | Path, stream: str) -> Path:
    """Return the path of a stream's network in a model file: `fall.lstr/rgb.safetensors`."""
    return Path(path) / f"{stream}{TENSORS}"


def is_member(path: str | Path) -> bool:
    """Return whether a path refers to a member of a model file."""
    return Path(path).suffix == TENSORS and is_archive(Path(path).parent)


class Archive:
    """A model file for reading; `document` is the content of model.json.

    Opening it checks the sizes of all members and reads only model.json. Raises WeightsError if the file is damaged,
    has another or a newer format, or was not written by `write_archive`.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not is_archive(path):
            raise WeightsError(f"{path} is not a model file, or is cut short.", FOREIGN)
        with self._opened() as (container, members):
            if DOCUMENT not in members or members[DOCUMENT].file_size > MOST_JSON:
                raise WeightsError(f"{path} has no {DOCUMENT} of up to {MOST_JSON} bytes.", FOREIGN)
            content = container.read(members[DOCUMENT])
        document: Any = None
        with suppress(ValueError, RecursionError):
            document = json.loads(content)
        if not isinstance(document, dict):
            raise WeightsError(f"{DOCUMENT} in {path} is not a JSON object.", COPY_HINT)
        self.document: dict[str, Any] = document
        if (form := document.get("format")) not in FORMATS:
            sentence = f"{path} has the format {brief(form)}; this version of lstr reads {' and '.join(FORMATS)}."
            raise WeightsError(sentence, f"update lstr, or {FOREIGN}")
        for name in members:
            if name not in MEMBERS:
                raise WeightsError(f"{path} has a member {name!r}, which is not part of a model file.", FOREIGN)
        stated = document.get("members")
        if not isinstance(stated, dict) or {DOCUMENT, *stated} != set(members):
            raise WeightsError(f"{path} does not contain the members that its {DOCUMENT} lists.", COPY_HINT)
        for name, entry in stated.items():
            fits = isinstance(entry, dict) and isinstance(entry.get("sha256"), str)
            if not fits or entry.get("bytes") != members[name].file_size:
                raise WeightsError(f"{name} in {path} does not have the size in its {DOCUMENT}.", COPY_HINT)
        self.members: dict[str, dict[str, Any]] = stated
        """`bytes` and `sha256` of each member but model.json; `read` checks them."""

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def read(self, name: str) -> bytes:
        """Return the bytes of a member. Raises WeightsError if their hash differs from model.json."""
        if name not in self:
            raise WeightsError(f"{self.path} does not contain {name}.", FOREIGN)
        with self._opened() as (container, members):
            content = container.read(members[name])
        if hashlib.sha256(content).hexdigest() != self.members[name]["sha256"]:
            raise WeightsError(f"{name} in {self.path} is damaged: its SHA-256 does not match.", COPY_HINT)
        return content

    def tensors(self, name: str) -> "tuple[dict[str, Tensor], str | None]":
        """Return a member's tensors by name, on the CPU, and their text. Raises WeightsError."""
        from safetensors.torch import load

        with self._safetensors(name) as (content, note):
            return load(content), note

    def arrays(self, name: str) -> dict[str, NDArray]:
        """Return a member's tensors as numpy arrays by name; bfloat16 becomes float32. Raises WeightsError."""
        from safetensors import deserialize

        arrays = {}
        with self._safetensors(name) as (content, _):
            for tensor, entry in deserialize(content):
                array = np.frombuffer(entry["data"], DTYPES[entry["dtype"]])
                if entry["dtype"] == "BF16":
                    # numpy has no bfloat16: its 16 bits are the upper half of a float32
                    array = (array.astype(np.uint32) << 16).view(np.float32)
                arrays[tensor] = array.reshape(entry["shape"])
        return arrays

    def note(self, name: str) -> str | None:
        """Return the text stored with a member's tensors. Raises WeightsError."""
        with self._safetensors(name) as (_, note):
            return note

    @contextmanager
    def _safetensors(self, name: str) -> Iterator[tuple[bytes, str | None]]:
        """Yield a member with tensors, and the text in its header, which is checked first.

        Raises WeightsError, also for an error in the block.
        """
        from safetensors import SafetensorError

        content = self.read(name)
        wrong = f"{name} in {self.path} is not a safetensors file"
        length = int.from_bytes(content[:8], "little")
        if len(content) < 8 or length > min(MOST_JSON, len(content) - 8):
            raise WeightsError(f"{wrong}: its header would have {length} bytes.", FOREIGN)
        try:
            yield content, json.loads(content[8 : 8 + length]).get("__metadata__", {}).get("lstr")
        except (SafetensorError, ValueError, KeyError, AttributeError, RecursionError, RuntimeError) as error:
            raise WeightsError(f"{wrong} ({error}).", FOREIGN) from error

    @contextmanager
    def _opened(self) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
        """Yield the container and its members by name, each checked to be uncompressed and apart from the others.

        Raises WeightsError, also for an error in the block.
        """
        try:
            # zipfile gets the open file, so that the checked bytes are the bytes read
            with self.path.open("rb") as file:
                # check its size before zipfile reads the list of members, which could fill the memory
                file.seek(max(0, file.seek(0, 2) - 42))
                tail = file.read()
                ending = tail[-22:]
                if ending[:4] != END or ending[20:] != b"\0\0":
                    raise WeightsError(f"{self.path} is cut short, or is not a model file.", COPY_HINT)
                if tail[:4] == ZIP64 or int.from_bytes(ending[12:16], "little") > MOST_INDEX:
                    raise WeightsError(f"{self.path} lists too many members for a model file.", FOREIGN)
                with zipfile.ZipFile(file) as container:
                    infos = sorted(container.infolist(), key=lambda info: info.header_offset)
                    ends = [*(info.header_offset for info in infos[1:]), container.start_dir]
                    for info, end in zip(infos, ends, strict=True):
                        is_encrypted = info.flag_bits & 0x41
                        is_stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
                        is_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
                        fits = info.header_offset + 30 + len(info.orig_filename) + info.file_size <= end
                        if is_encrypted or not (is_stored and is_file and fits):
                            what = f"a member {info.orig_filename!r} that is compressed, encrypted or not a whole file"
                            raise WeightsError(f"{self.path} has {what}.", FOREIGN)
                    if len({info.filename for info in infos}) < len(infos):
                        raise WeightsError(f"{self.path} contains two members with the same name.", FOREIGN)
                    yield container, {info.filename: info for info in infos}
        except OSError as error:
            raise WeightsError(f"{self.path} cannot be read ({error.strerror or error}).", "check its path.") from error
        except (zipfile.BadZipFile, struct.error, EOFError, ValueError, RuntimeError) as error:
            raise WeightsError(f"{self.path} is damaged ({error}).", COPY_HINT) from error


def write_archive(path: Path, document: Mapping[str, Any], card: str, parts: Mapping[str, Part]) -> None:
    """Write a model file; equal content gives equal bytes.

    Args:
        path: The file to write.
        document: Content of model.json without `format` and `members`.
        card: Text of the model card.
        parts: The members by name.

    Raises:
        OutputError: The file would be larger than a zip without the ZIP64 extension can be.
    """
    contents = {CARD: card.encode()}
    for name, part in parts.items():
        if isinstance(part, bytes):
            contents[name] = part
            continue
        from safetensors.torch import save

        tensors, note = part
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
        contents[name] = save(tensors, {} if note is None else {"lstr": note})
    members = {n: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in contents.items()}
    form = FORMATS[1] if any(name.endswith(GRAPH) for name in parts) else FORMATS[0]
    whole = {"format": form, **document, "members": members}
    text = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False)
    if len(text.encode()) > MOST_JSON:
        raise OutputError(f"{DOCUMENT} would exceed {MOST_JSON} bytes.", "shorten the description of the model.")
    try:
        with zipfile.ZipFile(path, "w", allowZip64=False) as container:
            for name, content in {DOCUMENT: text.encode(), **contents}.items():
                info = zipfile.ZipInfo(name)  # dated 1980, so that the bytes do not depend on the time
                # equal on every system, so that equal content has equal bytes
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                info.create_system = 3
                if name.endswith((TENSORS, GRAPH)):
                    begin = container.start_dir + 30 + len(name) + 4
                    padding = -begin % ALIGNMENT
                    # Android's zipalign uses this field for the same purpose
                    info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
                container.writestr(info, content)
    except zipfile.LargeZipFile as error:
        raise OutputError("The model file would exceed 2 GB.", "train a smaller model.") from error
