"""Options that several commands share."""

import functools

import click

from lstr.extractors.backbones.networks import NETWORKS
from lstr_cli.mistakes import Device, Precision
from lstr_cli.quantities import Seconds
from lstr_cli.settings import setting


def _none_for_auto(ctx: click.Context, param: click.Parameter, value: str) -> str | None:
    return None if value == "auto" else value


def device_option(command):
    """`--device auto|cpu|cuda`, passed as a torch device name, None for auto."""
    return click.option(
        "--device",
        type=Device(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="Where networks run; auto is the GPU, or the CPU without one.",
        callback=_none_for_auto,
    )(command)


def precision_setting(command):
    """`recipe.precision=auto|float32|bf16` of the feature networks, passed as `precision`, None for auto."""
    return setting(
        "recipe.precision",
        "precision",
        type=Precision(["auto", "float32", "bf16"]),
        default="auto",
        show_default=True,
        callback=_none_for_auto,
        help="Of the networks; auto is what the recipe prefers. bf16 features are within a cosine of 0.999 of float32.",
    )(command)


def runtime_setting(command):
    """`runtime=auto|torch|openvino|onnxruntime`."""
    return setting(
        "runtime",
        type=click.Choice(["auto", "torch", "openvino", "onnxruntime"]),
        default="auto",
        show_default=True,
        help="What computes the feature networks, with the same features; auto is the fastest of this machine.",
    )(command)


ALGORITHM = {
    "type": click.Choice(["tvl1", "dis", "dis-fast", "dis-ultrafast", "farneback", "difference"]),
    "help": "tvl1 as published; the others are many times cheaper and make other features; difference is no flow, but "
    "what changes from frame to frame.  [default: that of the recipe]",
}


def algorithm_option(command):
    """`--flow tvl1|dis|farneback|difference`, passed as `algorithm`."""
    return click.option("--flow", "algorithm", **ALGORITHM)(command)


def algorithm_setting(command):
    """The same as `recipe.flow_algorithm`, for commands that rarely change it."""
    return setting("recipe.flow_algorithm", "algorithm", **ALGORITHM)(command)


def networks_settings(configs: bool = True):
    """`recipe.rgb.network` and `recipe.flow.network`, passed as `rgb_network` and `flow_network`."""

    def with_networks(command):
        known = f"{', '.join(NETWORKS)}, or timm:NAME"
        for stream in ("flow", "rgb"):
            command = setting(
                f"recipe.{stream}.network",
                f"{stream}_network",
                metavar="NAME|CONFIG" if configs else "NAME",
                help=f"Another network for {stream}: {known}{', or a config of mmaction2' if configs else ''}.",
            )(command)
        return command

    return with_networks


def weights_option(command):
    """`--weights`, repeatable, passed as `weights`."""
    return click.option(
        "--weights",
        multiple=True,
        metavar="[STREAM=]FILE|DIR|NAME",
        help="Of the networks: a folder of `lstr finetune`, a model file, the name or recipe of fetched ones, or a "
        "file, which says itself whether it is for rgb or flow; repeatable, as in rgb=FILE.  [default: those of the "
        "model or recipe, else random]",
    )(command)


def recipe_options(command):
    """How features are made: `--recipe` and what changes it, passed as `recipe`, `precision` and the weights by stream.

    `recipe` is an `lstr.extractors.presets.Preset` or a `lstr.pipelines.networks.recipes.StoredRecipe`.
    """

    @functools.wraps(command)
    def with_recipe(*args, recipe, stream, rgb_network, flow_network, algorithm, precision, weights, **options):
        from lstr_cli import console

        console.say_waiting("loading networks…")
        from lstr.pipelines.files.remote import place
        from lstr.pipelines.networks.recipes import choose_recipe, default_recipe, weights_for
        from lstr.pipelines.weights.published import weights_by_stream

        if not recipe:
            recipe, why = default_recipe(place(options["output"]), options["device"])
            console.say(f"recipe: {recipe}, {why}")
        networks = {"rgb": rgb_network, "flow": flow_network}
        recipe = choose_recipe(recipe, stream, networks, algorithm, precision)
        paths = weights_for(recipe, **weights_by_stream(weights, recipe.streams))
        return command(*args, recipe=recipe, precision=precision, weights=paths, **options)

    with_recipe = networks_settings()(precision_setting(algorithm_option(weights_option(with_recipe))))
    with_recipe = click.option(
        "--stream",
        type=click.Choice(["rgb", "flow", "both"]),
        help="Which networks; rgb needs no flow.  [default: both]",
    )(with_recipe)
    return click.option(
        "--recipe",
        metavar="NAME|FILE",
        help="faithful: as published, ten flow crops. fast: one, and bf16 where it is faster. activitynet, "
        "activitynet-fast: the variant with ResNet-50 on both streams. Or a recipe file of your own, or the "
        "recipe of a feature folder or checkpoint, or of a folder of `lstr finetune` or a model file, with weights.  "
        "[default: fast on a CPU, faithful on a GPU]",
    )(with_recipe)


def mismatch_option(command):
    """`--allow-recipe-mismatch`, passed as `allow_mismatch`."""
    return click.option(
        "--allow-recipe-mismatch",
        "allow_mismatch",
        is_flag=True,
        help="Go on with features of another recipe than the checkpoint's; what differs is shown and recorded.",
    )(command)


def flow_backend_setting(command):
    """`flow_backend`."""
    return setting(
        "flow_backend",
        type=click.Choice(["auto", "native", "opencv", "cuda"]),
        default="auto",
        show_default=True,
        help="What computes TV-L1, with the same result; auto is a GPU by a rule, the compiled kernel, or OpenCV.",
    )(command)


def flow_settings(command):
    """`flow_threads` and `flow_backend`: threads that compute flow, None for one per core, and with what."""
    return setting(
        "flow_threads",
        type=click.IntRange(min=1),
        help="Threads that compute optical flow.  [default: one per core]",
    )(flow_backend_setting(command))


def networks_options(command):
    """How the networks for raw video are made, passed as the dict `networks`."""
    names = ("weights", "algorithm", "allow_mismatch", "flow_threads", "flow_backend", "runtime")
    gathered = gather(command, "networks", names)
    return weights_option(algorithm_setting(mismatch_option(flow_settings(runtime_setting(gathered)))))


def workers_option(what: str, argument: str = "workers", least: int = 1):
    """`--workers`: how many do the work side by side, None for what suits the machine."""
    return click.option("--workers", argument, type=click.IntRange(min=least), help=what)


def inputs_options(command):
    """`--list`, and the settings `ext` and `root`, passed as the paths `lists`, the suffixes `endings` and `root`."""

    @functools.wraps(command)
    def with_lists(*args, lists: tuple[str, ...], **options):
        return command(*args, lists=_listed(lists), **options)

    for option in (
        setting("root", metavar="DIR", help="Ids are paths relative to DIR: for files of several folders."),
        setting(
            "ext",
            "endings",
            metavar="LIST",
            callback=_endings,
            help="Endings of videos in folders, as in mp4,mkv.  [default: the usual ones]",
        ),
        click.option(
            "--list",
            "lists",
            metavar="FILE",
            multiple=True,
            help="A file with one path, folder or pattern per line; - is standard input.",
        ),
    ):
        with_lists = option(with_lists)
    return with_lists


def _endings(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(f".{part.strip().lower().lstrip('.')}" for part in (value or "").split(",") if part.strip(" ."))


def _listed(values: tuple[str, ...]) -> list[str]:
    paths = []
    for value in values:
        try:
            with click.open_file(value, encoding="utf-8", errors="surrogateescape") as file:
                paths += [line.rstrip("\r") for line in file.read().split("\n") if line.strip()]
        except OSError as error:
            raise click.UsageError(f"--list {value} cannot be read ({error.strerror}).") from error
    return paths


def gather(command, argument: str, names: tuple[str, ...]):
    """The command, with the options of these names passed as the one dict `argument`."""

    @functools.wraps(command)
    def gathered(**values):
        return command(**{argument: {name: values.pop(name) for name in names}}, **values)

    return gathered


def events_options(as_settings: bool = False):
    """`--on`, `--off`, `--min-length`, `--merge-gap`, passed as the dict `events`; None is a default."""
    share, seconds = click.FloatRange(min=0), click.FloatRange(min=0)
    said = {
        "merge_gap": (seconds, "S", "Parts this near are one action; it ends later."),
        "min_length": (seconds, "S", "A shorter action is none; it starts later."),
        "off": (share, "P", "An action ends below this score.  [default: 0.35]"),
        "on": (share, "P", "An action begins at this score.  [default: 0.5]"),
    }

    def with_events(command):
        gathered = gather(command, "events", tuple(said))
        for name, (kind, metavar, text) in said.items():
            about = {"type": kind, "metavar": metavar, "help": text}
            option = setting(name, **about) if as_settings else click.option(f"--{name.replace('_', '-')}", **about)
            gathered = option(gathered)
        return gathered

    return with_events


def stretch_options(command):
    """`--start`, `--duration` and the setting `max_chunks`, passed as the dict `stretch`."""
    gathered = gather(command, "stretch", ("start", "duration", "max_chunks"))
    for option in (
        setting("max_chunks", type=click.IntRange(min=1), metavar="N", help="Stop each source after N decisions."),
        click.option("--duration", type=Seconds(positive=True), help="Stop after so much of each source."),
        click.option("--start", type=Seconds(), default=0.0, help="Leave out what comes before, as in 90s or 1:30."),
    ):
        gathered = option(gathered)
    return gathered


def live_settings(command):
    """How live sources are read: `clock`, `on_lag`, `on_gap`, `timeout`, passed as the dict `live`."""
    gathered = gather(command, "live", ("clock", "on_lag", "on_gap", "timeout"))
    for option in (
        setting(
            "timeout",
            type=Seconds(positive=True),
            default=30.0,
            show_default="30s",
            help="A live source without a frame for so long has stalled, attempts to connect again included.",
        ),
        setting(
            "on_gap",
            type=click.Choice(["keep", "reset"]),
            default="keep",
            show_default=True,
            help="What the model remembers after a live source was away: all, or nothing.",
        ),
        setting(
            "on_lag",
            type=click.Choice(["auto", "drop", "wait"]),
            default="auto",
            show_default=True,
            callback=_none_for_auto,
            help="When a live source is faster than this machine: drop the oldest chunks, or let the source wait. "
            "auto drops those of cameras and endless streams.",
        ),
        setting(
            "clock",
            type=click.Choice(["stream", "wall"]),
            default="stream",
            show_default=True,
            help="Whose time a live source has: its own timestamps', or the arrival of its frames.",
        ),
    ):
        gathered = option(gathered)
    return gathered


def dataset_setting(command):
    """`dataset`."""
    return setting("dataset", metavar="NAME", help="Which data set of a data_info.json; else the root's name.")(command)


def data_settings(command):
    """`dataset`, `rgb_features`, `flow_features` and `skip_missing`: how labels and features are read."""
    for option in (
        setting(
            "skip_missing",
            type=bool,
            default=False,
            metavar="true",
            help="Leave out labelled videos that have no features.",
        ),
        setting("flow_features", "flow", metavar="NAME", help="Folder of flow features, where FEATURES has several."),
        setting("rgb_features", "rgb", metavar="NAME", help="Folder of RGB features, where FEATURES has several."),
        dataset_setting,
    ):
        command = option(command)
    return command
