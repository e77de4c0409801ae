"""In which line of a TOML text its tables and entries are."""

import re

Where = tuple[str, ...]
"""The names of a table or an entry, from the outermost on."""
KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]\]?\s*(?:#.*)?")
WORD = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def lines_of(text: str) -> dict[Where, int]:
    """The line of each table and entry of a TOML text, by its names; the first line is 1."""
    found: dict[Where, int] = {}
    table: Where = ()
    depth, quotes = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if quotes:  # in a string of several lines
            quotes = "" if quotes in line else quotes
            continue
        if not depth and (header := HEADER.fullmatch(line)):
            table = _parts(header[1])
            found.setdefault(table, number)
            continue
        if not depth and (key := KEY.match(line)):
            found.setdefault((*table, *_parts(key[1])), number)
            line = line[key.end() :]
        quotes = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")
        bare = re.sub(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*', "", line)
        depth = max(0, depth + bare.count("[") - bare.count("]"))
    return found


def _parts(names: str) -> Where:
    return tuple(word.strip("\"'") for word in WORD.findall(names))
