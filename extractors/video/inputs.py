"""Inputs of a job: video files, folders, patterns and URLs, found by video id and brought to this machine."""

import glob
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import av

from lstr.errors import MissingPathError, VideoError
from lstr.extractors.video.containers import open_container
from lstr.files.atomic import scratch
from lstr.files.names import fault_of
from lstr.files.remote import Place, RemoteFile, Stat, has_no_room, place

# Ends of folders that learning leaves beside videos; nothing in them is an input.
LEARNT = (".learn", ".models")
VIDEO_SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".3gp", ".flv", ".wmv")
PROXY_SUFFIX = ".lstr-proxy.mp4"  # a copy that a report leaves beside itself for browsers
LANES_SUFFIX = ".lanes.mp4"  # a video with what was detected drawn under it
# Endings of videos that lstr makes, so that a folder of them and of their sources holds the sources alone.
OWN_SUFFIXES = (PROXY_SUFFIX, LANES_SUFFIX)
REASONS = 6  # that are told of a folder
HEADER_BLOCK = 2**16  # bytes requested at a time, to read little more than a header
LONGEST_SHOWN = 80  # characters of a name that is none

# What takes a sentence for the user.
Tell = Callable[[str], object]


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
    for at, folders, names in os.walk(folder, onerror=closed.append, followlinks=True):
        real = os.path.realpath(at)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        # sorted, so that of two links to one folder it is always the same that counts
        folders[:] = sorted(name for name in folders if not name.endswith(LEARNT))
        for name in names:
            path = Path(at, name)
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


def find_sources(
    names: Iterable[str],
    suffixes: Collection[str] = VIDEO_SUFFIXES,
    root: str | None = None,
    tell: Tell | None = None,
) -> dict[str, Place]:
    """Videos here, as `find_videos` finds them, and at URLs of files, folders and patterns, by id.

    A video's id is the path without its ending, relative to the folder's URL or to that of the part of a pattern
    before its first `*`; with `root`, to that; files of one folder that share it keep their endings. `tell` gets a
    sentence about what else a folder holds. Raises MissingPathError where a URL holds none, one is not in `root`,
    or two videos have one id.
    """
    places, top = [place(name) for name in names], place(root) if root else None
    found: dict[str, Place] = {}
    if here := [one for one in places if isinstance(one, Path)]:
        if isinstance(top, RemoteFile):
            raise MissingPathError(f"{here[0]} is not in {top}.", "name their common folder: --set root=DIR.")
        found |= find_videos(here, suffixes, top, tell)
    for folder in places:
        if isinstance(folder, Path):
            continue
        is_file = "*" not in folder.url and is_video_name(PurePosixPath(folder.name), suffixes)
        listed = {folder.name: folder} if is_file else folder.below()  # the web has files, and lists nothing
        below = {PurePosixPath(name): file for name, file in listed.items()}
        videos = {name: file for name, file in below.items() if is_video_name(name, suffixes)}
        if not videos:
            raise MissingPathError(f"{folder} holds no video.", "give the address of a video or of a folder of videos.")
        if tell and (others := below.keys() - videos.keys()):
            tell(not_read(folder, others, suffixes))
        ids = ((file.relative_to(top) if top else name).with_suffix("").as_posix() for name, file in videos.items())
        for video_id, file in sorted(with_endings(zip(ids, videos.values(), strict=True)), key=lambda pair: pair[0]):
            if fault := fault_of(video_id):
                raise MissingPathError(
                    f"The video id of {file} is {fault}: {video_id!r}.", "rename it, or leave it out."
                )
            if found.setdefault(video_id, file) != file:
                raise MissingPathError(
                    f"{found[video_id]} and {file} would both be called {video_id!r}.",
                    "give their common folder as --set root=DIR, so that the ids keep the folder names.",
                )
    return found


def announced_seconds(file: RemoteFile) -> float:
    """How long a video lasts by its header, of which little more is read; 0 where that does not say."""
    with suppress(Exception):  # this is for a plan; extraction says what is wrong
        fs, path = file.system
        with fs.open(path, "rb", block_size=HEADER_BLOCK) as opened, open_container(opened) as held:
            return (held.duration or 0) / av.time_base
    return 0.0


def fetch(file: RemoteFile, folder: Path) -> tuple[Path, Stat]:
    """Bring a remote file into a folder; returns the copy and what the file was when it was brought.

    Raises VideoError where it does not exist, cannot be had whole, or finds no room.
    """
    copy = folder / file.name
    try:
        return copy, file.get(copy)
    except FileNotFoundError as error:
        raise VideoError(f"{file} is not there.", "check the address; list its folder.") from error
    except VideoError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or not has_no_room(cause):
            raise
        hint = "set TMPDIR to a folder with room for the longest video."
        raise VideoError(f"{file} finds no room in {folder.parent} ({cause.strerror}).", hint) from error


@contextmanager
def at_hand(source: Place) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A file of this machine with what a source holds, and what a record says of its origin.

    A copy goes away at the end. Raises VideoError where the source cannot be had; what names the copy names the source.
    """
    if isinstance(source, Path):
        yield source, {}
        return
    with scratch() as folder:
        copy, stat = fetch(source, folder)
        try:
            yield copy, {"source": str(source), "bytes": stat.st_size, "mtime": stat.st_mtime}
        except (VideoError, MissingPathError) as error:
            message, hint = (text.replace(str(copy), str(source)) for text in (str(error), error.hint))
            raise type(error)(message, hint) from error
