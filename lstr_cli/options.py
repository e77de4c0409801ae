"""Options that several commands share."""

import functools

import click

from lstr.extractors.backbones.networks import NETWORKS
from lstr_cli.mistakes import Device, Precision
from lstr_cli.quantities import Seconds


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


def precision_option(command):
    """`--precision auto|float32|bf16` of the feature networks, passed as None for auto."""
    return click.option(
        "--precision",
        type=Precision(["auto", "float32", "bf16"]),
        default="auto",
        show_default=True,
        callback=_none_for_auto,
        help="Of the networks; auto is what the recipe prefers. bf16 features are within a cosine of 0.999 of float32.",
    )(command)


def runtime_option(command):
    """`--runtime auto|torch|openvino|onnxruntime`."""
    return click.option(
        "--runtime",
        type=click.Choice(["auto", "torch", "openvino", "onnxruntime"]),
        default="auto",
        show_default=True,
        help="What computes the feature networks, with the same features; auto is the fastest of this machine.",
    )(command)


def algorithm_option(command):
    """`--flow tvl1|dis|farneback|difference`, passed as `algorithm`."""
    return click.option(
        "--flow",
        "algorithm",
        type=click.Choice(["tvl1", "dis", "dis-fast", "dis-ultrafast", "farneback", "difference"]),
        help="tvl1 as published; the others are many times cheaper and make other features; difference is no flow, but "
        "what changes from frame to frame.  [default: that of the recipe]",
    )(command)


def weights_options(command):
    """`--rgb-weights` and `--flow-weights`, passed as paths of files or folders, None for random."""

    @functools.wraps(command)
    def with_paths(*args, rgb_weights: str | None, flow_weights: str | None, **options):
        from lstr.pipelines.weights.published import find_weights

        rgb_weights, flow_weights = (
            name and find_weights(name, stream) for stream, name in (("rgb", rgb_weights), ("flow", flow_weights))
        )
        return command(*args, rgb_weights=rgb_weights, flow_weights=flow_weights, **options)

    for stream in ("flow", "rgb"):
        with_paths = click.option(
            f"--{stream}-weights",
            metavar="FILE|DIR|NAME",
            help=f"Of the {stream} network: a file, a folder of `lstr finetune`, a model file, or the name or recipe "
            "of fetched ones.  [default: those of the model or recipe, else random]",
        )(with_paths)
    return with_paths


def recipe_options(command):
    """How features are made: `--recipe` and what changes it, passed as `recipe`, `precision` and the weights by stream.

    `recipe` is an `lstr.extractors.presets.Preset` or a `lstr.pipelines.networks.recipes.StoredRecipe`.
    """

    @functools.wraps(command)
    def with_recipe(
        *args, recipe, streams, rgb_network, flow_network, algorithm, precision, rgb_weights, flow_weights, **options
    ):
        from lstr_cli import console

        console.say_waiting("loading networks…")
        from lstr.pipelines.files.remote import place
        from lstr.pipelines.networks.recipes import choose_recipe, default_recipe, weights_for

        if not recipe:
            recipe, why = default_recipe(place(options["output"]), options["device"])
            console.say(f"recipe: {recipe}, {why}")
        networks = {"rgb": rgb_network, "flow": flow_network}
        recipe = choose_recipe(recipe, streams, networks, algorithm, precision)
        paths = weights_for(recipe, rgb_weights, flow_weights)
        weights = {f"{stream}_weights": path for stream, path in paths.items()}
        return command(*args, recipe=recipe, precision=precision, **weights, **options)

    with_recipe = weights_options(with_recipe)
    for stream in ("flow", "rgb"):
        with_recipe = click.option(
            f"--{stream}-network",
            metavar="NAME|CONFIG",
            help=f"Another network: {', '.join(NETWORKS)}, timm:NAME, or the config of a recogniser of mmaction2.",
        )(with_recipe)
    with_recipe = algorithm_option(precision_option(with_recipe))
    with_recipe = click.option(
        "--streams",
        type=click.Choice(["both", "rgb", "flow"]),
        help="Only one of the two; rgb needs no flow.",
    )(with_recipe)
    return click.option(
        "--recipe",
        metavar="NAME|FILE",
        help="faithful: as published, ten flow crops. fast: one, and bf16 where the processor has it. activitynet, "
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


def flow_backend_option(command):
    """`--flow-backend`."""
    return click.option(
        "--flow-backend",
        type=click.Choice(["auto", "native", "opencv", "cuda"]),
        default="auto",
        show_default=True,
        help="What computes TV-L1, with the same result; auto is a GPU by a rule, the compiled kernel, or OpenCV.",
    )(command)


def flow_threads_option(command):
    """`--flow-threads` and `--flow-backend`: threads that compute flow, None for one per core, and with what."""
    return click.option(
        "--flow-threads",
        type=click.IntRange(min=1),
        help="Threads that compute optical flow.  [default: one per core]",
    )(flow_backend_option(command))


def networks_options(command):
    """How the networks for raw video are made, passed as the dict `networks`."""
    names = ("rgb_weights", "flow_weights", "algorithm", "allow_mismatch", "flow_threads", "flow_backend", "runtime")
    gathered = gather(command, "networks", names)
    return weights_options(algorithm_option(mismatch_option(flow_threads_option(runtime_option(gathered)))))


def processes_option(command):
    """`--workers` and `--threads`: processes and the threads of each, None for what suits the machine."""
    command = click.option(
        "--threads",
        type=click.IntRange(min=1),
        help="Threads of each process, of flow and of the networks on a CPU.  [default: the cores, shared out]",
    )(command)
    return click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Processes that share videos, cores and GPUs.  [default: one for four cores, and for each GPU]",
    )(command)


