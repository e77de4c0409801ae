"""Options of commands: headings of the help, settings of `--set`, and amounts that people write with units."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from lstr.settings import convert, parse_bytes, parse_seconds

Job = TypeVar("Job")

# Headings of help.
DATA, NETWORKS, MODEL, OUTPUT, RUN, LIVE, EVENTS, MORE = (
    "Videos and labels",
    "Features",
    "Model",
    "Output",
    "This run",
    "Live sources",
    "When an action is reported",
    "More",
)
# In the metavar of values that are file names.
FILES = re.compile("CHECKPOINT|CONFIG|DIR|FEATURES|FILE|LABELS|MODEL|PATH|RUN|SOURCE|VIDEO|WEIGHTS")
MAX_LIST_LENGTH = 1 << 28  # characters of a list of videos; a video named by mistake would fill the memory

OF_DATA = "dataset rgb_features flow_features skip_missing"
# How labels and features are read, and descriptions of features of other programs
OF_FEATURES = "features.rate features.offset features.name"
# Settings whose fields in the options of jobs have other names than their last parts
FIELDS = {"rgb_features": "rgb", "flow_features": "flow", "recipe.flow_algorithm": "algorithm"}
# Settings that are written with units
QUANTITIES: dict[str, Callable[[str], float]] = {
    "timeout": parse_seconds,
    "cache_size": parse_bytes,
    "embed": parse_bytes,
}
OF_RECIPE = "recipe.rgb.network recipe.flow.network recipe.flow_algorithm recipe.precision"
# Settings of the training of networks that are not settings of a network
OF_RUN = "cache cache_size at_once subset eval_subset"
OF_RUN_AND_RECIPE = f"{OF_RUN} recipe.stream recipe.flow_algorithm learn.folds learn.at_once delay_price"
OF_MODEL = "settings that a published checkpoint does not state, such as model.n_heads=8"
PRECISIONS = ("float32", "bf16")


class Changes(dict[str, str]):
    """The values of `--set` by name, as text. What a command takes is removed."""

    def take(self, prefix: str) -> dict[str, str]:
        """Return the settings of a prefix without it."""
        own = [name for name in self if name.startswith(f"{prefix}.")]
        return {name.removeprefix(f"{prefix}."): self.pop(name) for name in own}

    def take_recipe(self) -> dict[str, Any]:
        """Return the changes of a recipe: networks by stream, flow algorithm and precision.

        Raises UsageError for an unknown one.
        """
        changes = self.take("recipe")
        algorithm, precision = changes.pop("flow_algorithm", None), changes.pop("precision", None)
        networks = {s: changes.pop(f"{s}.network") for s in ("rgb", "flow") if f"{s}.network" in changes}
        if changes:
            raise click.UsageError(f"Unknown setting: recipe.{next(iter(changes))}; `--help` lists all.")
        if precision not in (None, *PRECISIONS):
            raise click.UsageError(f"--set recipe.precision is {precision!r}; choose {' or '.join(PRECISIONS)}.")
        return {"algorithm": algorithm, "precision": precision, "networks": networks}

    def read_count(self, name: str, default: Any) -> Any:
        """Return a setting that is a whole number of at least 1. Raises UsageError for another value."""
        if (text := self.get(name)) is None:
            return default
        if not text.isdecimal() or not int(text):
            raise click.UsageError(f"--set {name} is {text!r}, not a whole number of at least 1.")
        return int(text)

    def build(self, kind: type[Job], names: str, **others: Any) -> Job:
        """Build the options of a job from the settings of some names, and from `others`.

        Raises UsageError for an amount that cannot be read, and ConfigError for another wrong value.
        """
        for name in filter(self.__contains__, names.split()):
            field, value = FIELDS.get(name, name.rpartition(".")[2]), self.pop(name)
            try:
                others[field] = QUANTITIES[field](value) if field in QUANTITIES else value
            except ValueError as error:
                raise click.UsageError(f"--set {name}: {error}") from error
            others[field] = convert(kind, field, others[field])
        return kind(**others)


class Option(click.Option):
    """An option with a heading of the help, and what `--set` changes: names, and prefixes with a description."""

    def __init__(self, *args: Any, heading: str = MORE, settings: Sequence[tuple[str, str]] = (), **about: Any):
        super().__init__(*args, **about)
        self.heading, self.settings = heading, settings


def option(flags: str, heading: str, help: str, name: str = "", **about: Any) -> Callable[[Any], Any]:
    """Declare an option of a command, as in "-o --output DIR"; without a metavar it is a flag, or has a `type`.

    The job checks the bounds of a value. `about` is passed to `click.option`.
    """
    *names, last = flags.split()
    if last.startswith("-"):
        names, last = [*names, last], ""
    if not last and "type" not in about:
        about["is_flag"] = True  # Click takes a False, too, for an option whose value may be left out
    about.setdefault("show_default", bool(about.get("default")))
    names += [name] if name else []
    return click.option(*names, cls=Option, heading=heading, help=help, metavar=last or None, **about)


def set_option(named: str = "", **groups: str) -> Callable[[Any], Any]:
    """Declare `--set`, which changes settings by name, or by prefix the settings of a group with its description.

    The prefix `NAME` allows any other setting.
    """
    settings = [(name, "") for name in named.split()]
    settings += [(name if name == "NAME" else f"{name}.NAME", text) for name, text in groups.items()]

    def read(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Changes:
        found = Changes()
        for value in values:
            name, equals, text = value.partition("=")
            if not equals or not name:
                raise click.BadParameter(f"{value!r} is not NAME=VALUE, as in model.n_heads=8.")
            if not {name, name.partition(".")[0], "NAME"} & {*named.split(), *groups}:
                known = ", ".join(name for name, _ in settings)
                raise click.BadParameter(f"{name!r} is not a valid setting; write NAME=VALUE with one of: {known}.")
            found[name] = text
        return found

    about: dict[str, Any] = {"settings": settings, "multiple": True, "callback": read}
    return option("--set NAME=VALUE", MORE, "Change a setting; repeatable.", "settings", **about)


# Options of several commands.
as_json = option("--json", OUTPUT, "Print one JSON document.", "as_json")
labels_option = partial(option, "--labels FILE", DATA, "Labels: JSON, CSV, ELAN, … or a published data_info.json.")
list_option = option(
    "--list FILE",
    DATA,
    "Read paths, folders or patterns from a file, one per line; - is standard input.",
    "lists",
    multiple=True,
)
weights_option = option(
    "--weights [STREAM=]FILE|DIR|NAME",
    NETWORKS,
    "Use these network weights: a folder of `lstr finetune`, a model file, the name or recipe of fetched weights, or "
    "a weights file; repeatable, for example rgb=FILE.  [default: the weights of the model or recipe, else random]",
    multiple=True,
)
stream_option = option(
    "--stream",
    NETWORKS,
    "Use the networks of one stream; rgb needs no flow.  [default: both]",
    type=click.Choice(["rgb", "flow", "both"]),
)


class Quantity(click.ParamType):
    """An amount that a function parses: bytes, seconds or times per hour."""

    name = "amount"

    def __init__(self, parse: Callable[[str], float], positive: bool = False):
        self._parse, self._positive = parse, positive

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            amount = self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._positive and amount == 0:
            self.fail("it must be greater than 0.", param, ctx)
        return amount


class Command(click.Command):
    """A command of `lstr`. Its help has the options under headings, in the order of the fields."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for param in self.params:
            if type(param.type) is click.types.StringParamType and FILES.search(param.metavar or ""):
                param.type = click.Path()  # so that a shell completes it; nothing is checked here

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments. An error names the command, also of an option without its value, where Click does not."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            if isinstance(error, click.NoSuchOption):
                flag, keys = error.option_name, (key for p in self.params for key, _ in getattr(p, "settings", ()))
                name = flag.lstrip("-").replace("-", "_")
                if key := next((key for key in keys if key.rpartition(".")[2] == name), ""):
                    raise click.UsageError(f"{flag} is a setting; write --set {key}=VALUE.", ctx) from error
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, and below them what `--set` changes."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        headings = dict.fromkeys(getattr(param, "heading", MORE) for param in options)
        for heading in sorted(headings, key=lambda heading: heading == MORE):
            of_it = [param for param in options if getattr(param, "heading", MORE) == heading]
            rows = [row for param in of_it if (row := param.get_help_record(ctx))]
            settings = [setting for param in of_it for setting in getattr(param, "settings", ())]
            named = ", ".join(key for key, text in settings if not text)
            rows += [("  NAME=VALUE", f"with NAME one of: {named}")] if named else []
            rows += [(f"  {key}=VALUE", text) for key, text in settings if text]
            with formatter.section(heading):
                formatter.write_dl(rows)


