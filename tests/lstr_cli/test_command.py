"""Options below headings of the help; settings of `--set` are checked."""

from collections.abc import Iterator

import click
import pytest

from lstr_cli.main import COMMANDS, cli
from lstr_cli.options import MORE, Command, Option
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


def options_of(command: click.Command) -> list[Option]:
    return [param for param in command.params if isinstance(param, Option)]


@pytest.mark.parametrize("name", ALL)
def test_help_has_every_option_below_its_heading(lstr, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = lstr(*name.split(), "--help")
    assert code == 0 and isinstance(ALL[name], Command)
    for option in options_of(ALL[name]):
        section = out.partition(f"\n{option.heading}:\n")[2].partition("\n\n")[0]
        assert max(option.opts, key=len) in section, option.name
        assert all(setting in section for setting in option.named)
        assert all(f"{prefix}" in section for prefix in option.groups) and (not option.groups or option.heading == MORE)


def test_a_setting_is_checked(lstr, small_set):
    detect = ("detect", small_set.videos / "scene_00.mp4", "-c", small_set.checkpoint, "--set")
    mistake(lstr(*detect, "flow_threads=none"), 2, "flow_threads is 'none'")
    mistake(lstr(*detect, "flow_threads"), 2, "NAME=VALUE")
    mistake(lstr(*detect, "flow_thread=1"), 2, "'flow_thread' is not a valid setting", "flow_threads", "model.NAME")
    mistake(lstr(*detect, "timeout=never"), 2, "--set timeout")
    mistake(lstr("extract", "x.mp4", "-o", "f", "--set", "flow_thread=1"), 2, "threads")
    mistake(lstr("extract", "x.mp4", "-o", "f", "--workers"), 2, "--workers", "requires an argument")
    mistake(lstr("extract", "x.mp4", "-o", "f", "--workers", "0"), 2, "--workers", "x>=1")


def test_every_command_is_listed():
    assert list(COMMANDS) == cli.list_commands(click.Context(cli))
    assert {name.split()[0] for name in ALL} == {*COMMANDS}
