"""Read and write file content: bytes, text, JSON, JSON lines, and JSON objects as dataclasses."""

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from lstr.files.atomic import unwritable, write_text
from lstr.files.remote import Place, content_of

Built = TypeVar("Built")

LARGEST = 10**9
MOST_TEXT = 16 << 20  # maximum size in bytes of a recipe or a record
# A finite number. Integers stay int, so that they are written back in the same form.
Number = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)] | Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
PositiveNumber = Annotated[int, Meta(gt=0, le=LARGEST)] | Annotated[float, Meta(gt=0, le=LARGEST)]
Text = Annotated[str, Meta(pattern=r"^[^\0]{1,4095}\Z")]  # text that can be used as a path
# Maximum size in bytes of a text file: the labels of a million videos are smaller.
MOST = 1 << 28
SURROGATE = re.compile("[\ud800-\udfff]")


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """Return the bytes of a regular file. Raises OSError with a phrase about the file as its message."""
    # opening a FIFO would block until another process writes to it
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes; the limit is {most}")
        return file.read(most + 1)


def read_text(path: Path, encoding: str = "utf-8", most: int = MOST) -> str:
    """Return the text of a regular file, with line endings as newlines. Raises OSError and UnicodeDecodeError."""
    return read_bytes(path, most).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def to_json(value: object, indent: int | None = None) -> str:
    """Return JSON that can be encoded as UTF-8, also for file names with surrogates, which are not valid Unicode."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return json.dumps(value, indent=indent) if SURROGATE.search(text) else text


def write_json(path: Path, value: object) -> None:
    """Write an indented JSON file atomically."""
    write_text(path, to_json(value, indent=1) + "\n")


def write_jsonl(path: Place, values: Iterable[object]) -> None:
    """Write one JSON object per line, atomically."""
    write_text(path, "".join(to_json(value) + "\n" for value in values))


def append_jsonl(path: Path, value: object) -> None:
    """Append a line to a JSONL file. Raises OutputError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(max(0, file.tell() - 1))
            cut = file.read() not in (b"", b"\n")  # a killed process wrote an incomplete line
            file.write(b"\n" * cut + to_json(value).encode() + b"\n")
    except OSError as error:
        raise unwritable(path.parent, error) from error


def read_jsonl(path: Place) -> list[Any]:
    """Return the values of a JSONL file, except an incomplete last line; empty if it does not exist."""
    values = []
    for line in (content_of(path) or b"").split(b"\n"):  # str.splitlines would also split at U+2028 inside strings
        with suppress(ValueError, RecursionError):
            values.append(json.loads(line.decode(errors="replace")))
    return values


def read_object(place: Place) -> dict[str, Any] | None:
    """Return the JSON object in a local or remote file; None if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        values = json.loads(read_text(place, most=MOST_TEXT) if isinstance(place, Path) else place.read() or b"")
        return values if isinstance(values, dict) else None
    return None


def built(kind: type[Built], values: object) -> Built:
    """Build a dataclass from a JSON object, including nested dataclasses; lists become tuples.

    Raises ValueError with the name of an entry that is unknown, missing, or of the wrong type.
    """
    try:
        made = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        entry = place.strip(".`")
        if not error.__cause__:  # a message of msgspec; messages of dataclasses begin with the name of an entry
            raise ValueError(f"{entry or 'it'}: {reason[0].lower()}{reason[1:]}") from error
        raise ValueError(f"{entry}.{reason}" if entry else reason) from error
    except (RecursionError, SystemError) as error:  # SystemError: msgspec before 0.22, for huge integers
        raise ValueError("it is too deep, or a number in it too large") from error
    if unknown := next(_unknown(values, made), None):
        raise ValueError(f"unknown entry {unknown!r}")
    return made


def _unknown(values: Any, made: Any) -> Iterator[str]:
    known = {field.name for field in fields(made)}
    for name, value in values.items():
        if name not in known:
            yield str(name)
        elif is_dataclass(part := getattr(made, name)):
            yield from (f"{name}.{inside}" for inside in _unknown(value, part))
