"""The command line, generated from structs: each command has one next to it, whose fields are its options.

A field has a type with bounds and a default; `option` and `set_option` add a heading of the help, flags and what the
option does. The types of Click, defaults and help follow from that. Commands get the values by the names of fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import click
import msgspec
from click.shell_completion import CompletionItem
from msgspec import Meta, Struct, inspect, structs

from lstr.pipelines.quantities import bytes_of, seconds_of
from lstr.settings import LARGEST

Made = TypeVar("Made")

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
SET = "Change a setting; repeatable."


def option(heading: str, flags: str, help: str, read: Callable[[str], float] | None = None) -> Meta:
    """Say how a field is an option: "-o --output DIR"; `read` turns text into a number. Without flags by its name."""
    return Meta(description=help, extra={"heading": heading, "flags": flags, "read": read})


def set_option(named: str = "", **groups: str) -> Meta:
    """Say what `--set` changes: settings by name, and by prefix the settings of a struct with what it is.

    `NAME` as a prefix stands for settings of any other name.
    """
    extra = {"heading": MORE, "flags": "--set NAME=VALUE", "named": named.split(), "groups": groups}
    return Meta(description=SET, extra=extra)


# Options of several commands: the same words wherever they are.
Json = Annotated[bool, option(OUTPUT, "--json", "Print one JSON document.")]
Labels = Annotated[str, option(DATA, "--labels FILE", "Labels: JSON, CSV, ELAN, … or a published data_info.json.")]
Lists = Annotated[
    tuple[str, ...],
    option(DATA, "--list FILE", "Read paths, folders or patterns from a file, one per line; - is standard input."),
]
Weights = Annotated[
    tuple[str, ...],
    option(
        NETWORKS,
        "--weights [STREAM=]FILE|DIR|NAME",
        "Use these network weights: a folder of `lstr finetune`, a model file, the name or recipe of fetched ones, or "
        "a file, which says itself whether it is for rgb or flow; repeatable, as in rgb=FILE.  [default: those of the "
        "model or recipe, else random]",
    ),
]
Stream = Annotated[
    Literal["rgb", "flow", "both"] | None,
    option(NETWORKS, "--stream", "Use the networks of one stream; rgb needs no flow.  [default: both]"),
]
OF_DATA = "dataset rgb_features flow_features skip_missing"
# How labels and features are read, and what is said of features of other people
OF_FEATURES = "features.rate features.offset features.name"
# Settings whose fields in the options of jobs have other names
FIELDS = {
    "rgb_features": "rgb",
    "flow_features": "flow",
    "recipe.allow_mismatch": "allow_mismatch",
    "recipe.flow_algorithm": "algorithm",
    "recipe.stream": "stream",
    "learn.folds": "folds",
    "learn.at_once": "at_once",
}
# Settings that are written with units
QUANTITIES: dict[str, Callable[[str], float]] = {"timeout": seconds_of, "cache_size": bytes_of, "embed": bytes_of}
OF_RECIPE = "recipe.rgb.network recipe.flow.network recipe.flow_algorithm recipe.precision"
# What training of networks takes besides settings of the networks
OF_RUN = "cache cache_size at_once seed subset eval_subset"
OF_MODEL = "what a published checkpoint does not say, such as model.n_heads=8"


class Report(Struct):
    as_json: Json = False


class FileName(click.types.StringParamType):
    """Text that a shell completes as a file name."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return what a shell offers for an incomplete word."""
        return [CompletionItem(incomplete, type="file")]


class Quantity(click.ParamType):
    """An amount that a function parses: bytes, seconds or times an hour."""

    def __init__(self, name: str, parse: Callable[[str], float], positive: bool = False):
        self.name, self._parse, self._positive = name, parse, positive

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            amount = self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._positive and amount == 0:
            self.fail("it has to be more than nothing.", param, ctx)
        return amount


class Option(click.Option):
    """An option that a field of a struct describes."""

    heading = MORE
    named: tuple[str, ...] = ()
    """The settings that `--set` changes by name."""
    groups: Mapping[str, str] = {}
    """What `--set` changes by prefix."""


class Command(click.Command):
    """A command of `lstr`. Its help has the options under headings, in the order of the fields."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for param in self.params:
            if type(param.type) is click.types.StringParamType and FILES.search(param.metavar or ""):
                param.type = FileName()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, and below them what `--set` changes."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        headings = dict.fromkeys(getattr(param, "heading", MORE) for param in options)
        for heading in sorted(headings, key=lambda heading: heading == MORE):
            of_it = [param for param in options if getattr(param, "heading", MORE) == heading]
            rows = [row for param in of_it if (row := param.get_help_record(ctx))]
            for param in of_it:
                named = ", ".join(key for key, text in names_of(param) if not text)
                rows += [("  NAME=VALUE", f"with NAME one of: {named}")] if named else []
                rows += [(f"  {key}=VALUE", text) for key, text in names_of(param) if text]
            with formatter.section(heading):
                formatter.write_dl(rows)


class Group(click.Group):
    """A command of several, each a `Command`."""

    command_class = Command


def names_of(param: click.Parameter) -> list[tuple[str, str]]:
    """Names of settings that an option changes, as model.NAME, with what they are; nothing of other options."""
    if not isinstance(param, Option):
        return []
    own = [(name, "") for name in param.named]
    return own + [(name if name == "NAME" else f"{name}.NAME", text) for name, text in param.groups.items()]


def options(kind: type[Struct]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that the fields of a struct describe."""

    def declare(command: Callable[..., Any]) -> Callable[..., Any]:
        made = [_option(field) for field in structs.fields(kind)]
        command.__dict__.setdefault("__click_params__", []).extend(reversed(made))  # Click reverses them again
        return command

    return declare


