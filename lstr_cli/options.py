"""Options that several commands share, and jobs made of options."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from lstr.extractors.backbones.networks import NETWORKS
from lstr_cli.settings import Declared, setting

Job = TypeVar("Job")
PATH = click.Path(path_type=Path)


def made(kind: type[Job], options: Mapping[str, Any], **others: Any) -> Job:
    """A dataclass of a job: of its fields those that are options, and the `others`."""
    named = {field.name: options[field.name] for field in fields(kind) if field.name in options}  # type: ignore[arg-type]
    return kind(**{**named, **others})


def together(*options):
    """Several options as one decorator, in the order in which help shows them."""

    def declare(command):
        for option in reversed(options):
            command = option(command)
        return command

    return declare


def none_for_auto(ctx: click.Context, param: click.Parameter, value: str) -> str | None:
    """The value; None for auto."""
    return None if value == "auto" else value


device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="Where networks run; auto is the GPU, or the CPU without one.",
    callback=none_for_auto,
)
"""`--device auto|cpu|cuda`, passed as a torch device name, None for auto."""
precision_setting = setting(
    "recipe.precision",
    "precision",
    type=click.Choice(["auto", "float32", "bf16"]),
    default="auto",
    callback=none_for_auto,
    help="Of the networks; auto is what the recipe prefers. bf16 features are within a cosine of 0.999 of float32.",
)
"""`recipe.precision=auto|float32|bf16` of the feature networks, passed as `precision`, None for auto."""
runtime_setting = setting(
    "runtime",
    type=click.Choice(["auto", "torch", "openvino", "onnxruntime"]),
    default="auto",
    help="What computes the feature networks, with the same features; auto is the fastest of this machine.",
)
ALGORITHM: dict[str, Any] = {
    "type": click.Choice(["tvl1", "dis", "dis-fast", "dis-ultrafast", "difference"]),
    "help": "tvl1 as published; the others are many times cheaper and make other features; difference is no flow, but "
    "what changes from frame to frame.  [default: that of the recipe]",
}
algorithm_option = click.option("--flow", "algorithm", **ALGORITHM)
algorithm_setting = setting("recipe.flow_algorithm", "algorithm", **ALGORITHM)
"""The same, for commands that rarely change it."""


def networks_settings(configs: str = "") -> Callable[[Declared], Declared]:
    """`recipe.rgb.network` and `recipe.flow.network`, passed as `rgb_network` and `flow_network`."""
    known = f"{', '.join(NETWORKS)}, or timm:NAME{configs}"
    return together(
        *(
            setting(
                f"recipe.{stream}.network",
                f"{stream}_network",
                metavar="NAME|CONFIG" if configs else "NAME",
                help=f"Another network for {stream}: {known}.",
            )
            for stream in ("rgb", "flow")
        )
    )


weights_option = click.option(
    "--weights",
    multiple=True,
    metavar="[STREAM=]FILE|DIR|NAME",
    help="Of the networks: a folder of `lstr finetune`, a model file, the name or recipe of fetched ones, or a "
    "file, which says itself whether it is for rgb or flow; repeatable, as in rgb=FILE.  [default: those of the "
    "model or recipe, else random]",
)
mismatch_setting = setting(
    "recipe.allow_mismatch",
    "allow_mismatch",
    type=bool,
    default=False,
    metavar="true",
    help="Go on with features of another recipe than the checkpoint's; what differs is shown and recorded.",
)
flow_backend_setting = setting(
    "flow_backend",
    type=click.Choice(["auto", "native", "opencv", "cuda"]),
    default="auto",
    help="What computes TV-L1, with the same result; auto is a GPU by a rule, the compiled kernel, or OpenCV.",
)
flow_settings = together(
    setting(
        "flow_threads",
        type=click.IntRange(min=1),
        help="Threads that compute optical flow.  [default: one per core]",
    ),
    flow_backend_setting,
)


def _endings(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(f".{part.strip().lower().lstrip('.')}" for part in (value or "").split(",") if part.strip(" ."))


def _listed(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    paths = []
    for value in () if ctx.resilient_parsing else values:  # a shell that completes something has no standard input
        try:
            with click.open_file(value, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read(MOST_LIST + 1)
            if len(text) > MOST_LIST:
                raise click.UsageError(f"--list {value} is longer than {MOST_LIST} characters, which no list is.")
            paths += [line.rstrip("\r") for line in text.split("\n") if line.strip()]
        except OSError as error:
            raise click.UsageError(f"--list {value} cannot be read ({error.strerror}).") from error
    return paths


inputs_options = together(
    click.option(
        "--list",
        "lists",
        metavar="FILE",
        multiple=True,
        callback=_listed,
        help="A file with one path, folder or pattern per line; - is standard input.",
    ),
    setting(
        "ext",
        "endings",
        metavar="LIST",
        callback=_endings,
        help="Endings of videos in folders, as in mp4,mkv.  [default: the usual ones]",
    ),
    setting("root", metavar="DIR", help="Ids are paths relative to DIR: for files of several folders."),
)
"""More videos, as the paths `lists`, the suffixes `endings` and `root`."""
MOST_LIST = 1 << 28  # characters of a list of videos
EVENTS = {
    "on": ("P", "An action begins at this score.  [default: 0.5]"),
    "off": ("P", "An action ends below this score.  [default: 0.35]"),
    "min_length": ("S", "A shorter action is none; it starts later."),
    "merge_gap": ("S", "Parts this near are one action; it ends later."),
}
"""When a class is on: shares, and seconds; None is a default."""
RULES = (*EVENTS, "highest", "backdate")
"""What of `lstr.Thresholds` a command takes."""


events_options = together(
    *(
        click.option(f"--{name.replace('_', '-')}", type=click.FloatRange(min=0), metavar=metavar, help=text)
        for name, (metavar, text) in EVENTS.items()
    ),
    setting("highest", type=bool, metavar="true", help="Only the action with the highest score can be on."),
    setting(
        "backdate",
        type=click.FloatRange(min=0),
        metavar="S",
        help="Starts are told so much before the score reaches --on.",
    ),
)
"""An option for each of EVENTS, and settings of the rest of RULES."""


def _renamed(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if wrong := [value for value, (old, _, new) in zip(values, pairs, strict=True) if not (old and new)]:
        raise click.BadParameter(f"{wrong[0]!r} is not OLD=NEW, as in Fall=fall.")
    return {old: new for old, _, new in pairs}


rename_setting = setting(
    "class.rename",
    "rename",
    multiple=True,
    metavar="OLD=NEW",
    callback=_renamed,
    help="Another name of a class; repeatable.",
)
"""`class.rename=OLD=NEW`, passed as the dict `rename`."""
dataset_setting = setting("dataset", metavar="NAME", help="Which data set of a data_info.json; else the root's name.")
data_settings = together(
    dataset_setting,
    setting("rgb_features", "rgb", metavar="NAME", help="Folder of RGB features, where FEATURES has several."),
    setting("flow_features", "flow", metavar="NAME", help="Folder of flow features, where FEATURES has several."),
    setting(
        "skip_missing",
        type=bool,
        default=False,
        metavar="true",
        help="Leave out labelled videos that have no features.",
    ),
)
"""How labels and features are read."""
store_settings = together(
    setting(
        "features.rate",
        "rate",
        metavar="ROWS",
        help="Rows a second of features of other people: 7.5, 30, 30000/1001.  [default: what the features say of "
        "themselves, else 4 of an rgb_* and flow_* folder]",
    ),
    setting("features.offset", "offset", metavar="SECONDS", help="Where the first row begins.  [default: 0]"),
    setting("features.name", "feature_name", metavar="TEXT", help="What the features are, for people."),
)
"""What is said of features of other people."""
