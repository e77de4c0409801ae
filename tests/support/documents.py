"""README, CONTRIBUTING and the pages of docs/: their code blocks and command lines."""

import re
from pathlib import Path

import click

from lstr_cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def find_blocks(path: Path, *languages: str) -> list[str]:
    """Return the code blocks in these languages."""
    blocks = re.findall(r"^```(\S*)\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, text in blocks if language in languages]


def block_with(path: Path, language: str, word: str) -> str:
    """Return the only code block of a language that contains a word."""
    (block,) = (block for block in find_blocks(path, language) if word in block)
    return block


def parse(words: list[str]) -> None:
    """Parse a command line without running it. Raises UsageError for an unknown command, option or setting."""
    command, rest = cli, list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        _, command, rest = command.resolve_command(click.Context(command), rest)
    if rest[:1] not in (["--help"], ["--version"]) and not isinstance(command, click.Group):
        command.make_context(words[0], rest)
