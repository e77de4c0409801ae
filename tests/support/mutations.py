"""Sound files made unsound: bytes changed anywhere, and JSON whose entries are of other kinds and sizes."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

DIGITS = "@5000 digits@"  # Python writes no number of so many
DEEP = "@deep@"
ODD = (
    *(None, True, False, 0, -1, 3, 1 << 31, 1 << 63, 10**40, 10**400, 0.5, -0.0, 1e308, -1e308),
    *(float("nan"), float("inf"), DIGITS, DEEP),
    *("", " ", ".", "..", "/", "../x", "a/../../b", "a\0b", "\ud800", "\u202e"),
    *("x" * 5000, "é" * 200, "<b>", "{}", "1"),
    *([], {}, [[]], [None], [1, 2], [0] * 100, [[0, 1], "x"], {"a": 1}, {"": {}}, {"type": "os.system"}),
)
TIMES = ("", "0", "-1", "1e400", "nan", "inf", "9" * 400, "00:00:99,9", "1:2:3:4:5", "-->", "\0", "\ud7ff", *";,<&")
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


@st.composite
def changed_bytes(draw, sound: bytes) -> bytes:
    """A file with up to four places that differ, or an end that is missing or too long."""
    content = bytearray(sound)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(content) - 1, 0)) | st.integers(0, min(len(content), 256)))
        match draw(st.sampled_from(("put", "number", "cut", "insert", "repeat", "end"))):
            case "put":
                new = draw(st.binary(min_size=1, max_size=8))
                content[at : at + len(new)] = new
            case "number":
                size, order = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from(("big", "little")))
                number = draw(st.sampled_from(NUMBERS)) & ((1 << 8 * size) - 1)
                content[at : at + size] = number.to_bytes(size, order)
            case "cut":
                del content[at : at + draw(st.integers(1, 64))]
            case "insert":
                content[at:at] = draw(st.binary(min_size=1, max_size=32))
            case "repeat":
                content[at:at] = content[at : at + draw(st.integers(1, 64))]
            case "end":
                del content[at:]
    return bytes(content)


@st.composite
def changed_text(draw, sound: str) -> bytes:
    """A text with up to four words in it replaced, or its bytes changed."""
    if draw(st.integers(0, 3)) == 0:
        return draw(changed_bytes(sound.encode()))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(sound)))
        end = draw(st.integers(start, min(start + 12, len(sound))))
        sound = sound[:start] + draw(st.sampled_from(TIMES)) + sound[end:]
    return sound.encode(errors="surrogatepass")


@st.composite
def changed_values(draw, sound: Any) -> Any:
    """A JSON value with up to three entries that are another thing, missing, or called otherwise."""
    whole = [copy.deepcopy(sound)]
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(whole))
        holder, key = draw(st.sampled_from(places))
        what = draw(st.sampled_from(("other", "other", "other", "gone", "renamed", "wrapped")))
        if what == "gone" and holder is not whole:
            del holder[key]
        elif what == "renamed" and isinstance(holder, dict):
            holder[draw(st.sampled_from(("", "..", "x", "a\0b", "\ud800")))] = holder.pop(key)
        elif what == "wrapped":
            holder[key] = [holder[key]]
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return whole[0]


@st.composite
def changed_json(draw, sound: Any) -> bytes:
    """The same as the bytes of a file; now and then these are changed too."""
    content = as_json(draw(changed_values(sound)))
    return draw(changed_bytes(content)) if draw(st.integers(0, 9)) == 0 else content


def as_json(value: Any) -> bytes:
    """A changed value as JSON, with the number and the depth that Python would not write."""
    text = json.dumps(value).replace(json.dumps(DIGITS), "7" * 5000)
    return text.replace(json.dumps(DEEP), "[" * 100_000 + "]" * 100_000).encode()


def _places(value: Any):
    """(holder, key) of every entry."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inside in list(entries):
        yield value, key
        if isinstance(inside, dict | list):
            yield from _places(inside)
