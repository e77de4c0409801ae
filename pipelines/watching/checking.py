"""What is checked of a configuration beside its text: its models, what these know, and its channels."""

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from shutil import which

from lstr.errors import CheckpointError
from lstr.extractors.errors import ExtractorError, MissingCameraError
from lstr.extractors.video.live_input import parse_live
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.detection.checkpoint import find_checkpoint
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.serving.server import ServingError, names_of
from lstr.pipelines.watching.config import WatchConfig
from lstr.pipelines.watching.config_file import Mistake, WatchConfigError, Where, lines_of, said_of
from lstr.pipelines.watching.history import IN_MEMORY, History
from lstr.pipelines.watching.telling.channel import ChannelError
from lstr.pipelines.watching.telling.telling import make_channel


def check(config: WatchConfig, now: bool = False) -> dict[str, list[str]]:
    """Open each model file, see whether the actions are known, make each channel, which is opened by nobody, and see
    whether the page can be served. Return by the name of a source what its model knows.

    With `now`, cameras that are not plugged in and programs that are not there are mistakes too; a service waits for
    them. Raises WatchConfigError with the line of each mistake.
    """
    lines: Mapping[Where, int] = {}
    with suppress(OSError, UnicodeDecodeError):  # somebody who writes it anew may be between its end and its beginning
        lines = lines_of(config.path.read_text(encoding="utf-8"))
    mistakes: list[Mistake] = []
    actions: dict[str, list[str]] = {}
    known: dict[Path | None, list[str]] = {}
    for name, source in config.sources.items():
        model = source.model or config.model
        where = ("sources", name, "model") if source.model else ("model",)
        if model not in known:
            try:
                known[model] = actions_in(find_checkpoint(model))
            except (CheckpointError, ExtractorError) as error:
                known[model] = []
                mistakes.append(Mistake(lines.get(where, 1), f"{'.'.join(where)}: {error}"))
        actions[name] = known[model]
        try:
            if now:
                parse_live(source.address)
        except MissingCameraError as error:
            where = ("sources", name, "address")
            mistakes.append(Mistake(lines.get(where, 1), f"{'.'.join(where)}: {error} {error.hint}"))
    everything = {action for names in known.values() for action in names}
    for action in config.actions:
        if everything and action not in everything:
            has = ", ".join(sorted(everything))
            line = lines.get(("actions", action), 1)
            mistakes.append(Mistake(line, f"actions.{action}: no model knows it; they know {has}."))
    mistakes += [*_channels(config, lines), *_page(config, lines)]
    if now:
        mistakes += _programs(config, lines)
    if mistakes:
        raise WatchConfigError(said_of(config.path, mistakes), f"mend it, then `lstr watch --check {config.path}`.")
    return actions


def _channels(config: WatchConfig, lines: Mapping[Where, int]) -> Iterator[Mistake]:
    with closing(History(IN_MEMORY)) as history:
        for name in config.channels:
            try:
                make_channel(name, config, history, lambda text: None)
            except ChannelError as error:
                yield Mistake(lines.get(("channels", name), 1), f"channels.{name}: {error} {error.hint}")


def _programs(config: WatchConfig, lines: Mapping[Where, int]) -> Iterator[Mistake]:
    for name, channel in config.channels.items():
        if channel.command and which(channel.command[0]) is None:
            where = ("channels", name, "command")
            yield Mistake(lines.get(where, 1), f"{'.'.join(where)}: there is no program {channel.command[0]}.")


def _page(config: WatchConfig, lines: Mapping[Where, int]) -> Iterator[Mistake]:
    page = config.page
    try:
        names_of(page.host, 0, page.hosts)
    except ServingError as error:
        yield Mistake(lines.get(("page", "host"), 1), f"page.host: {error} {error.hint}")


def actions_in(path: Path) -> list[str]:
    """What the model of a file knows. Raises CheckpointError where it is none."""
    if not is_model(path):
        raise CheckpointError(f"{path} is no model file.", "make one: lstr learn VIDEOS LABELS -o my.lstr")
    return [name for name in open_model(path).about["classes"] if name not in (BACKGROUND, AMBIGUOUS)]
