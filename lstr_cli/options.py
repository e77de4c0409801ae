"""The command line, made of structs: one for each command, whose fields are its options.

A field has a type with bounds and a default; `option` and `settings` add a heading of the help, flags and what the
option does. The types of Click, defaults and help follow from that. Commands get the values by the names of fields.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click
import msgspec
from click.shell_completion import CompletionItem
from msgspec import Meta, Struct, structs

from lstr.pipelines.quantities import an_hour, bytes_of, seconds_of
from lstr.settings import Positive, PositiveAmount

Made = TypeVar("Made")

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
"""Headings of help."""
FILES = re.compile("CHECKPOINT|CONFIG|DIR|FEATURES|FILE|LABELS|MODEL|PATH|RUN|SOURCE|VIDEO|WEIGHTS")
"""In the metavar of values that are file names."""
SET = "Change a setting; repeatable."


def option(heading: str, flags: str, help: str, read: Callable[[str], float] | None = None) -> Meta:
    """Say how a field is an option: "-o --output DIR"; `read` turns text into a number. Without flags by its name."""
    return Meta(description=help, extra={"heading": heading, "flags": flags, "read": read})


def settings(named: str = "", **groups: str) -> Meta:
    """Say what `--set` changes: settings by name, and by prefix the settings of a struct with what it is.

    `NAME` as a prefix stands for settings of any other name.
    """
    extra = {"heading": MORE, "flags": "--set NAME=VALUE", "named": named.split(), "groups": groups}
    return Meta(description=SET, extra=extra)


# Options of several commands: the same words wherever they are.
Json = Annotated[bool, option(OUTPUT, "--json", "Print one JSON document.")]
DryRun = Annotated[bool, option(RUN, "--dry-run", "Show what would be done, and stop.")]
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
OF_FEATURES = "features.rate features.offset features.name"
"""How labels and features are read, and what is said of features of other people"""
FIELDS = {
    "rgb_features": "rgb",
    "flow_features": "flow",
    "recipe.allow_mismatch": "allow_mismatch",
    "recipe.flow_algorithm": "algorithm",
    "recipe.stream": "stream",
    "learn.folds": "folds",
    "learn.at_once": "at_once",
}
"""Settings whose fields in the options of jobs have other names"""
QUANTITIES: dict[str, Callable[[str], float]] = {"timeout": seconds_of, "cache_size": bytes_of, "embed": bytes_of}
"""Settings that are written with units"""
OF_RECIPE = "recipe.rgb.network recipe.flow.network recipe.flow_algorithm recipe.precision"
OF_RUN = "cache cache_size at_once seed root subset eval_subset loaders dataset flow_threads flow_backend"
"""What training of networks takes besides settings of the networks"""
OF_MODEL = "what a published checkpoint does not say, such as model.n_heads=8"


class Demo(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output DIR", "Write everything into this folder.")] = "demo"


class Label(Struct):
    output: Annotated[
        str | None,
        option(OUTPUT, "-o --output FILE", "Write the labels here.  [default: labels.json next to the videos]"),
    ] = None
    labels: Annotated[
        tuple[str, ...], option(DATA, "--labels FILE", "Begin with labels of any format; repeatable.")
    ] = ()
    model: Annotated[
        str | None,
        option(
            DATA,
            "-m --model -c --checkpoint FILE",
            "Propose the detections and near misses of a model file (.lstr) or checkpoint.",
        ),
    ] = None
    port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        option(RUN, "--port N", "Serve the page here.  [default: 8420, or one that is free]"),
    ] = None
    no_browser: Annotated[bool, option(RUN, "--no-browser", "Print the address, and open nothing.")] = False


class Learn(Struct):
    output: Annotated[
        str | None,
        option(
            OUTPUT, "-o --output MODEL", "Write the model file here.  [default: named after LABELS, in this folder]"
        ),
    ] = None
    seconds: Annotated[
        float | None, option(RUN, "--time TIME", "Limit the training time, for example to 15m or 2h.", seconds_of)
    ] = None
    recipe: Annotated[
        str | None,
        option(
            NETWORKS,
            "--recipe NAME|FILE",
            "Make features by this recipe: pretrained, difference, grey, live (for cameras), fast, faithful, "
            "or a recipe file.  [default: pretrained, or difference if the time is short]",
        ),
    ] = None
    init: Annotated[
        str | None,
        option(NETWORKS, "--init MODEL|WEIGHTS", "Start from the networks of an earlier model file, or from weights."),
    ] = None
    false_alarms: Annotated[
        float | None,
        option(
            EVENTS, "--false-alarms RATE", "Choose thresholds for this many false alarms, for example 2/h.", an_hour
        ),
    ] = None
    lists: Lists = ()
    dry_run: Annotated[bool, option(RUN, "--dry-run", "Check the labels, show the plan, and stop.")] = False
    make_default: Annotated[
        bool, option(OUTPUT, "--make-default", "Let `lstr detect` use the model if no other is named.")
    ] = False
    as_json: Annotated[bool, option(OUTPUT, "--json", "Print plan or result as one JSON document.")] = False
    settings: Annotated[
        dict[str, str],
        settings(
            NAME="a setting of the networks, or of the run, as for `lstr finetune`",
            model="of the model",
            train="of its training",
        ),
    ] = {}


class Detect(Struct):
    checkpoint: Annotated[
        str | None,
        option(
            MODEL,
            "-m --model -c --checkpoint FILE",
            "Use this model file (.lstr), or this checkpoint.  [default: $LSTR_CHECKPOINT, else the default model]",
        ),
    ] = None
    output: Annotated[str | None, option(OUTPUT, "-o --output DIR", "Write the timelines into this folder.")] = None
    formats: Annotated[
        tuple[str, ...],
        option(
            OUTPUT,
            "-f --format LIST",
            "Write these files into DIR, with commas between.  [default: json,jsonl,npy,html]",
        ),
    ] = ()
    events_only: Annotated[
        bool, option(OUTPUT, "--events-only", "Leave decisions out of the JSONL, tens of MB a day of a camera.")
    ] = False
    as_json: Annotated[bool, option(OUTPUT, "--json", "Print one JSON timeline per source instead of a table.")] = False
    on: Annotated[
        float | None,
        option(EVENTS, "--on P", "Start an action at this score.  [default: 0.5]"),
    ] = None
    off: Annotated[float | None, option(EVENTS, "--off P", "End an action below this score.  [default: 0.35]")] = None
    min_length: Annotated[
        float | None,
        option(
            EVENTS, "--min-length S", "Ignore actions shorter than this many seconds. Delays each start by as much."
        ),
    ] = None
    merge_gap: Annotated[
        float | None,
        option(EVENTS, "--merge-gap S", "Join parts of an action this near. Delays each end by as much."),
    ] = None
    start: Annotated[
        float, option(DATA, "--start TIME", "Skip what comes before, for example 90s or 1:30.", seconds_of)
    ] = 0.0
    duration: Annotated[
        PositiveAmount | None,
        option(DATA, "--duration TIME", "Stop after this much of each source.", seconds_of),
    ] = None
    names: Annotated[
        dict[str, str],
        option(
            LIVE,
            "--name NAME=SOURCE",
            "Name a live source in files and lines, as in door=rtsp://camera/stream; repeatable.",
        ),
    ] = {}
    weights: Weights = ()
    settings: Annotated[
        dict[str, str],
        settings(
            "labels embed timeout on_lag on_gap clock max_chunks runtime flow_threads flow_backend "
            "recipe.flow_algorithm recipe.allow_mismatch",
            model=OF_MODEL,
        ),
    ] = {}


class Watch(Struct):
    begin: Annotated[bool, option(RUN, "--init", "Write CONFIG, with a comment for each entry, and stop.")] = False
    only_check: Annotated[bool, option(RUN, "--check", "Check CONFIG, name each error by its entry, and stop.")] = False


class Events(Struct):
    since: Annotated[
        PositiveAmount | None,
        option(DATA, "--since TIME", "Show the last 1d, 12h or 30m.", seconds_of),
    ] = None
    as_labels: Annotated[
        str | None,
        option(OUTPUT, "--as-labels FILE", "Write the events marked right or wrong as labels of their clips."),
    ] = None
    as_json: Json = False


class Convert(Struct):
    output: Annotated[
        str | None, option(OUTPUT, "-o --output PATH", "Write this file or folder; else text goes to standard output.")
    ] = None
    to: Annotated[
        str | None,
        option(OUTPUT, "--to FORMAT", "Write this format.  [default: by the ending of -o; .json is activitynet]"),
    ] = None
    source_format: Annotated[str | None, option(DATA, "--from FORMAT", "Read this format.  [default: recognised]")] = (
        None
    )
    columns: Annotated[
        tuple[str, ...],
        option(DATA, "--columns NAME=HEADER,…", "Read these columns of tables: start=Beginn,end=Ende,label=Aktion."),
    ] = ()
    frames: Annotated[
        PositiveAmount | None,
        option(DATA, "--frames FPS", "Read times as frame numbers, at this many frames per second."),
    ] = None
    video: Annotated[
        str | None,
        option(DATA, "--video PATH", "Use this video or folder: to draw on, and for the rates of frame numbers."),
    ] = None
    subsets: Annotated[
        tuple[str, ...], option(OUTPUT, "--subset [OLD=]NEW", "Name the subset of videos, or rename one.")
    ] = ()
    rename: Annotated[dict[str, str], option(OUTPUT, "--rename OLD=NEW", "Rename a class; repeatable.")] = {}
    as_labels: Annotated[
        bool, option(OUTPUT, "--as-labels", "Drop the scores, so that detections become labels to train on.")
    ] = False


class Check(Struct):
    as_json: Annotated[bool, option(OUTPUT, "--json", "Print one JSON document that names every finding.")] = False
    settings: Annotated[dict[str, str], settings(f"{OF_DATA} {OF_FEATURES}")] = {}


class Report(Struct):
    as_json: Json = False


class Info(Struct):
    as_json: Json = False
    settings: Annotated[dict[str, str], settings(model=OF_MODEL)] = {}


class Finetune(Struct):
    labels: Labels
    output: Annotated[str, option(OUTPUT, "-o --output WEIGHTS", "Write the weights into this folder.")]
    init: Annotated[
        tuple[str, ...],
        option(
            NETWORKS,
            "--init [STREAM=]PATH|NAME|random",
            "Start from these weights: a file (published, or torchvision's resnet50-*.pth), an earlier WEIGHTS folder, "
            "a model file, the name or recipe of fetched ones, or random; for one network as in rgb=PATH. RGB weights "
            "serve a flow network of their kind too.  [default: random]",
        ),
    ] = ()
    recipe: Annotated[
        str,
        option(
            NETWORKS,
            "--recipe NAME|FILE",
            "Make features by this recipe, as `lstr extract` will: fast, faithful, activitynet (ResNet-50 on both "
            "streams), activitynet-fast, or a recipe file.",
        ),
    ] = "fast"
    stream: Stream = None
    folds: Annotated[
        Annotated[int, Meta(ge=2)] | None,
        option(MODEL, "--folds K", "Train K more pairs of networks, each without one K-th of the videos."),
    ] = None
    lists: Lists = ()
    resume: Annotated[bool, option(RUN, "--resume", "Continue an interrupted training.")] = False
    as_json: Json = False
    settings: Annotated[
        dict[str, str],
        settings(
            NAME="a setting of both networks, rgb.NAME or flow.NAME of one: epochs, batch_size, lr, dropout, "
            f"short_side, crop, precision, patience and others; or of the run: {OF_RUN}; or of the recipe: {OF_RECIPE}",
        ),
    ] = {}


class Extract(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output FEATURES", "Write the features into this folder.")]
    recipe: Annotated[
        str | None,
        option(
            NETWORKS,
            "--recipe NAME|FILE",
            "Make features by this recipe. faithful: as published, ten flow crops. fast: one, and bf16 where it is "
            "faster. activitynet, activitynet-fast: the variant with ResNet-50 on both streams. Or a recipe file, or "
            "the recipe (and weights) of a feature folder, checkpoint, folder of `lstr finetune`, or model file.  "
            "[default: fast on a CPU, faithful on a GPU]",
        ),
    ] = None
    stream: Stream = None
    weights: Weights = ()
    calibrate: Annotated[
        str | None,
        option(
            NETWORKS,
            "--calibrate LABELS|LIST",
            "Give random networks batch-norm statistics from these videos: the training subset of a label file, or a "
            "text file with one id or path per line.",
        ),
    ] = None
    lists: Lists = ()
    workers: Annotated[
        Positive | None,
        option(RUN, "--workers N", "Use N processes.  [default: one for four cores, and for each GPU]"),
    ] = None
    allow_damaged: Annotated[
        bool,
        option(DATA, "--allow-damaged", "Keep what precedes the damage of a damaged video, instead of failing it."),
    ] = False
    dry_run: Annotated[bool, option(RUN, "--dry-run", "Show how much there is to do, how long it takes, and stop.")] = (
        False
    )
    as_json: Annotated[
        bool, option(OUTPUT, "--json", "Print the summary, or the plan of a --dry-run, as one JSON document.")
    ] = False
    settings: Annotated[
        dict[str, str],
        settings(f"runtime threads flow_backend root engine ray_address cache {OF_RECIPE}"),
    ] = {}


class Train(Struct):
    labels: Labels
    output: Annotated[str, option(OUTPUT, "-o --output RUN", "Write the checkpoint and the log into this folder.")]
    preset: Annotated[
        str | None,
        option(
            MODEL,
            "--preset NAME",
            "Start from these settings. thumos14, tvseries, hacs: the paper's. thumos14-published: those of the "
            "published code. lstr-small: LSTR for up to an hour of video. KIND-small, KIND-thumos14: other kinds of "
            "model, such as rnn-small and miniroad-thumos14; see `lstr models KIND`.  [default: lstr-small up to an "
            "hour of training video, else thumos14; for another model.kind, its presets]",
        ),
    ] = None
    config: Annotated[
        str | None, option(MODEL, "--config FILE", "Start from the settings of another run: its config.json.")
    ] = None
    eval_every: Annotated[
        Positive | None, option(RUN, "--eval-every EPOCHS", "Evaluate after this many epochs, and keep best.pt.")
    ] = None
    eval_subset: Annotated[str, option(DATA, "--eval-subset NAME", "Evaluate on this subset of the labels.")] = (
        "validation"
    )
    resume: Annotated[bool, option(RUN, "--resume", "Continue an interrupted run.")] = False
    print_config: Annotated[
        bool, option(OUTPUT, "--print-config", "Print all settings as JSON, for --config, and train nothing.")
    ] = False
    settings: Annotated[
        dict[str, str],
        settings(
            f"{OF_DATA} {OF_FEATURES}",
            model="of the model, such as model.kind=rnn",
            train="of its training, such as train.epochs=10",
        ),
    ] = {}


class Evaluate(Struct):
    labels: Labels | None = None
    output: Annotated[
        str | None, option(OUTPUT, "-o --output DIR", "Write report.html, JSON, CSV and figures into this folder.")
    ] = None
    subset: Annotated[
        str | None, option(DATA, "--subset NAME", "Score this subset.  [default: testing, else validation]")
    ] = None
    choose_thresholds: Annotated[
        bool,
        option(
            EVENTS,
            "--choose-thresholds",
            "Choose thresholds for `lstr detect` on the validation subset, and write them into CHECKPOINT.",
        ),
    ] = False
    false_alarms: Annotated[
        float | None,
        option(
            EVENTS,
            "--false-alarms RATE",
            "Choose the thresholds that find most with this many false alarms of all classes together, for example "
            "2/h.  [default: the highest F1 of found actions]",
            an_hour,
        ),
    ] = None
    published: Annotated[
        bool, option(MODEL, "--published", "Score the chunks that the published code of this kind scores.")
    ] = False
    allow_seen: Annotated[
        bool,
        option(DATA, "--allow-seen", "Score videos that the feature networks have seen too; the result is marked."),
    ] = False
    to: Annotated[
        Literal["csv", "latex", "md"] | None,
        option(
            OUTPUT,
            "--to",
            "Print one table for a paper; runs that differ only in their seed are one row of mean and deviation.",
        ),
    ] = None
    as_json: Json = False
    settings: Annotated[
        dict[str, str], settings(f"{OF_DATA} resamples mode table recipe.allow_mismatch", model=OF_MODEL)
    ] = {}


class Pack(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output FILE.lstr", "Write this model file.")]
    weights: Annotated[
        str | None,
        option(
            NETWORKS,
            "--weights DIR",
            "Take the networks of this folder of `lstr finetune`.  [default: where the features of the run say it is]",
        ),
    ] = None
    metrics: Annotated[
        str | None, option(MODEL, "--metrics FILE", "Put the output of `lstr evaluate --json` into the model card.")
    ] = None


class Unpack(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output DIR", "Write the files into this folder.")]


class Quantise(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output FILE.lstr", "Write this model file.")]
    settings: Annotated[dict[str, str], settings("chunks runtime flow_threads flow_backend")] = {}


class Export(Struct):
    output: Annotated[str, option(OUTPUT, "-o --output FILE.lstr", "Write this file.")]
    settings: Annotated[dict[str, str], settings("streams flow_threads flow_backend")] = {}


class Fetch(Struct):
    mirror: Annotated[str | None, option(DATA, "--from FILE|URL", "Take it from this file, folder or address.")] = None
    accept_licence: Annotated[
        tuple[str, ...], option(RUN, "--accept-licence NAME", "Accept a licence that is on no list of free ones.")
    ] = ()


class Bench(Struct):
    inputs: Annotated[
        tuple[str, ...], option(DATA, "--input FILE", "Measure on this video; repeatable.  [default: rendered]")
    ] = ()
    recipe: Annotated[
        Literal["faithful", "fast", "live", "smallest", "pretrained", "activitynet", "activitynet-fast"] | None,
        option(NETWORKS, "--recipe", "Measure each stage of this recipe.  [default: compare all recipes]"),
    ] = None
    as_json: Json = False
    settings: Annotated[
        dict[str, str], settings("chunks runtime flow_threads flow_backend recipe.flow_algorithm recipe.precision")
    ] = {}


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
    """Of `--set`: the settings that it changes by name."""
    groups: Mapping[str, str] = {}
    """Of `--set`: what it changes by prefix."""


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
    made = [_option(field) for field in structs.fields(kind)]

    def declare(command: Callable[..., Any]) -> Callable[..., Any]:
        for one in reversed(made):
            command.__dict__.setdefault("__click_params__", []).append(one)
        return command

    return declare


def _option(field: structs.FieldInfo) -> Option:
    """The option of a field."""
    kind, meta = _parts(field.type)
    extra = meta.extra or {}
    *flags, last = extra["flags"].split()
    metavar = None if last.startswith("-") else last
    flags = flags if metavar else [*flags, last]
    about: dict[str, Any] = {"metavar": metavar, "help": meta.description, "required": field.required}
    bounds = _bounds(field.type)
    if get_origin(kind) in (tuple, dict):
        about["multiple"] = True
    elif not field.required and field.default is not msgspec.NODEFAULT:
        about["default"] = field.default
        about["show_default"] = type(field.default) in (str, int, float) and bool(field.default)
    if kind is bool:
        about |= {"is_flag": True, "default": False}
    elif get_origin(kind) is Literal:
        about["type"] = click.Choice(get_args(kind))
    elif extra.get("read"):
        about["type"] = Quantity(metavar or "", extra["read"], positive=bounds.get("min_open", False))
    elif kind is int:
        about["type"] = click.IntRange(bounds.get("min"), bounds.get("max"))
    elif kind is float:
        about["type"] = click.FloatRange(min=bounds.get("min", 0), min_open=bounds.get("min_open", False))
    if "groups" in extra:
        about["callback"] = _settings
    elif get_origin(kind) is dict:
        about["callback"] = _pairs
    made = Option([*flags, field.name], **about)
    made.heading, made.named, made.groups = extra["heading"], tuple(extra.get("named", ())), extra.get("groups", {})
    return made


def _parts(kind: Any) -> tuple[Any, Meta]:
    """The bare type of a field, without None and bounds, and what describes it as an option."""
    meta: Meta | None = None
    while True:
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            meta = meta or next((one for one in more if isinstance(one, Meta) and one.extra), None)
        elif get_origin(kind) in (Union, types.UnionType):
            kind = next(part for part in get_args(kind) if part is not type(None))
        else:
            assert meta, f"{kind} says nothing of its option"
            return kind, meta


def _bounds(kind: Any) -> dict[str, Any]:
    """Bounds of a number, as Click takes them."""
    found: dict[str, Any] = {}
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            for meta in more:
                if isinstance(meta, Meta):
                    found |= {"min": meta.ge} if meta.ge is not None else {}
                    found |= {"min": meta.gt, "min_open": True} if meta.gt is not None else {}
                    found |= {"max": meta.le} if meta.le is not None and meta.le < 2**63 - 1 else {}
        else:
            kind = next(part for part in get_args(kind) if part is not type(None))
    return found


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Values by name, of NAME=VALUE each."""
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
    """Settings by name; each begins with one of the prefixes that the command takes."""
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
