"""What a shell offers for the value of an option: names that exist, and files. Nothing here imports the networks."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

import lstr
from lstr.kinds import OURS
from lstr_cli.settings import settings_of

Completer = Callable[[click.Context, str], list[CompletionItem]]

RECIPES = (
    *("fast", "faithful", "live", "smallest", "grey", "difference", "motion", "pretrained"),
    *("activitynet", "activitynet-fast", "movinet-a0", "movinet-a1", "movinet-a2", "tsm", "dinov2"),
    "streamformer",
)
"""The recipes of `lstr.extractors.presets`, without the two that are only other names of the first two."""
PRESETS = (
    *("thumos14", "tvseries", "hacs", "thumos14-published", "tvseries-published", "small", "lstr-small"),
    *("miniroad-thumos14", "miniroad-tvseries", "testra-thumos14", "testra-laplace-thumos14", "trn-thumos14"),
    *("gatehub-thumos14", "oadtr-thumos14", "colar-thumos14", "cmert-thumos14", "mat-thumos14", "mat-tvseries"),
    *("idn-thumos14", "fats-thumos14", "woad-thumos14", "woad-video-thumos14", "efc-thumos14", "ed-thumos14"),
    *("red-thumos14", "ttm-thumos14", "lap-like-thumos14", "tfn-like-thumos14", "conv-deconv-thumos14"),
    *("toad-thumos14", "toad-1-shot", "toad-2-shot", "toad-4-shot", "toad-8-shot"),
)
"""The presets of the kinds of model of this package, which torch comes with."""
READ_AT_MOST = 20_000_000  # bytes of a label file; a person waits for the answer
FILES = re.compile(r"FILE|PATH|VIDEO|SOURCE|FEATURES|CHECKPOINT|LABELS|REFERENCE|MINE|CONFIG|WEIGHTS")
FOLDERS = re.compile(r"DIR|RUN")


class Words(click.types.StringParamType):
    """Text that a shell can complete."""

    def __init__(self, complete: Completer):
        self._complete = complete

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """What a shell offers for an incomplete word."""
        return self._complete(ctx, incomplete)


class AnnotationFormat(click.ParamType):
    """A format of annotations that is `readable` or `writable`; they are imported when a name is looked at."""

    name = "format"

    def __init__(self, which: str):
        self._which = which

    def _known(self) -> list[str]:
        from lstr.pipelines.annotations import formats

        return getattr(formats, self._which)()

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name. Raises BadParameter for another."""
        if value not in self._known():
            self.fail(f"{value!r} is not one of {', '.join(self._known())}.", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(name) for name in self._known() if name.startswith(incomplete)]


