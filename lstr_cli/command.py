"""Commands whose help shows first what is used most."""

import re
from typing import Any

import click
from click.shell_completion import CompletionItem

from lstr_cli.settings import join_settings, set_option, settings_of

ORDER = (
    "checkpoint output name time format events-only labels preset config to from accept-licence sha256 init recipe "
    "stream flow weights calibrate subset eval-subset classes folds eval-every choose-thresholds false-alarms on "
    "off min-length merge-gap start duration published list frames input video columns "
    "as-labels card metrics title port no-browser since source action csv check log-format resume "
    "allow-damaged allow-seen cache workers "
    "device set dry-run print-config make-default json"
)
"""Options of all commands as their help shows them: what is used most comes first."""

FILES = re.compile("CHECKPOINT|CONFIG|DIR|FEATURES|FILE|LABELS|MODEL|PATH|RUN|SOURCE|VIDEO|WEIGHTS")
"""In the metavar of values that are file names."""
SETTINGS = "Settings, each as --set NAME=VALUE"
RANK = {f"--{name}": rank for rank, name in enumerate(ORDER.split())}


class FileName(click.types.StringParamType):
    """Text that a shell completes as a file name."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return what a shell offers for an incomplete word."""
        return [CompletionItem(incomplete, type="file")]


def name_of(param: click.Parameter) -> str:
    """The long name of an option."""
    return max(param.opts, key=len)


class Command(click.Command):
    """A command of `lstr`, whose options stand in ORDER, and below them the settings that `--set` changes."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if settings_of(self) and not any(param.name == "settings" for param in self.params):
            set_option(None, "of the settings below")(self)
        self.params.sort(key=lambda param: RANK.get(name_of(param), -1))
        for param in self.params:
            if type(param.type) is click.types.StringParamType and FILES.search(param.metavar or ""):
                param.type = FileName()
            is_shown = type(param.default) in (str, int, float) and bool(param.default)
            if isinstance(param, click.Option) and is_shown and param.show_default is None:
                param.show_default = True
            if isinstance(param.type, click.IntRange | click.FloatRange) and not param.metavar:
                param.metavar = "N" if isinstance(param.type, click.IntRange) else "X"  # not INTEGER RANGE
        if settings := settings_of(self):
            rows = [": ".join(one.help_row(click.Context(self))) for one in settings]
            self.epilog = "\n\n".join((f"{SETTINGS}:", *rows))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as Click does, declared settings too."""
        return super().parse_args(ctx, join_settings(self, args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and the settings below them."""
        super().format_options(ctx, formatter)
        if settings := settings_of(self):
            with formatter.section(SETTINGS):
                formatter.write_dl([one.help_row(ctx) for one in settings])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: what the documentation takes from here is written above."""


class Group(click.Group):
    """A command of several, each a `Command`."""

    command_class = Command
