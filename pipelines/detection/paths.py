"""The sources of a detection by their names: checked, and told apart, before anything heavy is imported or loaded."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from lstr.errors import MissingPathError
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.live_input import Input, parse_live
from lstr.files.names import fault_of

NO_NAMES: Mapping[str, str | Path] = {}


def by_kind(
    sources: Iterable[str | Path], names: Mapping[str, str | Path] = NO_NAMES
) -> tuple[list[Path], list[Input]]:
    """Recorded and live sources, each in order; `names` are further live sources by the ids they get.

    Raises MissingPathError for a path that does not exist, a pattern without videos, two times `-`, a name that no file
    can have or that belongs to a path, and as `parse_live`. What a folder holds is not looked at.
    """
    known = {str(source) for source in names.values()}
    sources = [source for source in sources if str(source) not in known]
    sources += names.values()
    if [str(source) for source in sources].count("-") > 1:
        raise MissingPathError("Standard input can be read once.", "name - once.")
    for name, source in names.items():
        _check_name(name, source)
    parsed = [(source, parse_live(source)) for source in sources]
    recorded = [source for source, live in parsed if live is None]
    find_videos(source for source in recorded if not (str(source) and Path(source).is_dir()))
    chosen = {str(source): name for name, source in names.items()}
    live = [
        replace(live, id=chosen[str(source)], named=True) if str(source) in chosen else live
        for source, live in parsed
        if live
    ]
    return [Path(source) for source in recorded], live


def _check_name(name: str, source: str | Path) -> None:
    """Raise MissingPathError for a name that its files cannot have, and of a path, which has one."""
    if "/" in name or fault_of(name):
        raise MissingPathError(
            f"{name!r} cannot name a source, for its files begin with it.",
            "choose a word, as in --name door=rtsp://….",
        )
    if parse_live(source) is None:
        raise MissingPathError(
            f"{source} is no live source, and a file has its own name.",
            "name a camera, an address or -, as in --name door=rtsp://….",
        )
