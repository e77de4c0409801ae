"""What README and docs show: commands exist, examples run, links lead somewhere, figures are those of the records."""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
import torch

from lstr_cli.main import COMMANDS
from tests.support.documents import (
    DOCS,
    DOCUMENTS,
    NUMBER,
    ROOT,
    agrees,
    anchors,
    block_with,
    blocks,
    commands,
    figures,
    links,
    name_of,
    parse,
    stands_in,
)
from tests.support.videos import remux

README = ROOT / "README.md"
LINES = [(name_of(path), words) for path in DOCUMENTS for words in commands(path)]
FIGURES = list(figures())
PYTHON = DOCS / "how-to" / "python.md"


@pytest.mark.parametrize(
    ("page", "words"), LINES, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_every_command_line_parses(page, words, tmp_path, monkeypatch, capsys):
    """The command exists and takes every option written; nothing is run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "videos.txt").write_text("game.mp4\n")  # which is read as it is parsed
    parse(words)
    assert capsys.readouterr().err == "", "no word of an earlier version"


def texts_of(path) -> Iterator[str]:
    """Yield each string of a Python file; what an f-string fills in becomes X."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_the_commands_that_messages_name_can_be_typed(tmp_path, monkeypatch):
    """Hints and help may leave arguments out (`lstr learn`), but name no unknown command, option or setting."""
    monkeypatch.chdir(tmp_path)
    files = [path for room in ("lstr", "extractors", "pipelines", "lstr_cli") for path in (ROOT / room).rglob("*.py")]
    texts = {text for path in files if "`lstr " in path.read_text() for text in texts_of(path)}
    named = {line for text in texts for line in re.findall(r"`lstr ([a-z][^`…]*)`", text)}
    assert len(named) > 40
    for line in sorted(named):
        words = shlex.split(line.partition(" < ")[0])
        try:
            parse(words)
        except click.BadParameter as error:  # an argument that is left out, or a placeholder such as OLD=NEW
            assert error.param.name != "settings", f"lstr {line}: {error.format_message()}"
        except click.BadOptionUsage as error:  # an option that is named without its value
            assert words[-1] == error.option_name, line
        except click.UsageError as error:
            pytest.fail(f"lstr {line}: {error.format_message()}")


def test_every_command_is_shown_and_in_the_reference():
    assert {words[0] for _, words in LINES} >= set(COMMANDS)
    reference = (DOCS / "reference" / "commands.md").read_text()
    assert ".. click:: lstr_cli.main:cli" in reference and ":nested: full" in reference
    assert [name for name in COMMANDS if f"`{name}`" not in reference] == []
    page = (DOCS / "how-to" / "install.md").read_text()
    assert [shell for shell in ("bash", "zsh", "fish") if f"_LSTR_COMPLETE={shell}_source lstr" not in page] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_have_a_text_and_lead_to_files(path):
    """As a repository's web view shows them; an anchor is a heading of its page."""
    for text, target in links(path):
        assert text.strip(), f"the link to {target} has no text"
        if "://" not in target:
            name, _, anchor = target.partition("#")
            page = path.parent / name if name else path
            assert page.exists(), target
            assert not anchor or anchor in anchors(page), target


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.page}: {figure.text}")
def test_a_figure_is_that_of_its_record(figure):
    text = " ".join((ROOT / figure.page).read_text().split())
    assert stands_in(figure.text, text), f"{figure.page} does not have {figure.text}"
    assert agrees(figure.text, figure.value), f"{figure.page}: {figure.text} is {figure.value} in {figure.where}"


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/results.md", "docs/how-to/speed.md"])
def test_each_measured_figure_is_in_figures_toml(page):
    """A number with three digits after the point is a measured one, in a sentence or in a table."""
    checked = {NUMBER.match(figure.text)[0].lstrip("+-") for figure in FIGURES if figure.page == page}
    text = (ROOT / page).read_text()
    assert set(re.findall(r"(?<![\d.,])\d\.\d{3}(?!\d)", text)) - checked == set()
    assert len(FIGURES) >= 70


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_examples_in_python_and_json_are_whole(path):
    for block in blocks(path, "python"):
        compile(block, name_of(path), "exec")
    for block in blocks(path, "json"):
        json.loads(block)


def run_example(folder, code: str, **how) -> list[str]:
    """The lines that an example prints as a script."""
    (folder / "example.py").write_text(code)
    result = subprocess.run([sys.executable, folder / "example.py"], capture_output=True, text=True, **how)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


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
    names = {"rgb": torch.rand(16, 576), "flow": torch.rand(16, 1024)}
    exec(block_with(PYTHON, "python", "lstr.create").replace("run/checkpoint.pt", str(small_set.checkpoint)), names)
    exec(block_with(PYTHON, "python", "streaming.save"), names)
    assert names["scores"].shape == (16, 6) and (tmp_path / "cameras.pt").exists()


def test_the_pipe_example_runs(small_set, tmp_path):
    remux(small_set.videos / "scene_03.mp4", tmp_path / "v.mkv")
    with (tmp_path / "v.mkv").open("rb") as file:
        lines = run_example(tmp_path, block_with(DOCS / "how-to" / "detect.md", "python", "sys.stdin"), stdin=file)
    assert len(lines) == 20 and lines[0] == "0.25 (6, 64, 96, 3)"


def test_the_label_file_shown_is_one(lstr, tmp_path):
    for path in DOCUMENTS:
        for block in blocks(path, "json"):
            if "database" in block:
                (tmp_path / "labels.json").write_text(block)
                code, _, errors = lstr("labels", "check", tmp_path / "labels.json")
                assert code == 0, f"{name_of(path)}: {errors}"
