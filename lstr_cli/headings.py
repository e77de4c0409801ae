"""Commands whose help has its options under headings, and whose values a shell can complete."""

import click

from lstr_cli.completion import Words, completer_of

HEADINGS = {
    "Input": "list ext root input from video start duration max-chunks allow-damaged",
    "Labels": "labels subset eval-subset dataset rgb-features flow-features skip-missing classes features name fps "
    "frames",
    "Output": "output format to as-labels embed json check-links plot dry-run print-config make-default",
    "Model": "checkpoint model preset config set kind stream init rgb-init flow-init allow-recipe-mismatch",
    "Features": "recipe streams flow precision rgb-network flow-network rgb-weights flow-weights calibrate",
    "Training": "time folds max-steps eval-every patience seed deterministic resume",
    "Measurement": "chunks seconds against golden min-cosine max-shift training",
    "Scores": "mode published resamples benchmark allow-seen",
    "Actions": "on off min-length merge-gap choose-thresholds false-alarms",
    "Live sources": "clock on-lag on-gap timeout",
    "Speed": "device at-once model-precision workers threads flow-threads flow-backend runtime readers loaders",
    "Cache": "cache no-cache cache-size",
    "Cluster": "engine ray-address",
}
"""Options by heading, for all commands, since an option means the same in each that has it."""

HEADING_OF = {f"--{name}": heading for heading, names in HEADINGS.items() for name in names.split()}
REST = "Other options"
FEW = 7  # so many options need no headings


def name_of(param: click.Parameter) -> str:
    """The long name of an option."""
    return max(param.opts, key=len)


class Command(click.Command):
    """A command of `lstr`; each option of its help stands under its heading of HEADINGS."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for param in self.params:
            complete = completer_of(param)
            if complete:
                param.type = Words(complete)
            if isinstance(param.type, click.IntRange | click.FloatRange) and not param.metavar:
                param.metavar = "N" if isinstance(param.type, click.IntRange) else "X"  # not INTEGER RANGE

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section for each heading; those of a short command under one."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        if len(options) <= FEW:
            super().format_options(ctx, formatter)
            return
        for heading in (*HEADINGS, REST):
            under = (param for param in options if HEADING_OF.get(name_of(param), REST) == heading)
            rows = [row for param in under if (row := param.get_help_record(ctx))]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class Group(click.Group):
    """A command of several, each a `Command`."""

    command_class = Command
