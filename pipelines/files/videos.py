"""Videos elsewhere: found, looked into, and brought to this machine one at a time."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import av

from lstr.errors import MissingPathError, VideoError
from lstr.extractors.video.containers import open_container
from lstr.extractors.video.inputs import VIDEO_SUFFIXES, Tell, find_videos, is_video_name, not_read, with_endings
from lstr.labels.video_ids import fault_of
from lstr.pipelines.files.atomic import scratch
from lstr.pipelines.files.remote import Place, RemoteFile, Stat, has_no_room, place

HEADER_BLOCK = 2**16  # bytes requested at a time, to read little more than a header


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
