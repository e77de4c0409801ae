"""What a shell offers for the value of an option: names that exist, and files. Nothing here imports the networks."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from lstr_cli.settings import settings_of

Completer = Callable[[click.Context, str], list[CompletionItem]]

RECIPES = ("fast", "faithful", "live", "activitynet", "activitynet-fast")
"""Of `lstr.extractors.presets`, without the two that are only other names of the first."""
FORMATS = "json jsonl csv tsv vtt srt ass eaf labelstudio activitynet thumos audacity".split()
READABLE = (*FORMATS, "npy", "perframe")
WRITABLE = (*FORMATS, "perframe", "png", "svg", "html", "mp4")
DETECTED = (*FORMATS, "npy", "png", "svg", "html", "mp4", "all")
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


def completer_of(param: click.Parameter) -> Completer | None:
    """What completes a value that is any text to Click; None where Click knows the choices itself."""
    if type(param.type) is not click.types.StringParamType:
        return None
    name = max(param.opts, key=len) if isinstance(param, click.Option) else param.name or ""
    names = NAMES.get(f"{name} {param.metavar}") or NAMES.get(name)
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


def _presets(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from lstr.kinds import presets

    return presets()


def _recipes(ctx: click.Context, incomplete: str) -> Iterable[str]:
    return RECIPES


def _weights(ctx: click.Context, incomplete: str) -> Iterable[str]:
    from lstr.extractors.weights.published_files import read_manifest

    entries = read_manifest()
    stream, equals, _ = incomplete.rpartition("=")
    names = [*dict.fromkeys(entry.recipe for entry in entries if entry.recipe), *(entry.name for entry in entries)]
    return [f"{stream}{equals}{name}" for name in names]


def _formats(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """The last of a list with commas, after those before it."""
    before, comma, _ = incomplete.rpartition(",")
    return (f"{before}{comma}{name}" for name in DETECTED if name not in before.split(","))


def _settings(ctx: click.Context, incomplete: str) -> Iterator[str]:
    from dataclasses import fields

    yield from (f"{one.key}=" for one in settings_of(ctx.command))
    if (
        not any(param.name == "settings" and param.expose_value for param in ctx.command.params)
        or ctx.info_name == "finetune"
    ):
        return  # no others, or such as bring torch
    from lstr.config import WindowConfig
    from lstr.pipelines.training.config import TrainConfig

    yield from (f"model.{field.name}=" for field in fields(WindowConfig))
    if ctx.info_name == "train":
        yield from (f"train.{field.name}=" for field in fields(TrainConfig))


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
    "--preset": _presets,
    "--recipe": _recipes,
    "--weights": _weights,
    "--init": _weights,
    "names": _weights,
    "--format": _formats,
    "--to": lambda ctx, incomplete: WRITABLE,
    "--from FORMAT": lambda ctx, incomplete: READABLE,
    "--set": _settings,
    "--subset": _subsets,
    "--eval-subset": _subsets,
    "--classes": _classes,
    "--video": _videos,
}
"""Names by option or argument."""
