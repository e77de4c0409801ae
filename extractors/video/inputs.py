"""Find the inputs of a job: video files, folders, patterns and URLs by video id, and live sources."""

import glob
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Annotated, Any, BinaryIO, Literal
from urllib.parse import urlsplit

import av
from msgspec import Meta

from lstr.errors import MissingCameraError, MissingPathError, VideoError
from lstr.extractors.video.containers import NETWORK, open_container
from lstr.files.atomic import scratch
from lstr.files.names import fault_of
from lstr.files.remote import Place, RemoteFile, has_no_room, place

# Endings of folders that `lstr learn` writes next to videos; they contain no inputs.
OWN_FOLDERS = (".learn", ".models")
VIDEO_SUFFIXES = (
    *(".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v", ".mpg", ".mpeg", ".ts", ".3gp", ".flv", ".wmv"),
    *(".mts", ".m2ts", ".vob", ".mod", ".asf"),  # of camcorders, DVDs and recorders
)
PROXY_SUFFIX = ".lstr-proxy.mp4"  # a copy that browsers can play, next to a report
LANES_SUFFIX = ".lanes.mp4"  # a video with its detections drawn below it
# Endings of videos that lstr writes; they are skipped in folders, so that only the original videos are read.
OWN_SUFFIXES = (PROXY_SUFFIX, LANES_SUFFIX)
ENDINGS_SHOWN = 6
HEADER_BLOCK = 2**16  # bytes per request: little more than a header is read
MAX_NAME = 80  # characters of an invalid name in a message

CAMERA = re.compile(r"camera:(\d+)|/dev/video(\d+)")
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# FFmpeg analyses five seconds of a stream by default, which would delay the first frame by five seconds.
PROMPT = {"analyzeduration": "1000000"}  # microseconds
OVER_TCP = {"rtsp_transport": "tcp"}  # UDP loses frames
OPTIONS = {"rtsp": OVER_TCP, "rtsps": OVER_TCP, "udp": {"overrun_nonfatal": "1"}}

Notify = Callable[[str], object]  # A function that shows a sentence to the user.


def find_videos(
    inputs: Iterable[str | Path],
    root: str | Path | None = None,
    notify: Notify | None = None,
    known: Collection[str] = (),
) -> dict[str, Path]:
    """Find the videos of files, folders and patterns, as {video id: path}, sorted within each input.

    The id is the path without its suffix, relative to the folder, or to the part of a pattern before its first
    wildcard; for a file it is the stem. Files of one folder that differ only in their suffixes keep these in their ids.

    Args:
        inputs: Files, folders (searched recursively, following links; hidden files are ignored) and patterns.
        root: Make all ids relative to this folder.
        notify: Gets a sentence about the other files of a folder.
        known: Names of other files that `notify` does not report.

    Raises:
        MissingPathError: A path does not exist or is not in `root`, a folder or pattern contains no videos, or two
            videos have the same id.
    """
    pairs: list[tuple[str, Path]] = []
    for text in inputs:
        if not isinstance(text, str | Path) or not str(text):
            raise MissingPathError(f"{text!r} is not a path.", "check the variable or pattern that it comes from.")
        named = folder = Path(text)
        try:
            is_folder = named.is_dir()
        except OSError as error:  # for example a name that is too long
            sentence = f"{str(named)[:MAX_NAME]}… is not a valid path ({error.strerror})."
            raise MissingPathError(sentence, "name a file, a folder or a pattern.") from error
        paths: list[Path] = []
        if is_folder:
            paths = _walk(named, notify, known)
            if not paths:
                raise MissingPathError(
                    f"{named} contains no video.",
                    f"name each file; in a folder, only files that end in {', '.join(VIDEO_SUFFIXES[:5])} … are read.",
                )
        elif named.exists():
            paths, folder = [named], named.parent
        elif glob.has_magic(str(named)):
            plain = next(i for i, part in enumerate(named.parts) if glob.has_magic(part))
            folder = Path(*named.parts[:plain])
            more = () if glob.has_magic(named.suffix) else {named.suffix.lower()} - {""}  # spelled out by the user
            for match in map(Path, sorted(glob.glob(str(named), recursive=True))):
                if match.is_dir():
                    paths += _walk(match, notify, known)
                elif is_video_name(match, more) and match.is_file():
                    paths.append(match)
            if not paths:
                raise MissingPathError(f"No video matches {named}.", "check the pattern; `ls` its folder.")
        else:
            raise MissingPathError(f"{named} does not exist.", "check the path; `ls` its folder.")
        for path in paths:
            try:
                relative = Path(os.path.abspath(path)).relative_to(os.path.abspath(root or folder))
            except ValueError:
                raise MissingPathError(f"{path} is not in {root}.", "name another --set root=DIR.") from None
            pairs.append((relative.with_suffix("").as_posix(), path))
    found: dict[str, Path] = {}
    _add_videos(found, pairs)
    return found