def inputs_options(command):
    """`--list`, `--ext` and `--root`, passed as the paths `lists`, the suffixes `endings` and `root`."""

    @functools.wraps(command)
    def with_lists(*args, lists: tuple[str, ...], **options):
        return command(*args, lists=_listed(lists), **options)

    for option in (
        click.option("--root", metavar="DIR", help="Ids are paths relative to DIR: for files of several folders."),
        click.option(
            "--ext",
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


def events_options(command):
    """`--on`, `--off`, `--min-length`, `--merge-gap`, passed as the dict `events`; None is a default."""
    gathered = gather(command, "events", ("on", "off", "min_length", "merge_gap"))
    share, seconds = click.FloatRange(min=0), click.FloatRange(min=0)
    for option in (
        click.option("--merge-gap", type=seconds, metavar="S", help="Parts this near are one action; it ends later."),
        click.option("--min-length", type=seconds, metavar="S", help="A shorter action is none; it starts later."),
        click.option("--off", type=share, metavar="P", help="An action ends below this score.  [default: 0.35]"),
        click.option("--on", type=share, metavar="P", help="An action begins at this score.  [default: 0.5]"),
    ):
        gathered = option(gathered)
    return gathered


def stretch_options(command):
    """`--start`, `--duration` and `--max-chunks`, passed as the dict `stretch`."""
    gathered = gather(command, "stretch", ("start", "duration", "max_chunks"))
    for option in (
        click.option(
            "--max-chunks", type=click.IntRange(min=1), metavar="N", help="Stop each source after N decisions."
        ),
        click.option("--duration", type=Seconds(positive=True), help="Stop after so much of each source."),
        click.option("--start", type=Seconds(), default=0.0, help="Leave out what comes before, as in 90s or 1:30."),
    ):
        gathered = option(gathered)
    return gathered


def live_options(command):
    """How live sources are read: `--clock`, `--on-lag`, `--on-gap`, `--timeout`, passed as the dict `live`."""
    gathered = gather(command, "live", ("clock", "on_lag", "on_gap", "timeout"))
    for option in (
        click.option(
            "--timeout",
            type=Seconds(positive=True),
            default=30.0,
            show_default="30s",
            help="A live source without a frame for so long has stalled, attempts to connect again included.",
        ),
        click.option(
            "--on-gap",
            type=click.Choice(["keep", "reset"]),
            default="keep",
            show_default=True,
            help="What the model remembers after a live source was away: all, or nothing.",
        ),
        click.option(
            "--on-lag",
            type=click.Choice(["auto", "drop", "wait"]),
            default="auto",
            show_default=True,
            callback=_none_for_auto,
            help="When a live source is faster than this machine: drop the oldest chunks, or let the source wait. "
            "auto drops those of cameras and endless streams.",
        ),
        click.option(
            "--clock",
            type=click.Choice(["stream", "wall"]),
            default="stream",
            show_default=True,
            help="Whose time a live source has: its own timestamps', or the arrival of its frames.",
        ),
    ):
        gathered = option(gathered)
    return gathered


def data_options(command):
    """`--dataset`, `--rgb-features`, `--flow-features` and `--skip-missing`: how labels and features are read."""
    for option in (
        click.option("--skip-missing", is_flag=True, help="Leave out labelled videos that have no features."),
        click.option(
            "--flow-features", "flow", metavar="NAME", help="Folder of flow features, where FEATURES has several."
        ),
        click.option(
            "--rgb-features", "rgb", metavar="NAME", help="Folder of RGB features, where FEATURES has several."
        ),
        click.option("--dataset", metavar="NAME", help="Which data set of a data_info.json; else the root's name."),
    ):
        command = option(command)
    return command


def set_option(command):
    """`--set key=value`, repeatable, as a dict."""
    return click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, callback=_parse, help="Change one setting; repeatable."
    )(command)


def _parse(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE, as in model.n_heads=8.")
        settings[key] = text
    return settings


def model_settings(settings: dict[str, str]) -> dict[str, str]:
    """The `model.` settings without that prefix. Raises click.BadParameter for any other."""
    for key in settings:
        if not key.startswith("model."):
            raise click.BadParameter(f"{key!r} is no model setting; write --set model.NAME=VALUE.")
    return {key.removeprefix("model."): value for key, value in settings.items()}