class Group(click.Group):
    """A command of several, each a `Command`."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole first sentence, which Click would cut."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(500)) for name, command in commands if command])


def read_pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return values by name, of NAME=VALUE each."""
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not (name and equals and text):
            raise click.BadParameter(f"{value!r} is not {param.metavar}.")
        if name in pairs or text in pairs.values():
            raise click.BadParameter(f"{value!r} repeats a name or a value.")
        pairs[name] = text
    return pairs


def check_paths(
    videos: Iterable[str] = (), labels: Iterable[str] = (), features: Iterable[str] = (), models: Iterable[str] = ()
) -> None:
    """Raise the error of a local path that does not exist at once, because the imports of a job take seconds."""
    from lstr.extractors.video.inputs import find_videos
    from lstr.labels.label_set import read_json
    from lstr.pipelines.features.folder import open_features
    from lstr.pipelines.model_files.model_file import open_model

    find_videos(path for path in videos if "://" not in path)
    for opened, paths in ((open_model, models), (open_features, features), (read_json, labels)):
        for path in map(Path, paths):
            if not path.exists():
                opened(path)


def read_lists(lists: tuple[str, ...]) -> list[str]:
    """Return the paths in files of `--list`. Raises UsageError for one that cannot be read."""
    paths: list[str] = []
    for value in lists:
        try:
            with click.open_file(value, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read(MAX_LIST_LENGTH + 1)
            if len(text) > MAX_LIST_LENGTH:
                raise click.UsageError(f"--list {value} is longer than {MAX_LIST_LENGTH} characters.")
            paths += [line.rstrip("\r") for line in text.split("\n") if line.strip()]
        except OSError as error:
            raise click.UsageError(f"--list {value} cannot be read ({error.strerror}).") from error
    return paths