def _option(field: structs.FieldInfo) -> Option:
    """Return the option of a field: what msgspec knows of its type, in the types of Click."""
    info, help = inspect.type_info(field.type), ""
    extra: dict[str, Any] = {}
    while isinstance(info, inspect.Metadata | inspect.UnionType):
        if isinstance(info, inspect.Metadata):
            extra, help = info.extra or extra, (info.extra_json_schema or {}).get("description", help)
            info = info.type
        else:
            info = next(part for part in info.types if not isinstance(part, inspect.NoneType))
    *flags, last = extra["flags"].split()
    metavar = None if last.startswith("-") else last
    about: dict[str, Any] = {"metavar": metavar, "help": help, "required": field.required}
    if isinstance(info, inspect.VarTupleType | inspect.DictType):
        about["multiple"] = True
    elif not field.required and field.default is not msgspec.NODEFAULT:
        about["default"] = field.default
        about["show_default"] = type(field.default) in (str, int, float) and bool(field.default)
    match info:
        case inspect.BoolType():
            about |= {"is_flag": True, "default": False}
        case inspect.LiteralType(values):
            about["type"] = click.Choice(values)
        case inspect.IntType() | inspect.FloatType() if extra.get("read"):
            about["type"] = Quantity(metavar or "", extra["read"], positive=info.gt is not None)
        case inspect.IntType(ge=least, le=most):
            about["type"] = click.IntRange(least, most if most != LARGEST else None)
        case inspect.FloatType(gt=above, ge=least):
            about["type"] = click.FloatRange(min=above if above is not None else least or 0, min_open=above is not None)
        case inspect.DictType():
            about["callback"] = _settings if "groups" in extra else _pairs
    made = Option([*flags, *([] if metavar else [last]), field.name], **about)
    made.heading, made.named, made.groups = extra["heading"], tuple(extra.get("named", ())), extra.get("groups", {})
    return made


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
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


def _settings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return settings by name; each begins with one of the prefixes that the command takes."""
    assert isinstance(param, Option)
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE, as in model.n_heads=8.")
        if not {name, name.partition(".")[0], "NAME"} & {*param.named, *param.groups}:
            known = ", ".join(name for name, _ in names_of(param))
            raise click.BadParameter(f"{name!r} is not a valid setting; write NAME=VALUE with one of: {known}.")
        found[name] = text
    return found


def take(settings: dict[str, str], prefix: str) -> dict[str, str]:
    """Remove the settings of a prefix from others, and return them without it."""
    own = [name for name in settings if name.startswith(f"{prefix}.")]
    return {name.removeprefix(f"{prefix}."): settings.pop(name) for name in own}


def take_named(settings: dict[str, str], names: str) -> dict[str, str]:
    """Remove the settings of some names from others, and return them by the fields that they set."""
    return {FIELDS.get(name, name): settings.pop(name) for name in names.split() if name in settings}


def take_run(settings: dict[str, str]) -> dict[str, str]:
    """Remove OF_RUN and what changes a recipe from the settings of a training of networks, and return them."""
    return take_named(settings, f"{OF_RUN} recipe.stream recipe.flow_algorithm learn.folds learn.at_once")


def build_from(kind: type[Made], values: Mapping[str, Any], prefix: str = "", **others: Any) -> Made:
    """Make a dataclass or struct of a job from text by name, and of the `others`. Raises UsageError that names one."""
    types_of, read = get_type_hints(kind, include_extras=True), {}
    for name, value in values.items():
        if name not in types_of:
            raise click.UsageError(f"There is no setting {prefix}{name}; `--help` lists them.")
        try:
            if parse := QUANTITIES.get(name):
                value = parse(value)
            read[name] = msgspec.convert(value, types_of[name], strict=False)
        except TypeError:  # text or a path, which msgspec does not tell apart
            read[name] = value
        except msgspec.ValidationError as error:
            raise click.UsageError(f"--set {prefix}{name} is {value!r}: {str(error).lower()}.") from error
        except ValueError as error:
            raise click.UsageError(f"--set {prefix}{name}: {error}") from error
    return kind(**others, **read)


def read_lists(lists: tuple[str, ...]) -> list[str]:
    """Return the paths in files of `--list`. Raises UsageError for one that cannot be read."""
    paths: list[str] = []
    for value in lists:
        try:
            with click.open_file(value, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read(MOST_LIST + 1)
            if len(text) > MOST_LIST:
                raise click.UsageError(f"--list {value} is longer than {MOST_LIST} characters, which no list is.")
            paths += [line.rstrip("\r") for line in text.split("\n") if line.strip()]
        except OSError as error:
            raise click.UsageError(f"--list {value} cannot be read ({error.strerror}).") from error
    return paths


class RecipeChanges(Struct, frozen=True):
    """How a command changes a recipe."""

    networks: dict[str, str]
    algorithm: str | None
    precision: Literal["float32", "bf16"] | None

    @classmethod
    def of(cls, chosen: dict[str, str]) -> RecipeChanges:
        """Take those of a command's settings. Raises UsageError for an unknown one."""
        said = take(chosen, "recipe")
        networks = {stream: said.pop(f"{stream}.network") for stream in ("rgb", "flow") if f"{stream}.network" in said}
        values = {"algorithm": said.pop("flow_algorithm", None), "precision": said.pop("precision", None)}
        return build_from(cls, said | values, "recipe.", networks=networks)


MOST_LIST = 1 << 28  # characters of a list of videos
