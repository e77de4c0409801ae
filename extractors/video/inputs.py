"""What a person names as input: video files, folders of them, patterns and lists."""

import glob
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from lstr.errors import MissingPathError

LEARNT = (".learn", ".models")
"""Ends of folders that learning leaves beside videos; nothing in them is an input."""
VIDEO_SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".3gp", ".flv", ".wmv")
PROXY_SUFFIX = ".lstr-proxy.mp4"  # a copy that a report leaves beside itself for browsers
LANES_SUFFIX = ".lanes.mp4"  # a video with what was detected drawn under it
OWN_SUFFIXES = (PROXY_SUFFIX, LANES_SUFFIX)
"""Endings of videos that lstr makes, so that a folder of them and of their sources holds the sources alone."""
REASONS = 6  # that are told of a folder
LONGEST_SHOWN = 80  # characters of a name that is none

Tell = Callable[[str], object]
"""What takes a sentence for the user."""


def find_videos(
    inputs: Iterable[str | Path],
    suffixes: Collection[str] = VIDEO_SUFFIXES,
    root: str | Path | None = None,
    tell: Tell | None = None,
    known: Collection[str] = (),
) -> dict[str, Path]:
    """Files, folders (searched recursively, links followed) and patterns as {video id: path}, sorted in each.

    The id is the path without its ending, relative to the folder, or to the part of a pattern before its first
    wildcard; for a file, its stem. With `root` all ids are relative to that folder. Files of one folder that differ by
    their endings keep them in their ids. In folders, files with one of `suffixes` are videos, but for hidden ones;
    `tell` gets a sentence about what else a folder holds, but for files of `known` names. Raises MissingPathError for a
    path that does not exist or is not in `root`, a folder or pattern without videos, or two videos of one id.
    """
    named: list[tuple[str, Path]] = []
    for text in inputs:
        if not str(text):
            raise MissingPathError("One of the names is empty.", "check the variable or pattern that it comes from.")
        for path, beginning in _videos_of(Path(text), suffixes, tell, known):
            named.append((_id_of(path, Path(root) if root else beginning), path))
    found: dict[str, Path] = {}
    for video_id, path in with_endings(named):
        if (other := found.setdefault(video_id, path)) != path and other.resolve() != path.resolve():
            raise _one_name(other, path, video_id)
    return found


