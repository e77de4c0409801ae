"""Commands whose help shows first what is used most."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from lstr.extractors.addresses import displayed
from lstr_cli.settings import join_settings, set_option, settings_of

ORDER = (
    "checkpoint output name time format events-only labels preset config to from accept-licence sha256 init recipe "
    "stream flow weights calibrate subset eval-subset classes folds eval-every choose-thresholds false-alarms on "
    "off min-length merge-gap start duration published list features frames input video columns "
    "as-labels plot card metrics title port no-browser since source action csv check log-format resume "
    "allow-damaged allow-seen cache min-cosine max-shift check-links workers "
    "device set dry-run print-config make-default json"
)
"""Options of all commands as their help shows them: what is used most comes first."""

FILES = re.compile("CHECKPOINT|CONFIG|DIR|FEATURES|FILE|LABELS|MINE|MODEL|PATH|REFERENCE|RUN|SOURCE|VIDEO|WEIGHTS")
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
    """A command of `lstr`, whose options stand in ORDER, and below them the settings that `--set` changes.

    models: its arguments that may name model files, which are fetched where they are addresses on the Hub.
    """

    def __init__(self, *args: Any, models: Sequence[str] = (), **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.models = models
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

    def invoke(self, ctx: click.Context) -> object:
        """Fetch the models that are on the Hub, and run it."""
        ctx.params |= {name: fetched(ctx.params[name]) for name in self.models}
        return super().invoke(ctx)


class Group(click.Group):
    """A command of several, each a `Command`."""

    command_class = Command


def fetched(value: Any) -> Any:
    """A value of a command line, or several, in which each address on the Hub is the path of what it names.

    An address may stand alone or behind a stream, as in rgb=hf://OWNER/REPOSITORY/FILE.lstr; all else is as it was.
    Raises CheckpointError.
    """
    if isinstance(value, dict):
        return {name: fetched(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(fetched, value))
    if not isinstance(value, str | Path) or "hf:/" not in str(value):
        return value
    from lstr.pipelines.model_files.hub import local_model
    from lstr.pipelines.model_files.hub_address import hub_file, is_hub_address

    stream, equals, address = "", "", str(value)
    if not is_hub_address(address):
        stream, equals, address = address.partition("=")
    if not is_hub_address(address):
        return value
    if sys.stderr.isatty():  # without a network the Hub is tried for a while
        click.echo(displayed(f"looking for {address} on the Hub …"), err=True)
    path = local_model(address)
    if origin := hub_file(path):
        click.echo(f"model: {origin.address} (SHA-256 {origin.sha256})", err=True)
    return type(value)(f"{stream}{equals}{path}")
