"""README and docs: commands parse, examples run, links lead to files, and figures agree with their records."""

import ast
import itertools
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from markdown_it import MarkdownIt

from lstr_cli.main import COMMANDS
from tests.support.documents import DOCS, ROOT, block_with, find_blocks, parse
from tests.support.processes import check_process
from tests.support.videos import remux

PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "_generated" not in path.parts]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]


def find_commands(path: Path) -> list[list[str]]:
    """Return the words after `lstr` of each command, also in pipelines and behind torchrun or a variable."""
    commands = []
    for block in find_blocks(path, "sh", "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(re.sub(r"(^|\s+)#.*", "", line.strip()))
            while words:
                command = list(itertools.takewhile(lambda word: word != "|", words))
                words = words[len(command) + 1 :]
                command = list(itertools.takewhile(lambda word: word != ">", command))
                if "lstr" in command[:-1] and command[0] not in ("cd", "git"):
                    commands.append(command[command.index("lstr") + 1 :])
    return commands


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


README = ROOT / "README.md"
PYTHON = DOCS / "how-to" / "python.md"
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=page_name)


@each_document
def test_every_command_line_parses(path, tmp_path, monkeypatch, capsys):
    """Commands and options exist, and none is a deprecated one; nothing is run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "videos.txt").write_text("game.mp4\n")  # which parsing reads
    for words in find_commands(path):
        try:
            parse(words)
        except click.UsageError as error:
            pytest.fail(f"{' '.join(words)}: {error.format_message()}")
        assert capsys.readouterr().err == "", words


def find_strings(path: Path) -> Iterator[str]:
    """Yield each string of a Python file, with X for the values of an f-string."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_command_lines_in_messages_parse(tmp_path, monkeypatch):
    """Hints and help may omit arguments (`lstr learn`), but name no unknown command, option or setting."""
    monkeypatch.chdir(tmp_path)
    files = [path for room in ("lstr", "extractors", "pipelines", "lstr_cli") for path in (ROOT / room).rglob("*.py")]
    texts = {text for path in files if "`lstr " in path.read_text() for text in find_strings(path)}
    lines = {line for text in texts for line in re.findall(r"`lstr ([a-z][^`…]*)`", text)}
    assert len(lines) > 40
    for line in sorted(lines):
        words = shlex.split(line.partition(" < ")[0])
        try:
            parse(words)
        except click.BadParameter as error:  # a missing argument, or a placeholder such as OLD=NEW
            assert error.param.name != "settings", f"lstr {line}: {error.format_message()}"
        except click.BadOptionUsage as error:  # an option without its value
            assert words[-1] == error.option_name, line
        except click.UsageError as error:
            pytest.fail(f"lstr {line}: {error.format_message()}")


def test_every_command_is_documented():
    assert {words[0] for path in DOCUMENTS for words in find_commands(path)} >= set(COMMANDS)
    reference = (DOCS / "reference" / "commands.md").read_text()
    assert ".. click:: lstr_cli.main:cli" in reference and ":nested: full" in reference
    assert [name for name in COMMANDS if f"`{name}`" not in reference] == []
    page = (DOCS / "how-to" / "install.md").read_text()
    assert [shell for shell in ("bash", "zsh", "fish") if f"_LSTR_COMPLETE={shell}_source lstr" not in page] == []


def find_anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as web views and Sphinx name them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_document
def test_links_have_a_text_and_a_target(path):
    """Files and headings that exist, for each link and image as CommonMark reads them."""
    links = []
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8")):
        link = ["", ""]
        for node in token.children or ():
            link[0] += node.content
            if node.type == "link_open":
                link = ["", node.attrs["href"]]
                links.append(link)
            elif node.type == "image":
                links.append([node.content, node.attrs["src"]])
            elif node.type == "link_close":
                link = ["", ""]
    for text, target in links:
        assert text.strip(), f"the link to {target} has no text"
        if "://" not in target:
            name, _, anchor = target.partition("#")
            page = path.parent / name if name else path
            assert page.exists(), target
            assert not anchor or anchor in find_anchors(page), target