def completer_of(param: click.Parameter) -> Completer | None:
    """What completes a value that is any text to Click; None where Click knows the choices itself."""
    if type(param.type) is not click.types.StringParamType:
        return None
    names = NAMES.get(max(param.opts, key=len))
    kind = _kind(param.metavar or "")
    if not names and not kind:
        return None

    def complete(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        offered = names(ctx, incomplete) if names else ()
        found = [CompletionItem(name) for name in offered if name.startswith(incomplete)]
        return found or ([CompletionItem(incomplete, type=kind)] if kind else [])

    return complete


def _kind(metavar: str) -> str:
    """`file` or `dir`, by what stands for the value in the help."""
    if FILES.search(metavar):
        return "file"
    return "dir" if FOLDERS.search(metavar) else ""


def _weights(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from lstr.extractors.weights.published_files import read_manifest

    entries = read_manifest()
    stream, equals, _ = incomplete.rpartition("=")
    names = [*dict.fromkeys(entry.recipe for entry in entries if entry.recipe), *(entry.name for entry in entries)]
    return [f"{stream}{equals}{name}" for name in names]


def _formats(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """The last of a list with commas, after those before it."""
    from lstr.pipelines.detection.outputs import FORMATS

    before, comma, _ = incomplete.rpartition(",")
    return (f"{before}{comma}{name}" for name in (*FORMATS, "all") if name not in before.split(","))


def _settings(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """The settings that the command declares, and those of the kind of model that is chosen so far."""
    from dataclasses import fields

    yield from (f"{one.key}=" for one in settings_of(ctx.command))
    if "settings" not in ctx.params or ctx.info_name == "finetune":
        return  # no others, or such as bring torch
    from lstr.config import WindowConfig
    from lstr.pipelines.training.config import TrainConfig

    settings, preset = ctx.params["settings"] or {}, ctx.params.get("preset")
    kind = settings.get("model.kind") or settings.get("kind") or (preset and kind_of(preset))
    yield from (f"model.{field.name}=" for field in fields(WindowConfig))
    yield from (f"model.{name}=" for name in own_settings(kind))
    if ctx.info_name == "train":
        yield from (f"train.{field.name}=" for field in fields(TrainConfig))


def kind_of(preset: str) -> str:
    """The kind of model that a preset names in front; the two that name none are LSTR's, but for `small`."""
    named = [kind for kind in OURS if preset.startswith(f"{kind}-")]
    return named[0] if named else "rnn" if preset == "small" else "lstr"


def own_settings(kind: str | None) -> Iterator[str]:
    """What a kind's configuration has beside the shared settings, read from its text: an import would bring torch."""
    if kind not in OURS:
        return
    folder = Path(lstr.__file__).parent.joinpath(*OURS[kind].split(".")[1:-1])
    classes = {}
    for node in (node for path in folder.glob("*.py") for node in ast.parse(path.read_bytes()).body):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            lines = [line for line in node.body if isinstance(line, ast.AnnAssign)]
            lines = [line for line in lines if not ast.unparse(line.annotation).startswith("ClassVar")]
            values = {ast.unparse(line.target): ast.unparse(line.value) for line in lines if line.value}
            classes[node.name] = ast.unparse(node.bases[0]), values
    name = next((name for name, (_, values) in classes.items() if values.get("kind") == repr(kind)), "")
    while name in classes:
        name, values = classes[name]
        yield from (setting for setting in values if setting != "kind")


def _labels(ctx: click.Context) -> dict:
    """The label file that the command names so far, an ActivityNet JSON; {} for any other."""
    try:
        path = Path(ctx.params.get("labels") or ctx.args[0])  # what precedes an option without its value is in args
        read = json.loads(path.read_bytes()) if path.stat().st_size <= READ_AT_MOST else {}
    except (OSError, ValueError, IndexError):
        return {}
    return read if isinstance(read, dict) and isinstance(read.get("database", {}), dict) else {}


def _subsets(ctx: click.Context, incomplete: str) -> list[str]:
    videos = _labels(ctx).get("database", {}).values()
    found = {str(video["subset"]) for video in videos if isinstance(video, dict) and video.get("subset")}
    return sorted(found) or ["training", "validation", "testing"]


def _classes(ctx: click.Context, incomplete: str) -> Iterator[str]:
    before, comma, _ = incomplete.rpartition(",")
    labels = _labels(ctx)
    named = labels.get("classes")
    if not named:
        videos = (video for video in labels.get("database", {}).values() if isinstance(video, dict))
        named = sorted({str(segment.get("label")) for video in videos for segment in video.get("annotations", [])})
    return (f"{before}{comma}{name}" for name in named if name not in before.split(","))


def _videos(ctx: click.Context, incomplete: str) -> list[str]:
    folder = Path(ctx.args[0] if ctx.args else ".")
    return sorted({path.stem for path in folder.glob("*/*.npy")}) if folder.is_dir() else []


NAMES: dict[str, Callable[[click.Context, str], Iterable[str]]] = {
    "--recipe": lambda ctx, incomplete: RECIPES,
    "--preset": lambda ctx, incomplete: PRESETS,
    "--weights": _weights,
    "--init": _weights,
    "names": _weights,
    "kind": lambda ctx, incomplete: OURS,
    "--format": _formats,
    "--set": _settings,
    "--subset": _subsets,
    "--eval-subset": _subsets,
    "--classes": _classes,
    "--video": _videos,
}
"""Names by option or argument."""
