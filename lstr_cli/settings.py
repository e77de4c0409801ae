"""`--set NAME=VALUE`: what a command lets one change and few people do, so that it is no option of its own."""

from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar

import click

Declared = TypeVar("Declared", bound=Callable[..., Any] | click.Command)


class Setting(click.Option):
    """A named setting of one command, checked as an option is; its help stands below the options."""

    @property
    def key(self) -> str:
        """The NAME."""
        return self.opts[0].removeprefix("--set ")

    def help_row(self, ctx: click.Context) -> tuple[str, str]:
        """NAME=VALUE and what it is, for the help."""
        shown = copy(self)
        shown.hidden = False
        words, text = shown.get_help_record(ctx) or (self.opts[0], "")
        return words.removeprefix("--set ").replace(" ", "=", 1), text


def setting(key: str, argument: str | None = None, **about: Any) -> Callable[[Declared], Declared]:
    """Declare a setting, which is passed as `argument`; `about` is what click.option takes."""
    return click.option(f"--set {key}", argument or key, cls=Setting, hidden=True, **about)


def settings_of(command: click.Command) -> list[Setting]:
    """The settings that a command declares."""
    return [param for param in command.params if isinstance(param, Setting)]


def join_settings(command: click.Command, args: list[str]) -> list[str]:
    """The words of a command line, `--set NAME=VALUE` as one word where NAME is declared, which Click then checks."""
    declared, words = {one.opts[0] for one in settings_of(command)}, iter(args)
    joined: list[str] = []
    for word in words:
        if word == "--":
            return [*joined, word, *words]
        taken = [word]
        if word == "--set":
            taken += [value for value in (next(words, None),) if value is not None]
        text = taken[-1].removeprefix("--set=")
        name, equals, _ = text.partition("=")
        is_setting = word.startswith("--set") and equals and f"--set {name}" in declared
        joined += [f"--set {text}"] if is_setting else taken
    return joined


def set_option(prefix: str | None = "", one: str = "setting") -> Callable[[Declared], Declared]:
    """`--set NAME=VALUE` of any NAME that begins with a prefix, passed without it as the dict `settings`.

    Without a prefix (None) it takes the settings alone that the command declares, and nothing is passed.
    """

    def parse(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        settings = {}
        for value in values:
            key, equals, text = value.partition("=")
            if prefix is None or (equals and key and not key.startswith(prefix)):
                known = ", ".join(
                    [*([f"{prefix}NAME"] if prefix else []), *(one.key for one in settings_of(ctx.command))]
                )
                raise click.BadParameter(f"{key!r} is no setting; write NAME=VALUE with one of: {known}.")
            if not equals or not key:
                raise click.BadParameter(f"{value!r} is not NAME=VALUE, as in model.n_heads=8.")
            settings[key.removeprefix(prefix)] = text
        return settings

    about: dict[str, Any] = {"help": f"Change one {one}; repeatable.", "expose_value": prefix is not None}
    return click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, callback=parse, **about)


model_set_option = set_option("model.", "setting, such as model.n_heads=8")
"""`--set model.NAME=VALUE`, passed as the dict `settings` by NAME."""
