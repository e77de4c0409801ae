"""Text from anywhere as a part of a Markdown page: one line, which begins nothing and shows as it is."""

import re
from collections.abc import Iterable, Sequence

# What means something within a line; a low line does so at the edge of a word alone.
STEERING = re.compile(r"[\\`*\[\]<>&~$]|(?<![^\W_])_|_(?![^\W_])")
# What means something at the beginning of a line.
BEGINNING = re.compile(r"[#>+=-]|(?<=\d)[.)](?=\s|$)")


def one_line(text: object) -> str:
    """Text without line breaks, and without characters that no reader would see."""
    return " ".join("".join(character if character.isprintable() else " " for character in str(text)).split())


def escaped(text: object) -> str:
    """Text on one line that Markdown shows as it is."""
    line = STEERING.sub(r"\\\g<0>", one_line(text))
    start = BEGINNING.match(line) or re.match(r"\d{1,9}[.)](?=\s|$)", line)
    return f"{line[: start.end() - 1]}\\{line[start.end() - 1 :]}" if start else line


def code(text: object) -> str:
    """Text on one line as code."""
    return f"`{one_line(text).replace('`', chr(39))}`"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown themselves; empty without rows."""
    lines = [heads, ["---"] * len(heads), *rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return text if len(lines) > 2 else ""