def match_figures(place: str, texts: Any, value: Any) -> Iterator[tuple[str, str, float]]:
    """Yield figures: a number and the words after it, and the place and the value in a record of benchmarks/."""
    if isinstance(texts, dict):
        for name, part in texts.items():
            yield from match_figures(f"{place}/{name}", part, value[int(name) if isinstance(value, list) else name])
    elif isinstance(texts, list):
        # a list in the record has one text per entry; a single number may be written in several ways
        values = value if isinstance(value, list) else [value] * len(texts)
        for text, entry in zip(texts, values, strict=True):
            yield from match_figures(place, text, entry)
    else:
        yield texts, place, value


MEASURED = {"README.md", "docs/explanation/results.md", "docs/how-to/speed.md"}
NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(?:e-?\d+)?")
LISTED = tomllib.loads((DOCS / "figures.toml").read_text(encoding="utf-8"))  # figures by page and record


@pytest.mark.parametrize("page", sorted({*LISTED, *MEASURED}))
def test_figures_agree_with_their_records(page):
    """The value is rounded to the digits of the text; minutes are of seconds, and percentages of shares.

    Numbers with three digits after the point are measured, so each of them must be listed.
    """
    content, numbers = " ".join((ROOT / page).read_text().split()), set()
    for record, texts in LISTED[page].items():
        for text, place, value in match_figures(record, texts, json.loads((ROOT / "benchmarks" / record).read_text())):
            assert re.search(rf"(?<![\d.,]){re.escape(text)}(?!\d|[.,]\d)", content), f"{text} is not on the page"
            number = NUMBER.match(text)[0]
            numbers.add(number.lstrip("+-"))
            unit = text.removeprefix(number).strip().partition(" ")[0]
            written, exact = Decimal(number.replace(",", "")), value * {"min": 1 / 60, "%": 100}.get(unit, 1)
            half_digit = Decimal(5).scaleb(int(written.as_tuple().exponent) - 1)
            assert abs(Decimal(str(exact)) - written) <= half_digit * Decimal("1.000001"), f"{text}: {value} in {place}"
    if page in MEASURED:
        assert set(re.findall(r"(?<![\d.,])\d\.\d{3}(?!\d)", content)) - numbers == set()


@each_document
def test_examples_in_python_and_json_are_valid(path, run, tmp_path):
    for block in find_blocks(path, "python"):
        compile(block, page_name(path), "exec")
    for block in find_blocks(path, "json"):
        if "database" in json.loads(block):
            (tmp_path / "labels.json").write_text(block)
            run("labels", "check", tmp_path / "labels.json")


def run_example(folder: Path, code: str, **options) -> list[str]:
    """Run an example as a script; return the lines of its output."""
    (folder / "example.py").write_text(code)
    return check_process(sys.executable, folder / "example.py", **options).splitlines()


@pytest.mark.slow
def test_the_python_example_runs_as_a_script(small_set, tmp_path):
    block = block_with(README, "python", "lstr.detect")
    assert len(block.strip().splitlines()) <= 10 and block in PYTHON.read_text()
    block = block.replace("new.mp4", str(small_set.videos / "scene_03.mp4"))
    lines = run_example(tmp_path, block.replace("fall.lstr", str(small_set.checkpoint)))
    assert [float(line.split()[0]) for line in lines if line[0].isdigit()] == [0.25 * k for k in range(1, 21)]
    assert any(re.fullmatch(r"started \w+ [\d.]+", line) for line in lines)


def test_the_streaming_example_runs(small_set, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"rgb": torch.rand(16, 1280), "flow": torch.rand(16, 512)}
    exec(block_with(PYTHON, "python", "lstr.create").replace("run/checkpoint.pt", str(small_set.checkpoint)), names)
    exec(block_with(PYTHON, "python", "streaming.save"), names)
    assert names["scores"].shape == (16, 6) and (tmp_path / "cameras.pt").exists()


def test_the_pipe_example_runs(small_set, tmp_path):
    remux(small_set.videos / "scene_03.mp4", tmp_path / "v.mkv")
    with (tmp_path / "v.mkv").open("rb") as file:
        lines = run_example(tmp_path, block_with(DOCS / "how-to" / "detect.md", "python", "sys.stdin"), stdin=file)
    assert len(lines) == 20 and lines[0] == "0.25 (6, 64, 96, 3)"
