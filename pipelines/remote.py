"""Files wherever fsspec reaches: s3://, gs://, https://, sftp:// and the rest, brought to this machine one at a time.

Credentials are fsspec's business: it finds them in the environment and the configuration of each machine. What a URL
itself holds of them (a user, a password, a signed query) never leaves it: `str` of a remote file is its name without.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from extractors.errors import ExtractorError, MissingPathError, OutputError, VideoError
from extractors.video import find_videos, is_video

ATTEMPTS = 3  # to bring a file, beside what its file system tries by itself
PAUSE = 1.0  # seconds before the second attempt, twice that before the third
SCRATCH = "lstr-scratch-"
SCRATCH_SECONDS = 60  # an unlocked scratch folder that is older was left by a killed process
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
MODIFIED = ("LastModified", "Last-Modified", "last_modified", "updated", "mtime", "modified", "created", "ETag", "etag")
"""Where file systems tell when a file was written, or an ETag, which changes with the file too."""


class Stat(NamedTuple):
    """What tells a remote file from a later one of its name; `st_mtime` is text where the server tells no number."""

    st_size: int
    st_mtime: float | str | None


def is_url(text: object) -> bool:
    """Whether this names something elsewhere rather than a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(text)) is not None


def place(given: str | Path) -> "Path | RemoteFile":
    """A path, also of a `file://` URL, or a remote file."""
    if not is_url(given):
        return Path(given)
    parts = urlsplit(str(given))
    return Path(unquote(parts.path)) if parts.scheme == "file" else RemoteFile(str(given).rstrip("/"))


@dataclass(frozen=True, repr=False)
class RemoteFile:
    """A file, or a folder of files, at an fsspec URL."""

    url: str
    """It may hold a password; `str` is for people and records."""

    @property
    def shown(self) -> str:
        """The URL without user, password and, where it is the web's, query."""
        parts = urlsplit(self.url)
        parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        return (parts._replace(query="", fragment="") if parts.scheme in ("http", "https") else parts).geturl()

    def __str__(self) -> str:
        return self.shown

    __repr__ = __str__

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(unquote(self.shown) if self.url.startswith("http") else self.shown).name

    def joined(self, *parts: str) -> "RemoteFile":
        """A file below this folder."""
        return RemoteFile("/".join([self.url, *parts]))

    @property
    def system(self):
        """The fsspec file system and the path in it. Raises MissingPathError where there is none for this URL."""
        import fsspec

        scheme = urlsplit(self.url).scheme
        try:
            return fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            package = PACKAGES.get(scheme)
            hint = f"`pip install {package}`, or `pip install 'lstr[ray]'`." if package else f"{error}."
            raise MissingPathError(f"{scheme}:// addresses need a package that is not installed.", hint) from error
        except ValueError as error:
            known = ", ".join(("s3://", "gs://", "https://", "sftp://"))
            raise MissingPathError(f"{scheme}:// is no known kind of address.", f"known are {known} …") from error

    def resolve(self) -> "RemoteFile":
        """Itself, as a path does it."""
        return self

    def stat(self) -> Stat:
        """Size and time, asked for now. Raises FileNotFoundError, or VideoError where it cannot be asked for."""
        with reaching(self, VideoError):
            fs, path = self.system
            info = fs.info(path)
            if info.get("type") == "directory":
                raise FileNotFoundError(path)
        return Stat(info.get("size"), _modified(info))

    def read(self) -> bytes | None:
        """What it holds; None where it is not there. Raises MissingPathError where it cannot be reached."""
        with suppress(FileNotFoundError), reaching(self, MissingPathError):
            fs, path = self.system
            return fs.cat_file(path)
        return None

    def contents(self) -> dict[str, bytes]:
        """What the files below this folder hold, by relative path; those that have gone meanwhile are left out."""
        found = self.below()
        with reaching(self, MissingPathError):
            fs, _ = self.system
            names = {file.system[1]: name for name, file in found.items()}
            held = fs.cat(list(names), on_error="omit") if names else {}
        return {names[path]: content for path, content in held.items()}

    def ranges(self, *spans: tuple[int, int]) -> list[bytes]:
        """The bytes of each (start, end). Raises OSError where not all can be had."""
        fs, path = self.system
        starts, ends = map(list, zip(*spans, strict=True))
        return fs.cat_ranges([path] * len(spans), starts, ends, on_error="raise")

    def write(self, content: bytes) -> None:
        """Put all of it there. Raises OutputError."""
        with reaching(self, OutputError):
            fs, path = self.system
            _make_parents(fs, path)
            fs.pipe_file(path, content)

    def put(self, file: Path) -> None:
        """Copy a file of this machine there. Raises OutputError, also where not all of it arrived."""
        with reaching(self, OutputError):
            fs, path = self.system
            _make_parents(fs, path)
            fs.put_file(str(file), path)
            if fs.info(path)["size"] != file.stat().st_size:
                raise OSError("not all of it arrived")

    def remove(self) -> None:
        """Remove it where it is there. Raises OutputError."""
        with reaching(self, OutputError), suppress(FileNotFoundError):
            fs, path = self.system
            fs.rm_file(path)

    def below(self) -> dict[str, "RemoteFile"]:
        """Every file below this folder, or that fits its `*`, by path relative to it. Raises MissingPathError."""
        with suppress(FileNotFoundError), reaching(self, MissingPathError):
            fs, root = self.system
            pattern = "*" in root
            found = fs.glob(root, detail=True) if pattern else fs.find(root, detail=True)
            fs.invalidate_cache()  # what is asked for later is to be asked for then
            prefix = self.url.removesuffix(root)  # with the user and the host, which paths lack
            top = root.split("*")[0].rpartition("/")[0] if pattern else root
            files = {path: RemoteFile(prefix + path) for path, info in found.items() if info["type"] == "file"}
            return {path[len(top) :].lstrip("/") or self.name: file for path, file in files.items()}
        return {}


