"""What every mistake of a user must look like."""

import click

from lstr_cli.command import in_options
from lstr_cli.main import cli


def mistake(result, code: int, *words: str) -> None:
    """One sentence, one hint, the right code, no traceback, nothing on standard output."""
    got, out, err = result
    assert got == code, err
    assert err.count("error: ") + err.count("failed: ") == 1 and err.count("hint: ") == 1, err
    assert "Traceback" not in err and out == ""
    for word in words:
        assert word in err, err


def hint_for(error: Exception, words: str) -> str:
    """The hint of a typed error as a user of the command `lstr WORDS` reads it."""
    command: click.Command = cli
    for name in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return in_options(error.hint, command)  # type: ignore[attr-defined]  # any typed error has one