def _add_videos(found: dict[str, Any], named: Iterable[tuple[str, Any]]) -> None:
    """Add videos by id. Raises MissingPathError for two videos with the same id.

    Suffixes are appended to ids of files of one folder that would otherwise be equal: `a.mp4` and `a.avi` become two
    videos with these ids. A link and its target keep one id.
    """
    pairs = list(dict.fromkeys(named))
    while True:  # twice for a.mp4, a.avi and a.mp4.mkv
        counts = Counter(video_id for video_id, _ in pairs)
        files: dict[tuple[str, Any], set[Any]] = {}
        for video_id, path in pairs:
            if counts[video_id] > 1:  # only for duplicates, because resolving every path is slow on a network disk
                files.setdefault((video_id, path.parent.resolve()), set()).add(path.resolve())
        longer = []
        for video_id, path in pairs:
            is_shared = counts[video_id] > 1 and len(files[video_id, path.parent.resolve()]) > 1
            longer.append((PurePath(video_id).with_name(path.name).as_posix() if is_shared else video_id, path))
        if longer == pairs:
            break
        pairs = longer
    for video_id, path in pairs:
        if (other := found.setdefault(video_id, path)) != path and other.resolve() != path.resolve():
            raise MissingPathError(
                f"{other} and {path} would both have the id {video_id!r}.",
                "name their common folder instead: ids then keep the names of its folders.",
            )


def _walk(folder: Path, notify: Notify | None, known: Collection[str]) -> list[Path]:
    """Return the videos in a folder and its subfolders, sorted; a folder that links reach twice counts once."""
    visited: set[str] = set()
    paths: list[Path] = []
    others: list[PurePath] = []
    errors: list[OSError] = []
    for at, folders, names in os.walk(folder, onerror=errors.append, followlinks=True):
        real = os.path.realpath(at)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        # sorted, so that of two links to one folder always the same one counts
        folders[:] = sorted(name for name in folders if not name.endswith(OWN_FOLDERS))
        # not the journals of `lstr label`
        for path in (Path(at, name) for name in names if name not in known and not name.endswith(".json.journal")):
            # a broken link or a pipe may be named like a video
            (paths if is_video_name(path) and path.is_file() else others).append(path)
    if notify and paths and (others or errors):
        notify(describe_skipped(folder, others, [str(error.filename) for error in errors]))
    return sorted(paths)


def describe_skipped(folder: object, others: Iterable[PurePath], unreadable: Sequence[str] = ()) -> str:
    """Return a sentence about the files of a folder that are not read as videos, and its unreadable folders."""
    endings = Counter("hidden" if p.name.startswith(".") else p.suffix.lower() or "without ending" for p in others)
    parts = [f"{number} {ending}" for ending, number in endings.most_common(ENDINGS_SHOWN)]
    if more := endings.total() - sum(number for _, number in endings.most_common(ENDINGS_SHOWN)):
        parts.append(f"{more} more")
    parts += [f"the unreadable folder {path}" for path in unreadable[:ENDINGS_SHOWN]]
    return f"{folder}: skipped {', '.join(parts)}; a named file is read with any ending."


def is_video_name(path: PurePath, more: Collection[str] = ()) -> bool:
    """Return whether a file of a folder is a video to read, judged by its name; with `more` suffixes than usual."""
    is_hidden = path.name.startswith(".")  # macOS writes a hidden file next to each video on foreign file systems
    is_video = path.suffix.lower() in (*VIDEO_SUFFIXES, *more)
    return is_video and not is_hidden and not path.name.endswith(OWN_SUFFIXES)


def find_sources(names: Iterable[str], root: str | None = None, notify: Notify | None = None) -> dict[str, Place]:
    """Find local videos like `find_videos`, and videos at URLs of files, folders and patterns, by id.

    The id of a remote video is the path without its suffix, relative to `root`, to the folder's URL, or to the part of
    a pattern before its first `*`. Arguments and errors are as for `find_videos`.
    """
    places, top = [place(name) for name in names], place(root) if root else None
    found: dict[str, Place] = {}
    if local := [path for path in places if isinstance(path, Path)]:
        if isinstance(top, RemoteFile):
            raise MissingPathError(f"{local[0]} is not in {top}.", "name their common folder: --set root=DIR.")
        found |= find_videos(local, top, notify)
    for folder in places:
        if isinstance(folder, Path):
            continue
        is_file = "*" not in folder.url and is_video_name(PurePosixPath(folder.name))
        listed = {folder.name: folder} if is_file else folder.below()  # HTTP cannot list folders
        files = {PurePosixPath(name): file for name, file in listed.items()}
        videos = {name: file for name, file in files.items() if is_video_name(name)}
        if not videos:
            raise MissingPathError(
                f"{folder} contains no video.", "use the address of a video or of a folder of videos."
            )
        if notify and (others := files.keys() - videos.keys()):
            notify(describe_skipped(folder, others))
        named = []
        for name, file in videos.items():
            video_id = (file.relative_to(top) if top else name).with_suffix("").as_posix()
            if fault := fault_of(video_id):
                raise MissingPathError(f"The video id of {file} is {fault}: {video_id!r}.", "rename the file.")
            named.append((video_id, file))
        _add_videos(found, sorted(named, key=lambda pair: pair[0]))
    return found


