"""README, CONTRIBUTING and the pages of docs/ as tests read them: blocks, commands, links, figures."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import click
from markdown_it import MarkdownIt

from lstr_cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "_generated" not in path.parts]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(?:e-?\d+)?")


class Figure(NamedTuple):
    """A number as a page writes it, with the words that follow it, and the value in a record of benchmarks/."""

    page: str
    text: str
    where: str
    """The record, and the path in it"""
    value: float


def name_of(path: Path) -> str:
    """A document's path in the repository."""
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, *languages: str) -> list[str]:
    """The code blocks of some languages."""
    found = re.findall(r"^```(\S*)\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [block for language, block in found if language in languages]


def block_with(path: Path, language: str, word: str) -> str:
    """The one block of a language that has a word in it."""
    (block,) = (block for block in blocks(path, language) if word in block)
    return block


def commands(path: Path) -> list[list[str]]:
    """The words after `lstr` of each part of a pipeline that is this program, also behind torchrun or a variable."""
    found = []
    for block in blocks(path, "sh", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            for words in pipeline(re.sub(r"(^|\s+)#.*", "", line.strip())):
                if "lstr" in words and words[0] not in ("cd", "git"):
                    found.append(words[words.index("lstr") + 1 :])
    return [words for words in found if words]


def parse(words: list[str]) -> None:
    """Parse a command line without running it. Raises UsageError for an unknown command, option or setting."""
    command, rest = cli, list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        _, command, rest = command.resolve_command(click.Context(command), rest)
    if rest[:1] not in (["--help"], ["--version"]) and not isinstance(command, click.Group):
        command.make_context(words[0], rest)


def pipeline(line: str) -> Iterator[list[str]]:
    """The commands of a line, as words; what follows > is not part of them."""
    words = shlex.split(line)
    while "|" in words:
        yield words[: words.index("|")]
        words = words[words.index("|") + 1 :]
    yield words[: words.index(">")] if ">" in words else words


def links(path: Path) -> list[tuple[str, str]]:
    """Return (text, target) of each link and image of a document, read as CommonMark."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8")):
        children = token.children or []
        for at, child in enumerate(children):
            if child.type == "link_open":
                end = next(k for k, other in enumerate(children[at:], at) if other.type == "link_close")
                found.append(("".join(inner.content for inner in children[at:end]), child.attrs["href"]))
            elif child.type == "image":
                found.append((child.content, child.attrs["src"]))
    return found


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as web views and Sphinx name them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def figures() -> Iterator[Figure]:
    """Yield each figure of docs/figures.toml, which mirrors the records: page, record, path in it, written text."""
    pages = tomllib.loads((DOCS / "figures.toml").read_text(encoding="utf-8"))
    for page, records in pages.items():
        for record, written in records.items():
            values = json.loads((ROOT / "benchmarks" / record).read_text(encoding="utf-8"))
            yield from _figures(page, record, written, values)


def _figures(page: str, where: str, written: Any, value: Any) -> Iterator[Figure]:
    if isinstance(written, dict):
        for name, part in written.items():
            yield from _figures(page, f"{where}/{name}", part, value[int(name) if isinstance(value, list) else name])
    elif isinstance(written, list):
        # a list in the record has one text each; a single number may be written in several ways
        values = value if isinstance(value, list) else [value] * len(written)
        for part, one in zip(written, values, strict=True):
            yield from _figures(page, where, part, one)
    else:
        yield Figure(page, written, where, value)


def agrees(text: str, value: float) -> bool:
    """Return whether the number that begins a text is the value, rounded to the digits that are written.

    A number of minutes is that of a value in seconds, a percentage that of a share.
    """
    found = NUMBER.match(text)
    assert found, f"{text} does not begin with a number"
    scale = {"min": 1 / 60, "%": 100}.get(text[found.end() :].strip().partition(" ")[0], 1)
    number = Decimal(found[0].replace(",", ""))
    half = Decimal(5).scaleb(int(number.as_tuple().exponent) - 1)
    return abs(Decimal(str(value * scale)) - number) <= half * Decimal("1.000001")


def stands_in(text: str, around: str) -> bool:
    """Whether a number is in a text as a number of its own."""
    return re.search(rf"(?<![\d.,]){re.escape(text)}(?!\d|[.,]\d)", around) is not None
