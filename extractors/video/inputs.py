"""What a person names as input: video files, folders of them, patterns and lists."""

import glob
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePath

from lstr.extractors.errors import MissingPathError

VIDEO_SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".3gp", ".flv", ".wmv")
PROXY_SUFFIX = ".lstr-proxy.mp4"  # a copy that a report leaves beside itself for browsers
LANES_SUFFIX = ".lanes.mp4"  # a video with what was detected drawn under it
OWN_SUFFIXES = (PROXY_SUFFIX, LANES_SUFFIX)
"""Endings of videos that lstr makes, so that a folder of them and of their sources holds the sources alone."""


def find_videos(
    inputs: Iterable[str | Path], suffixes: Collection[str] = VIDEO_SUFFIXES, root: str | Path | None = None
) -> dict[str, Path]:
    """Files, folders (searched recursively, links followed) and patterns as {video id: path}, sorted in each.

    The id is the path without its ending, relative to the folder, or to the part of a pattern before its first
    wildcard; for a file, its stem. With `root` all ids are relative to that folder. In folders, files with one of
    `suffixes` are videos. Raises MissingPathError for a path that does not exist or is not in `root`, a folder or
    pattern without videos, or two videos of one id.
    """
    found: dict[str, Path] = {}
    for text in inputs:
        if not str(text):
            raise MissingPathError("One of the names is empty.", "check the variable or pattern that it comes from.")
        named = Path(text)
        for path, beginning in _videos_of(named, suffixes):
            video_id = _id_of(path, Path(root) if root else beginning)
            if found.setdefault(video_id, path).resolve() != path.resolve():
                raise _one_name(found[video_id], path, video_id)
    return found


def _videos_of(named: Path, suffixes: Collection[str]) -> Iterator[tuple[Path, Path]]:
    """(video, folder that its id is relative to) for each video that one input means."""
    if named.is_dir():
        paths = list(_walk(named, suffixes))
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
            paths += _walk(match, suffixes) if match.is_dir() else [match] * _is_video(match, {*suffixes, *endings})
        if not paths:
            raise MissingPathError(f"No video matches {named}.", "check the pattern; `ls` its folder.")
        yield from ((path, beginning) for path in dict.fromkeys(paths))
    else:
        raise MissingPathError(f"{named} does not exist.", "check the path; `ls` its folder.")


def _walk(folder: Path, suffixes: Collection[str]) -> Iterator[Path]:
    """The videos below a folder, sorted; of folders linked into themselves, once."""
    seen: set[str] = set()
    paths: list[Path] = []
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()  # so that of two links to one folder it is always the same that counts
        paths += [path for name in names if _is_video(path := Path(place, name), suffixes)]
    return iter(sorted(paths))


def _is_video(path: Path, suffixes: Collection[str]) -> bool:
    return is_video_name(path, suffixes) and path.is_file()


def is_video_name(path: PurePath, suffixes: Collection[str]) -> bool:
    """Whether a file in a folder is a video to be read, by its name."""
    return path.suffix.lower() in suffixes and not path.name.endswith(OWN_SUFFIXES)


def _id_of(path: Path, beginning: Path) -> str:
    try:
        relative = Path(os.path.abspath(path)).relative_to(os.path.abspath(beginning))
    except ValueError:
        raise MissingPathError(
            f"{path} is not in {beginning}.", "give [[root=DIR]], a folder that all inputs are in."
        ) from None
    return relative.with_suffix("").as_posix()


def _one_name(first: Path, second: Path, video_id: str) -> MissingPathError:
    if first.parent.resolve() == second.parent.resolve():
        hint = f"move one of them away, or name only the files of one ending: '{second.parent}/*{second.suffix}'."
    else:
        common = os.path.commonpath([os.path.abspath(first), os.path.abspath(second)])
        hint = f"name their common folder '{common}' instead: ids then keep the names of its folders."
    return MissingPathError(f"{first} and {second} would both be called {video_id!r}.", hint)