def announced_seconds(file: RemoteFile) -> float:
    """Return the duration of a video according to its header; 0 if unknown. Little more than the header is read."""
    with suppress(Exception):  # only for an estimate; extraction reports errors
        fs, path = file.system
        with fs.open(path, "rb", block_size=HEADER_BLOCK) as opened, open_container(opened) as container:
            return (container.duration or 0) / av.time_base
    return 0.0


@contextmanager
def local_copy(source: Place) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a local file with the content of a source, and a record of its origin.

    A downloaded copy is removed at the end. Raises VideoError if the source does not exist, the download is incomplete,
    or the disk is full; messages name the source, not the copy.
    """
    if isinstance(source, Path):
        yield source, {}
        return
    with scratch() as folder:
        copy = folder / source.name
        try:
            stat = source.get(copy)
        except FileNotFoundError as error:
            raise VideoError(f"{source} does not exist.", "check the address; list its folder.") from error
        except VideoError as error:
            cause = error.__cause__
            if not isinstance(cause, OSError) or not has_no_room(cause):
                raise
            hint = "set TMPDIR to a folder with room for the longest video."
            raise VideoError(f"{source} does not fit into {folder.parent} ({cause.strerror}).", hint) from error
        try:
            yield copy, {"source": str(source), "bytes": stat.st_size, "mtime": stat.st_mtime}
        except (VideoError, MissingPathError) as error:
            message, hint = (text.replace(str(copy), str(source)) for text in (str(error), error.hint))
            raise type(error)(message, hint) from error


@dataclass(frozen=True)
class Input:
    """A live source: `source` (a URL, a device, or a binary file) with FFmpeg's options and demuxer."""

    id: str  # A name for files, made from host and path, never from a user name or a query.
    source: str | BinaryIO = field(repr=False)
    demuxer: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    lasting: bool = True  # whether it has no end: its end is then a lost connection, and a slow reader drops chunks
    is_over: bool = False  # whether it has ended before, so that a recording at its URL was already processed
    named: bool = False  # whether the user chose the id


@dataclass(frozen=True)
class LiveOptions:
    """Options for reading a live source."""

    clock: Literal["stream", "wall"] = "stream"
    on_lag: Literal["drop", "wait"] | None = None
    """If chunks arrive faster than they are processed: `drop` the oldest, or `wait` and make the source wait. None is
    `drop` for cameras and endless streams, and `wait` for pipes and recordings."""
    timeout: Annotated[float, Meta(gt=0)] = 30.0
    """Seconds without a frame, including attempts to connect, after which the source counts as stalled."""


def parse_live(source: str | Path) -> Input | None:
    """Parse a live source as `lstr detect` accepts it; None for a path.

    Raises MissingCameraError for a camera that is not plugged in, and MissingPathError for a terminal as standard
    input and for an unknown URL scheme.
    """
    text = str(source)
    if text == "-":
        if sys.stdin.isatty():
            raise MissingPathError(
                "Standard input is empty: no video is piped in.",
                "pipe a video in: `ffmpeg -i … -f mpegts - | lstr detect -`.",
            )
        return Input("stdin", sys.stdin.buffer, options=PROMPT, lasting=False)
    if camera := CAMERA.fullmatch(text):
        device = Path(f"/dev/video{camera[1] or camera[2]}")
        if sys.platform != "linux":
            raise MissingPathError(
                "Cameras are read through Video4Linux, which only Linux has.",
                "pipe it in: `ffmpeg -f … -i … -f mpegts - | lstr detect -`.",
            )
        if not device.exists():
            present = ", ".join(sorted(map(str, device.parent.glob("video*")))) or "none"
            raise MissingCameraError(f"Camera {device} not found.", f"connect it; available: {present}.")
        return Input(f"camera-{device.name.removeprefix('video')}", str(device), demuxer="v4l2")
    if text.startswith("camera:"):
        raise MissingPathError(
            f"{text} is not a camera.", "give its number, for example camera:0; `ls /dev/video*` shows them."
        )
    address = ADDRESS.match(text)
    if not address:
        return None
    scheme = address[1].lower()
    if scheme not in NETWORK:
        known = ", ".join(f"{name}://" for name in NETWORK)
        raise MissingPathError(f"{scheme}:// is not supported.", f"name a path, a camera, or an address with {known}.")
    try:
        url = urlsplit(text)
        parts = [url.hostname or "", str(url.port or ""), *url.path.split("/")]
    except ValueError:
        parts = []
    # the id must not reveal a user name, a query or secret parts of the path
    words = [re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.") for part in parts if "=" not in part and "@" not in part]
    lasting = scheme != "tcp"  # the sender closes a bare TCP connection after the last frame
    name = "-".join(filter(None, words)) or "stream"
    return Input(name, text, options=PROMPT | OPTIONS.get(scheme, {}), lasting=lasting)
