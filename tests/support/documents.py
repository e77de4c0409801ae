"""README, CONTRIBUTING and the pages of docs/ as tests read them: blocks, commands, links, marked figures."""

import json
import re
import shlex
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "_generated" not in path.parts]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
FIGURES = re.compile(r"<!-- figures: (\S+\.json)\n(.*?)-->", re.DOTALL)
NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(?:e-?\d+)?")


class Figure(NamedTuple):
    """A number in a text, the record it comes from, the path in that record, and the text around it."""

    text: str
    record: str
    path: str
    around: str


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


def shell_lines(path: Path) -> list[str]:
    """Each line of the shell blocks, continuation lines joined, without comments."""
    joined = [line.strip() for block in blocks(path, "sh", "bash") for line in block.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in joined if line and not line.startswith("#")]


def commands(path: Path) -> list[list[str]]:
    """The words after `lstr` of each part of a pipeline that is this program, also behind torchrun or a variable."""
    found = []
    for line in shell_lines(path):
        for words in pipeline(line):
            if "lstr" in words and words[0] not in ("cd", "git"):
                found.append(words[words.index("lstr") + 1 :])
    return [words for words in found if words]


def pipeline(line: str) -> Iterator[list[str]]:
    """The commands of a line, as words; what follows > is not part of them."""
    words: list[str] = []
    for word in shlex.split(line):
        if word == "|":
            yield words
            words = []
        else:
            words.append(word)
    yield words[: words.index(">")] if ">" in words else words


def links(path: Path) -> list[str]:
    """Targets of links and pictures that are files of the repository, without their anchors."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("#")]


def listed(path: Path) -> set[Path]:
    """Pages that the toctrees of a page name."""
    found = set()
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        names = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith(":")]
        found |= {(path.parent / f"{name}.md").resolve() for name in names}
    return found


def sections(text: str) -> Iterator[str]:
    """A document cut at its headings."""
    yield from re.split(r"^(?=#+ )", text, flags=re.MULTILINE)


def figures(path: Path) -> Iterator[Figure]:
    """Each figure that a comment names, with its section; comments are not part of that."""
    for section in sections(path.read_text(encoding="utf-8")):
        around = re.sub(r"<!--.*?-->", "", section, flags=re.DOTALL)
        for record, lines in FIGURES.findall(section):
            for line in filter(None, map(str.strip, lines.splitlines())):
                text, _, where = line.partition(" = ")
                yield Figure(text, record, where, around)


def recorded(figure: Figure) -> float:
    """What the record has: parts of the path are keys and indices; # counts entries, mean is their mean.

    `PATH in minutes` is of seconds.
    """
    value: Any = json.loads((ROOT / "benchmarks" / figure.record).read_text(encoding="utf-8"))
    path = figure.path.removesuffix(" in minutes")
    for part in path.split("/"):
        if part == "#":
            value = len(value)
        elif isinstance(value, list):
            value = sum(value) / len(value) if part == "mean" else value[int(part)]
        else:
            value = value[part]
    if path != figure.path:
        value /= 60
    return value * 100 if figure.text.endswith("%") else value


def agrees(text: str, value: float) -> bool:
    """Whether a written number is the value, rounded to the digits that are written."""
    number = Decimal(text.replace(",", "").removesuffix("%").strip())
    half = Decimal(5).scaleb(int(number.as_tuple().exponent) - 1)
    return abs(Decimal(str(value)) - number) <= half * Decimal("1.000001")


def stands_in(text: str, around: str) -> bool:
    """Whether a number is in a text as a number of its own."""
    return re.search(rf"(?<![\d.,]){re.escape(text)}(?!\d|[.,]\d)", around) is not None
