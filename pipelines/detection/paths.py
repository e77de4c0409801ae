"""The sources of a detection by their names: checked, and told apart, before anything heavy is imported or loaded."""

from collections.abc import Iterable
from pathlib import Path

from lstr.extractors.errors import MissingPathError
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.live_input import Input, parse_live


def by_kind(sources: Iterable[str | Path]) -> tuple[list[Path], list[Input]]:
    """Recorded and live sources, each in order.

    Raises MissingPathError for a path that does not exist, a pattern without videos, two times `-`, and as
    `parse_live`. What a folder holds is not looked at.
    """
    sources = list(sources)
    if [str(source) for source in sources].count("-") > 1:
        raise MissingPathError("Standard input can be read once.", "name - once.")
    parsed = [(source, parse_live(source)) for source in sources]
    recorded = [source for source, live in parsed if live is None]
    find_videos(source for source in recorded if not (str(source) and Path(source).is_dir()))
    return [Path(source) for source in recorded], [live for _, live in parsed if live]
