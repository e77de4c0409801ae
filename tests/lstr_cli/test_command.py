"""Few options, what is used most first; settings below them; one meaning per option."""

import importlib
import re
from collections.abc import Iterator

import click
import pytest

from lstr_cli.command import RANK, SETTINGS, Command, name_of
from lstr_cli.main import COMMANDS, cli
from lstr_cli.settings import settings_of
from tests.support.mistakes import mistake


def commands(group: click.Group = cli, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


ALL = dict(commands())
AT_MOST, OF_DETECT = 168, 17
"""Three of the four of `lstr export` are those that every command which writes a file has: -o, --set and --json."""


def help_of(lstr, monkeypatch, columns: int, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = lstr(*words, "--help")
    assert code == 0
    return out


def options_of(command: click.Command) -> list[click.Option]:
    """Those that its help shows as options."""
    return [param for param in command.params if isinstance(param, click.Option) and not param.hidden]


def test_options_are_few():
    counts = {name: len(options_of(command)) for name, command in ALL.items()}
    assert sum(counts.values()) <= AT_MOST, counts
    assert counts["detect"] <= OF_DETECT


@pytest.mark.parametrize("name", ALL)
def test_what_is_used_most_comes_first_and_settings_last(lstr, monkeypatch, name):
    command = ALL[name]
    assert isinstance(command, Command)
    names = [name_of(option) for option in options_of(command)]
    assert set(names) <= RANK.keys(), "the order of help knows each"
    out = help_of(lstr, monkeypatch, 100, *name.split())
    out = out[out.index("\nOptions:\n") :]
    places = [re.search(rf"^  (--?[\w-]+, )*{option}\b(?!-)", out, re.MULTILINE) for option in names]
    assert all(places) and [place.start() for place in places] == sorted(place.start() for place in places)
    assert (SETTINGS in out) == bool(settings_of(command))
    assert not settings_of(command) or "--set" in names
    for one in settings_of(command):
        assert re.search(rf"^  {re.escape(one.key)}=", out[out.index(SETTINGS) :], re.MULTILINE), one.key
        assert one.key in command.epilog, "the documentation has it too"


def test_an_option_means_the_same_in_every_command():
    """How networks, flow, processes and actions are chosen is described by the same words wherever it is chosen."""
    of_the_command = {"--recipe", "--workers", "--set recipe.rgb.network", "--set recipe.flow.network"}
    meanings: dict[str, set] = {}
    for command in ALL.values():
        for option in command.params:
            if isinstance(option, click.Option):
                help_text = (option.help or "").split("  [")[0]  # without the default, which is the command's own
                meanings.setdefault(name_of(option), set()).add((option.name, help_text))
    shared = {"--weights", "--flow", "--device", "--on", *(name for name in meanings if name.startswith("--set "))}
    shared -= {"--weights", "--set chunks"}  # of `lstr pack`, and of what is measured
    assert {"--set flow_threads", "--set runtime", "--set recipe.precision", "--set timeout"} <= shared
    assert {name for name in shared if len(meanings[name]) > 1} <= of_the_command


def test_a_setting_is_checked_as_an_option_is(lstr):
    mistake(lstr("detect", "x.mp4", "--set", "flow_threads=none"), 2, "'--set flow_threads': 'none' is not")
    mistake(lstr("detect", "x.mp4", "--set", "flow_threads"), 2, "NAME=VALUE")
    mistake(lstr("extract", "x.mp4", "-o", "f", "--set", "flow_thread=1"), 2, "flow_backend, runtime")
    mistake(lstr("detect", "x.mp4", "--set", "flow_thread=1"), 2, "model.NAME, ", "flow_threads, ")
    mistake(lstr("detect", "x.mp4", "--workers"), 2, "--workers", "requires an argument")
    mistake(lstr("detect", "x.mp4", "--flow-tread", "1"), 2, "--set flow_threads")


def test_every_command_is_listed_without_being_imported():
    assert list(COMMANDS) == cli.list_commands(click.Context(cli))
    for name in COMMANDS:
        assert isinstance(importlib.import_module(f"lstr_cli.{name}").command, click.Command)
