"""JSON objects of files, and the dataclasses that they stand for: each entry is checked by its type."""

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

Built = TypeVar("Built")

LARGEST = 10**9
MOST_TEXT = 16 << 20
"""Bytes of a recipe or a record that is read."""
Number = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)] | Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
"""A finite number; one without a fraction stays an int, so that it is written as it was read."""
PositiveNumber = Annotated[int, Meta(gt=0, le=LARGEST)] | Annotated[float, Meta(gt=0, le=LARGEST)]
Text = Annotated[str, Meta(pattern=r"^[^\0]{1,4095}\Z")]
"""A text that can be a path."""


def built(kind: type[Built], values: object) -> Built:
    """A dataclass made of a JSON object, with those inside it; a list stands for a tuple.

    Raises ValueError, naming the entry, for one that is unknown, missing, or not of its type.
    """
    try:
        made = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        entry = place.strip(".`")
        if not error.__cause__:  # msgspec's own words; a dataclass begins its own with the name of an entry
            raise ValueError(f"{entry or 'it'}: {reason[0].lower()}{reason[1:]}") from error
        raise ValueError(f"{entry}.{reason}" if entry else reason) from error
    except (RecursionError, SystemError) as error:  # the second of msgspec before 0.22, for an int beyond any float
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


def read_text(path: Path) -> str:
    """The text of a recipe or a record. Raises OSError, also for a FIFO and for more than MOST_TEXT; ValueError."""
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise OSError(errno.EINVAL, "it is no file on a disk, such as a pipe")
    if (size := path.stat().st_size) > MOST_TEXT:
        raise OSError(errno.EFBIG, f"it has {size} bytes, and more than {MOST_TEXT} are not read")
    return path.read_text(encoding="utf-8")


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is none that can be read."""
    with suppress(OSError, ValueError, RecursionError):
        values = json.loads(read_text(path))
        return values if isinstance(values, dict) else None
    return None


def brief(value: object) -> str:
    """A value of JSON in few characters, for messages."""
    if isinstance(value, Mapping) and "network" in value:
        return f"{value.get('weights')} {value['network']}"
    if value is None:
        return "none"
    if isinstance(value, int) and value.bit_length() > 64:  # of very many digits Python makes no text
        return f"a number of {value.bit_length()} bits"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "…"
