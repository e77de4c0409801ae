"""Options under headings, one meaning per option, help as wide as the terminal."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from lstr_cli.headings import FEW, HEADING_OF, REST, Command, name_of
from lstr_cli.main import COMMANDS, WIDEST_HELP, cli


def commands(group: click.Group = cli, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


ALL = dict(commands())
SECTION = re.compile(r"^(\S[^\n]*):$", re.MULTILINE)


def help_of(lstr, monkeypatch, columns: int, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = lstr(*words, "--help")
    assert code == 0
    return out


@pytest.mark.parametrize("name", ALL)
def test_every_option_of_a_long_command_has_a_heading(lstr, monkeypatch, name):
    command = ALL[name]
    assert isinstance(command, Command)
    options = [param for param in command.params if isinstance(param, click.Option)]
    out = help_of(lstr, monkeypatch, 100, *name.split())
    if len(options) + 1 <= FEW:
        assert SECTION.findall(out)[-1] == "Options"
        return
    assert {name_of(option) for option in options} - HEADING_OF.keys() == set()
    sections = SECTION.findall(out)
    assert "Options" not in sections and sections[-1] == REST
    out = out[out.index(f"\n{sections[-len({HEADING_OF[name_of(option)] for option in options}) - 1]}:\n") :]
    for option in options:  # each stands under its own heading, once
        lines = [line for line in out.splitlines() if re.match(rf"  (--?[\w-]+, )*{name_of(option)}\b(?!-)", line)]
        assert len(lines) == 1, name_of(option)
        above = out[: out.index(lines[0])]
        assert SECTION.findall(above)[-1] == HEADING_OF[name_of(option)]


def test_an_option_means_the_same_in_every_command():
    """How networks, flow, processes and actions are chosen is described by the same words wherever it is chosen."""
    of_the_command = {"--recipe", "--rgb-network", "--flow-network", "--threads"}
    meanings: dict[str, set] = {}
    for command in ALL.values():
        for option in command.params:
            if isinstance(option, click.Option):
                help_text = (option.help or "").split("  [")[0]  # without the default, which is the command's own
                meanings.setdefault(name_of(option), set()).add((option.name, help_text))
    shared = {name for name in meanings if HEADING_OF.get(name) in ("Features", "Speed", "Actions", "Live sources")}
    assert {"--workers", "--readers", "--loaders", "--precision", "--model-precision", "--flow-threads"} <= shared
    assert {name for name in shared if len(meanings[name]) > 1} <= of_the_command


@pytest.mark.parametrize("columns", [70, 100, 200])
def test_help_is_as_wide_as_the_terminal(lstr, monkeypatch, columns):
    out = help_of(lstr, monkeypatch, columns, "train")
    sections = out[out.index("Labels:") :]
    longest = max(map(len, sections.splitlines()))
    assert longest <= min(columns, WIDEST_HELP)
    assert longest > min(columns, WIDEST_HELP) - 15


def test_a_range_of_numbers_is_a_letter(lstr):
    out = lstr("extract", "--help")[1]
    assert "INTEGER" not in out and "--workers N" in out


def test_the_package_runs_as_a_module():
    run = subprocess.run([sys.executable, "-m", "lstr_cli", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("lstr, version")


def test_every_command_is_listed_without_being_imported():
    assert list(COMMANDS) == cli.list_commands(click.Context(cli))
    for name in COMMANDS:
        assert isinstance(importlib.import_module(f"lstr_cli.{name}").command, click.Command)
