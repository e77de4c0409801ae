"""SHA-256 of the parts of a file, without parts that vary between runs: dates, speed, versions, paths.

A part is a tensor, an array, a top-level entry of a JSON document, or a whole text. Parts are grouped by sort: the
tensors and the entries of a checkpoint, the data of a page and its markup.
"""

import hashlib
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from PIL import Image
from safetensors.torch import load as read_safetensors

Parts = dict[str, str]
"""SHA-256 by the name of the part"""
Content = dict[str, Parts]
"""Parts by their sort; "" where a file has one sort"""
TENSORS, ENTRIES = "tensors", "entries"
VARYING = {
    "command",
    "date",
    "git",
    "at",  # wall-clock time of live sources
    "end_at",
    "latency_ms",
    "start_at",
    "machine",
    "made_by",
    "members",
    "memory_mb",
    "mtime",
    "rate",
    "request",
    "speed",
    "versions",
    "waiting",
}
"""Entries of JSON documents that are left out. `members` has hashes of whole files, `request` one of a command."""
VARYING_NUMBERS = {"seconds"}
"""Left out where they are one number; a list of delays is a result."""
VARYING_TEXTS = {"lstr"}
"""Left out where they are a text, as a version is; elsewhere it is the metrics of a model."""
PAGE_DATA = re.compile(r'(<script type="application/json"[^>]*>)(.*?)</script>', re.DOTALL)
DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?(\+\d\d:\d\d|Z)?)?")
DRAWN_NAME = re.compile(r'(?<=["#])[pm][0-9a-f]{10}(?=["#)])')  # matplotlib draws a new one in each run


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes in hex."""
    return hashlib.sha256(content).hexdigest()


def array_digest(array: np.ndarray) -> str:
    """Hash an array's type, shape and values, whatever its layout in memory."""
    return sha256(f"{array.dtype.newbyteorder('=')} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())


def tensor_digest(tensor: torch.Tensor) -> str:
    """Hash a tensor's type, shape and values, also of types that numpy lacks."""
    values = tensor.detach().cpu().contiguous()
    content = values.flatten().view(torch.uint8).numpy().tobytes()
    return sha256(f"{values.dtype} {tuple(values.shape)} ".encode() + content)


def cleaned(value: Any, folders: Mapping[str, str]) -> Any:
    """Return a JSON value without varying entries; paths in `folders` are replaced by their names."""
    if isinstance(value, Mapping):
        return {name: cleaned(entry, folders) for name, entry in value.items() if not _varies(name, entry)}
    if isinstance(value, list):
        return [cleaned(entry, folders) for entry in value]
    return _placed(value, folders) if isinstance(value, str) else value


def _varies(name: str, value: Any) -> bool:
    number = isinstance(value, int | float)
    texts = isinstance(value, str) and name in VARYING_TEXTS
    return name in VARYING or texts or (number and name in VARYING_NUMBERS)


def _placed(text: str, folders: Mapping[str, str]) -> str:
    for folder, name in folders.items():
        text = text.replace(folder, name)
    return text


def json_digest(value: Any, folders: Mapping[str, str]) -> str:
    """Hash a JSON value without varying entries, whatever the order of entries."""
    return sha256(json.dumps(cleaned(value, folders), sort_keys=True).encode())


def document_parts(value: Any, folders: Mapping[str, str]) -> Parts:
    """Hash each top-level entry of a JSON object, or another value as a whole."""
    if not isinstance(value, dict):
        return {"": json_digest(value, folders)}
    return {name: json_digest(entry, folders) for name, entry in value.items() if not _varies(name, entry)}


def lines_parts(text: str, folders: Mapping[str, str]) -> Parts:
    """Hash JSON lines as one part."""
    return {"": json_digest([json.loads(line) for line in text.splitlines()], folders)}


def text_parts(text: str, folders: Mapping[str, str]) -> Parts:
    """Hash a text without its dates."""
    return {"": sha256(DATE.sub("DATE", _placed(text, folders)).encode())}


def page_content(text: str, folders: Mapping[str, str]) -> Content:
    """Hash the data of a page and its markup separately."""
    found = PAGE_DATA.search(text)
    data = {"data": document_parts(json.loads(found[2]), folders)} if found else {}
    return {**data, "page": text_parts(PAGE_DATA.sub(r"\1</script>", text), folders)}


def drawing_parts(text: str, folders: Mapping[str, str]) -> Parts:
    """Hash an SVG with its random names replaced by numbers."""
    names = dict.fromkeys(DRAWN_NAME.findall(text))
    numbers = {name: f"{name[0]}{number}" for number, name in enumerate(names)}
    return text_parts(DRAWN_NAME.sub(lambda name: numbers[name[0]], text), folders)


def checkpoint_content(path: Path, folders: Mapping[str, str]) -> Content:
    """Hash each tensor and entry of a .pt or .pth file."""
    content: Content = {TENSORS: {}, ENTRIES: {}}
    for name, value in _flat(torch.load(path, map_location="cpu", weights_only=True)):
        if isinstance(value, torch.Tensor):
            content[TENSORS][name] = tensor_digest(value)
        elif isinstance(value, str) and value.startswith("{"):  # versions and dates among it have names there
            entries = document_parts(json.loads(value), folders).items()
            content[ENTRIES] |= {f"{name}.{entry}": part for entry, part in entries if not _varies(name, {})}
        elif not _varies(name, value):
            content[ENTRIES][name] = json_digest(value, folders)
    return content


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _flat(entry, f"{name}.{key}".strip("."))
    else:
        yield name, value


def model_file_content(path: Path, folders: Mapping[str, str]) -> Content:
    """Hash each tensor of a .lstr file and each entry of its model.json, which its card repeats as text."""
    content: Content = {TENSORS: {}, ENTRIES: {}}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".safetensors"):
                tensors = read_safetensors(archive.read(member)).items()
                content[TENSORS] |= {f"{member} {name}": tensor_digest(tensor) for name, tensor in tensors}
            elif member.endswith(".json"):
                content[ENTRIES] |= document_parts(json.loads(archive.read(member)), folders)
    return content


def video_parts(path: Path) -> Parts:
    """Hash the decoded frames of a video."""
    whole = hashlib.sha256()
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            whole.update(frame.to_ndarray(format="rgb24").tobytes())
    return {"": whole.hexdigest()}


TEXTS: dict[str, Callable[[str, Mapping[str, str]], Parts]] = {
    ".json": lambda text, folders: document_parts(json.loads(text), folders),
    ".jsonl": lines_parts,
    ".svg": drawing_parts,
}


def file_content(path: Path, folders: Mapping[str, str]) -> Content:
    """Hash a file by its suffix; an unknown suffix is text."""
    match path.suffix:
        case ".pt" | ".pth":
            return checkpoint_content(path, folders)
        case ".lstr":
            return model_file_content(path, folders)
        case ".html":
            return page_content(path.read_text(encoding="utf-8"), folders)
        case ".npy":
            return {"": {"": array_digest(np.load(path))}}
        case ".png":
            return {"": {"": array_digest(np.asarray(Image.open(path).convert("RGBA")))}}
        case ".mp4":
            return {"": video_parts(path)}
    return {"": TEXTS.get(path.suffix, text_parts)(path.read_text(encoding="utf-8"), folders)}