Source = Path | RemoteFile
"""Where a video or a feature folder is: here or elsewhere."""


def _make_parents(fs, path: str) -> None:
    """Object stores have no folders to make, and some may not even look for the bucket."""
    if not any(p in PACKAGES for p in ([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol)):
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)


def _modified(info: dict) -> float | str | None:
    value = next((info[key] for key in MODIFIED if info.get(key)), None)
    if isinstance(value, datetime):
        return value.timestamp()
    return value if value is None or isinstance(value, int | float) else str(value)


@contextmanager
def reaching(file: RemoteFile, kind: type[ExtractorError]) -> Iterator[None]:
    """What file systems raise, one class each, as one `kind` of typed error.

    FileNotFoundError stays itself where something was to be read, and is true.
    """
    try:
        yield
    except ExtractorError:
        raise
    except Exception as error:
        verb = "written" if kind is OutputError else "read"
        cause = error
        if isinstance(error, FileNotFoundError):
            if verb == "read" and _status(error.__cause__) in (None, 404) and not _is_network(error.__cause__):
                raise
            cause = error.__cause__ or error
        if isinstance(cause, PermissionError) or "Credential" in type(cause).__name__ or _status(cause) in (401, 403):
            raise kind(
                f"{file} may not be {verb} with the credentials here.",
                "set them where fsspec looks for them (s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), on each node.",
            ) from cause
        # a message may hold the URL, and so its password
        detail = "" if str(file) != file.url else str(cause).strip().partition("\n")[0].rstrip(".")[:120]
        raise kind(
            f"{file} cannot be {verb} ({type(cause).__name__}{': ' if detail else ''}{detail}).",
            "check the address and the network, then run the same command again.",
        ) from cause


def _is_network(error: BaseException | None) -> bool:
    """Whether fsspec calls a file absent though nobody answered that could know."""
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError)


def _status(error: BaseException | None) -> int | None:
    """The HTTP status that an error of an HTTP client carries."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return getattr(error, "status", None) or getattr(error, "code", None)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder below $TMPDIR that goes away; those of killed processes go away first."""
    top = Path(tempfile.gettempdir())
    for left in top.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > SCRATCH_SECONDS and _unlocked(left):
                shutil.rmtree(left, ignore_errors=True)
    try:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=top))
    except OSError as error:
        raise VideoError(f"{top} cannot be written ({error.strerror}).", "set TMPDIR to a folder with room.") from error
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems know no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _unlocked(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def fetch(file: RemoteFile, folder: Path) -> tuple[Path, Stat]:
    """Bring a remote file into a folder; returns the copy and what the file was when it was brought.

    Raises VideoError where it is not there, cannot be had, comes short in every attempt, or finds no room.
    """
    copy = folder / file.name
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE * attempt)
        try:
            stat = file.stat()
            with reaching(file, VideoError):
                fs, path = file.system
                fs.get_file(path, str(copy))
        except FileNotFoundError as error:
            raise VideoError(f"{file} is not there.", "check the address; list its folder.") from error
        except VideoError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in (28, 30, 122):  # no space, read-only, quota
                raise VideoError(
                    f"{file} finds no room in {folder.parent} ({cause.strerror}).",
                    "set TMPDIR to a folder with room for the longest video.",
                ) from error
            if attempt + 1 == ATTEMPTS or isinstance(cause, PermissionError) or _status(cause) in (401, 403):
                raise
            continue
        if stat.st_size in (None, copy.stat().st_size):
            return copy, stat
    raise VideoError(f"{file} came short: {copy.stat().st_size} of {stat.st_size} bytes.", "run the command again.")


@contextmanager
def at_hand(source: Source) -> Iterator[tuple[Path, dict]]:
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
            told = (text.replace(str(copy), str(source)) for text in (str(error), error.hint))
            raise type(error)(*told) from error


def find_sources(given: Iterable[str]) -> dict[str, Source]:
    """Videos here, as `find_videos`, and at URLs of files and folders, which may hold `*`, by id.

    Raises MissingPathError where a URL holds none, or two videos have one id.
    """
    given = [place(one) for one in given]
    here = [one for one in given if isinstance(one, Path)]
    found: dict[str, Source] = dict(find_videos(here)) if here else {}
    for folder in given:
        if isinstance(folder, Path):
            continue
        videos = {name: file for name, file in folder.below().items() if is_video(name)}
        if not videos:
            raise MissingPathError(f"{folder} holds no video.", "give the address of a video or of a folder of videos.")
        for name, file in sorted(videos.items()):
            video_id = PurePosixPath(name).with_suffix("").as_posix()
            if found.setdefault(video_id, file) != file:
                raise MissingPathError(
                    f"{found[video_id]} and {file} would both be called {video_id!r}.",
                    "give their common folder instead, so that the ids keep the folder names.",
                )
    return found