def with_endings(named: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Videos, here or elsewhere, by id; where files of one folder would share an id, they have their endings in it.

    So `a.mp4` and `a.avi` are videos of these names. A link and its file share an id.
    """
    pairs = list(dict.fromkeys(named))
    while True:
        sharing: dict[str, list[Any]] = {}
        for video_id, path in pairs:
            sharing.setdefault(video_id, []).append(path)
        several = {video_id: paths for video_id, paths in sharing.items() if len(paths) > 1}
        longer = {pair: new for pair in pairs if (new := _longer(*pair, several.get(pair[0], ())))}
        if not longer:
            return pairs
        pairs = [(longer.get(pair, pair[0]), pair[1]) for pair in pairs]


def _longer(video_id: str, path: Any, sharing: Iterable[Any]) -> str:
    """The id of a video with its ending, where it has none and shares it with another file of its folder."""
    if PurePath(video_id).name == path.name:
        return ""
    beside = {other.resolve() for other in sharing if other.parent.resolve() == path.parent.resolve()}
    return PurePath(video_id).with_name(path.name).as_posix() if len(beside) > 1 else ""


def _videos_of(
    named: Path, suffixes: Collection[str], tell: Tell | None, known: Collection[str]
) -> Iterator[tuple[Path, Path]]:
    """(video, folder that its id is relative to) for each video that one input means."""
    try:
        is_folder = named.is_dir()
    except OSError as error:  # a name that is too long for the system
        reason = f"{str(named)[:LONGEST_SHOWN]}… is no path ({error.strerror})."
        raise MissingPathError(reason, "name a file, a folder or a pattern.") from error
    if is_folder:
        paths = list(_walk(named, suffixes, tell, known))
        if not paths:
            raise MissingPathError(
                f"{named} holds no video.",
                f"name the files, whatever their endings; in a folder, videos end in {', '.join(list(suffixes)[:5])} …",
            )
        yield from ((path, named) for path in paths)
    elif named.exists():
        yield named, named.parent
    elif glob.has_magic(str(named)):
        plain = next(i for i, part in enumerate(named.parts) if glob.has_magic(part))
        beginning = Path(*named.parts[:plain])
        endings = {named.suffix.lower()} - {""} if not glob.has_magic(named.suffix) else set()
        paths = []
        for match in map(Path, sorted(glob.glob(str(named), recursive=True))):
            is_video = _is_video(match, {*suffixes, *endings})
            paths += _walk(match, suffixes, tell, known) if match.is_dir() else [match] * is_video
        if not paths:
            raise MissingPathError(f"No video matches {named}.", "check the pattern; `ls` its folder.")
        yield from ((path, beginning) for path in dict.fromkeys(paths))
    else:
        raise MissingPathError(f"{named} does not exist.", "check the path; `ls` its folder.")


def _walk(folder: Path, suffixes: Collection[str], tell: Tell | None, known: Collection[str]) -> Iterator[Path]:
    """The videos below a folder, sorted; of folders linked into themselves, once."""
    seen: set[str] = set()
    paths: list[Path] = []
    others: list[PurePath] = []
    closed: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=closed.append, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        # sorted, so that of two links to one folder it is always the same that counts
        folders[:] = sorted(name for name in folders if not name.endswith(LEARNT))
        for name in names:
            path = Path(place, name)
            if _is_video(path, suffixes):
                paths.append(path)
            elif name not in known:
                others.append(path)
    if tell and paths and (others or closed):
        tell(not_read(folder, others, suffixes, [str(error.filename) for error in closed]))
    return iter(sorted(paths))


def not_read(folder: object, others: Iterable[PurePath], suffixes: Collection[str], closed: Sequence[str] = ()) -> str:
    """What a folder holds that is not read as a video, counted by its reason; `closed` are folders that cannot be."""
    counts = Counter(_reason(path, suffixes) for path in others)
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{number} {reason}" for reason, number in most[:REASONS]]
    if rest := sum(number for _, number in most[REASONS:]):
        told.append(f"{rest} more")
    told += [f"the folder {path}, which cannot be read" for path in closed[:REASONS]]
    return f"{folder}: not read as videos: {', '.join(told)}; a file that is named is read, whatever its ending."


def _reason(path: PurePath, suffixes: Collection[str]) -> str:
    if path.name.endswith(OWN_SUFFIXES):
        return "that lstr wrote"
    if path.name.startswith("."):
        return "hidden"
    if path.suffix.lower() in suffixes:
        return f"{path.suffix.lower()} that is no file (a broken link, or a pipe)"
    return path.suffix.lower() or "without an ending"


def _is_video(path: Path, suffixes: Collection[str]) -> bool:
    return is_video_name(path, suffixes) and path.is_file()


def is_video_name(path: PurePath, suffixes: Collection[str]) -> bool:
    """Whether a file in a folder is a video to be read, by its name."""
    is_hidden = path.name.startswith(".")  # as what macOS puts beside each video on a disk of another system
    return path.suffix.lower() in suffixes and not path.name.endswith(OWN_SUFFIXES) and not is_hidden


def _id_of(path: Path, beginning: Path) -> str:
    try:
        relative = Path(os.path.abspath(path)).relative_to(os.path.abspath(beginning))
    except ValueError:
        raise MissingPathError(f"{path} is not in {beginning}.", "name their common folder: --set root=DIR.") from None
    return relative.with_suffix("").as_posix()


def _one_name(first: Path, second: Path, video_id: str) -> MissingPathError:
    common = os.path.commonpath([os.path.abspath(first), os.path.abspath(second)])
    hint = f"name their common folder '{common}' instead: ids then keep the names of its folders."
    return MissingPathError(f"{first} and {second} would both be called {video_id!r}.", hint)
