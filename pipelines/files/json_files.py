"""JSON and JSONL files."""

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lstr.pipelines.files.atomic import unwritable, write_text
from lstr.pipelines.files.remote import Place, content_of

SURROGATE = re.compile("[\ud800-\udfff]")


def to_json(value: object, indent: int | None = None) -> str:
    """JSON that can be written as UTF-8, also where a file name is no Unicode (Python then has surrogates in it)."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return json.dumps(value, indent=indent) if SURROGATE.search(text) else text


def write_json(path: Path, value: object) -> None:
    """Write a JSON file, indented, whole or not at all."""
    write_text(path, to_json(value, indent=1) + "\n")


def write_jsonl(path: Place, values: Iterable[object]) -> None:
    """Write one JSON object per line, whole or not at all."""
    write_text(path, "".join(to_json(value) + "\n" for value in values))


def append_jsonl(path: Path, value: object) -> None:
    """Add a line to a JSONL file. Raises OutputError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(max(0, file.tell() - 1))
            cut = file.read() not in (b"", b"\n")  # by a kill, in the middle of a line
            file.write(b"\n" * cut + to_json(value).encode() + b"\n")
    except OSError as error:
        raise unwritable(path.parent, error) from error


def keep_jsonl(path: Path, is_kept: Callable[[Any], bool]) -> None:
    """Leave those values in a JSONL file, where there is one, and no line that a kill cut short."""
    if path.exists():
        write_jsonl(path, filter(is_kept, read_jsonl(path)))


def read_jsonl(path: Place) -> list[Any]:
    """The values of a JSONL file, but for a line that a kill cut short; empty when it does not exist."""
    values = []
    for line in (content_of(path) or b"").split(b"\n"):  # str.splitlines ends lines in texts too, as at U+2028
        with suppress(ValueError, RecursionError):
            values.append(json.loads(line.decode(errors="replace")))
    return values
