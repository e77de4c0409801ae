"""What is checked of a configuration beside its text: its models, what these know, and its channels."""

from contextlib import closing
from pathlib import Path
from shutil import which

from lstr.errors import CheckpointError, ConfigError, ExtractorError, MissingCameraError, ServingError
from lstr.extractors.video.live_input import parse_live
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.detection.checkpoint import find_checkpoint
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.pages.server import names_of
from lstr.pipelines.watching.config import CommandConfig, WatchConfig
from lstr.pipelines.watching.config_file import error_of
from lstr.pipelines.watching.history import IN_MEMORY, History
from lstr.pipelines.watching.telling import make_channel


def check(config: WatchConfig, now: bool = False) -> dict[str, list[str]]:
    """Open each model file, see whether the actions are known, make each channel, which is opened by nobody, and see
    whether the page can be served. Return by the name of a source what its model knows.

    With `now`, cameras that are not plugged in and programs that are not there are mistakes too; a service waits for
    them. Raises ConfigError with the entry of each mistake.
    """
    mistakes: list[str] = []
    actions: dict[str, list[str]] = {}
    known: dict[Path | None, list[str]] = {}
    for name, source in config.sources.items():
        model = source.model or config.model
        if model not in known:
            try:
                known[model] = actions_in(find_checkpoint(model))
            except (CheckpointError, ExtractorError) as error:
                known[model] = []
                mistakes.append(f"{f'sources.{name}.' if source.model else ''}model: {error}")
        actions[name] = known[model]
        try:
            if now:
                parse_live(source.address)
        except MissingCameraError as error:
            mistakes.append(f"sources.{name}.address: {error} {error.hint}")
    everything = {action for names in known.values() for action in names}
    for action in config.actions:
        if everything and action not in everything:
            has = ", ".join(sorted(everything))
            mistakes.append(f"actions.{action}: no model knows it; they know {has}.")
    with closing(History(IN_MEMORY)) as history:
        for name, channel in config.channels.items():
            try:
                make_channel(name, channel, history)
            except ConfigError as error:
                mistakes.append(f"channels.{name}: {error} {error.hint}")
            if now and isinstance(channel, CommandConfig) and which(channel.command[0]) is None:
                mistakes.append(f"channels.{name}.command: there is no program {channel.command[0]}.")
    try:
        names_of(config.page.host, 0, config.page.hosts)
    except ServingError as error:
        mistakes.append(f"page.host: {error} {error.hint}")
    if mistakes:
        raise error_of(config.path, mistakes)
    return actions


def actions_in(path: Path) -> list[str]:
    """What the model of a file knows. Raises CheckpointError where it is none."""
    if not is_model(path):
        raise CheckpointError(f"{path} is no model file.", "make one: lstr learn VIDEOS LABELS -o my.lstr")
    return [name for name in open_model(path).about["classes"] if name not in (BACKGROUND, AMBIGUOUS)]
