"""Files at URLs that fsspec opens: s3://, gs://, https://, sftp:// and others.

fsspec finds credentials in the environment and the configuration of each machine. `str` of a remote file is its URL
without the credentials in it (a user, a password, a signed query).
"""

import errno
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from lstr.errors import ExtractorError, MissingPathError, OutputError, VideoError
from lstr.files.names import shown

Got = TypeVar("Got")
ATTEMPTS = 3  # of an operation, in addition to those of the file system itself
PAUSE = 2.0  # seconds before the second attempt, twice that before the third
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
# Names under which file systems state the time of a file, or an ETag, which changes with the file too.
MODIFIED = ("LastModified", "Last-Modified", "last_modified", "updated", "mtime", "modified", "created", "ETag", "etag")


class Stat(NamedTuple):
    """What distinguishes versions of a remote file; `st_mtime` is text if the server has no number."""

    st_size: int
    st_mtime: float | str | None


def is_url(text: object) -> bool:
    """Return whether this is a URL rather than a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(text)) is not None


def place(name: str | Path) -> "Place":
    """Return a path, also of a `file://` URL, or a remote file."""
    if not str(name):  # Path would take it for the current folder
        raise MissingPathError("One of the names is empty.", "check the variable or pattern that it comes from.")
    if not is_url(name):
        return Path(name)
    parts = urlsplit(str(name))
    return Path(unquote(parts.path)) if parts.scheme == "file" else RemoteFile(str(name).rstrip("/"))


@dataclass(frozen=True, repr=False)
class RemoteFile:
    """A file, or a folder of files, at an fsspec URL."""

    url: str
    """It can hold a password; use `str` for messages and records."""

    def __str__(self) -> str:
        """Return the URL without user, password and, for the web, query."""
        scheme, _, rest = self.url.partition("://")
        if scheme in PACKAGES:  # it begins with a bucket, and a key can have any characters
            bucket, slash, key = rest.partition("/")
            return f"{scheme}://{bucket.rpartition('@')[2]}{slash}{key}"
        return re.sub(r"[?#].*", "", shown(self.url)) if scheme in ("http", "https") else shown(self.url)

    __repr__ = __str__

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePosixPath(unquote(str(self)) if self.url.startswith("http") else str(self)).name

    @property
    def parent(self) -> "RemoteFile":
        """Its folder."""
        return RemoteFile(self.url.rpartition("/")[0])

    def joinpath(self, *parts: str) -> "RemoteFile":
        """Return a file below this folder."""
        return RemoteFile("/".join([self.url, *parts]))

    @property
    def system(self) -> tuple[Any, str]:
        """Its fsspec file system and the path there. Raises MissingPathError for an unsupported protocol."""
        scheme = urlsplit(self.url).scheme
        try:
            import fsspec

            return fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            package = PACKAGES.get(scheme)
            hint = f"`pip install {package}`." if package else f"{error}."
            raise MissingPathError(f"{scheme}:// addresses need a package that is not installed.", hint) from error
        except ValueError as error:
            hint = "use s3://, gs://, https://, sftp:// or another protocol of fsspec."
            raise MissingPathError(f"{scheme}:// is not a supported protocol.", hint) from error

    def relative_to(self, folder: "Place") -> PurePosixPath:
        """Return the path below a folder. Raises MissingPathError if it is elsewhere."""
        top = f"{folder.url}/" if isinstance(folder, RemoteFile) else None
        if top is None or not self.url.startswith(top):
            raise MissingPathError(f"{self} is not in {folder}.", "name their common folder: --set root=DIR.")
        return PurePosixPath(self.url.removeprefix(top))

    def resolve(self) -> "RemoteFile":
        """Return itself, as a path does."""
        return self

    def stat(self) -> Stat:
        """Return size and time, as they are now. Raises FileNotFoundError, or VideoError without an answer."""
        with self._reached(VideoError) as (fs, path):
            return with_retries(lambda: _stat(fs, path))

    def get(self, copy: Path) -> Stat:
        """Copy it to this machine; return its `stat`. Raises FileNotFoundError, or VideoError if it is not complete."""

        def download() -> Stat:
            stat = _stat(fs, path)
            fs.get_file(path, str(copy))
            if stat.st_size not in (None, copy.stat().st_size):
                raise OSError(f"{copy.stat().st_size} of {stat.st_size} bytes came")
            return stat

        with self._reached(VideoError) as (fs, path):
            return with_retries(download)

    def read(self) -> bytes | None:
        """Return its content; None if it does not exist. Raises MissingPathError if it cannot be reached."""
        with suppress(FileNotFoundError), self._reached(MissingPathError) as (fs, path):
            return with_retries(lambda: fs.cat_file(path))
        return None

    def contents(self) -> dict[str, bytes]:
        """Return the contents of the files below this folder, by relative path; files that have gone are skipped."""
        names = {file.system[1]: name for name, file in self.below().items()}
        with self._reached(MissingPathError) as (fs, _):
            contents = fs.cat(list(names), on_error="omit") if names else {}
        return {names[path]: content for path, content in contents.items()}

    def ranges(self, *spans: tuple[int, int]) -> list[bytes]:
        """Return the bytes of each (start, end). Raises FileNotFoundError, or VideoError if it cannot be read."""
        with self._reached(VideoError) as (fs, path):
            starts, ends = map(list, zip(*spans, strict=True))
            return fs.cat_ranges([path] * len(spans), starts, ends, on_error="raise")

    def write(self, content: bytes) -> None:
        """Write the whole content at once. Raises OutputError."""
        with self._reached(OutputError) as (fs, path):
            _make_parents(fs, path)
            with_retries(lambda: fs.pipe_file(path, content))

    def put(self, file: Path) -> None:
        """Copy a file of this machine to it. Raises OutputError, also if the copy is not complete."""

        def upload() -> None:
            fs.put_file(str(file), path)
            if fs.info(path)["size"] != file.stat().st_size:
                raise OSError("the copy is not complete")

        with self._reached(OutputError) as (fs, path):
            _make_parents(fs, path)
            with_retries(upload)

    def unlink(self, missing_ok: bool = True) -> None:
        """Remove it if it exists. Raises OutputError."""
        with self._reached(OutputError) as (fs, path), suppress(FileNotFoundError):
            fs.rm_file(path)

    def below(self) -> dict[str, "RemoteFile"]:
        """Return every file below this folder, or that fits its `*`, by relative path. Raises MissingPathError."""
        with suppress(FileNotFoundError), self._reached(MissingPathError) as (fs, root):
            pattern = "*" in root
            found = fs.glob(root, detail=True) if pattern else fs.find(root, detail=True)
            fs.invalidate_cache()  # otherwise fsspec answers later calls from its cache
            prefix = self.url.removesuffix(root)  # with the user and the host, which paths lack
            top = root.split("*")[0].rpartition("/")[0] if pattern else root
            files = {path: RemoteFile(prefix + path) for path, info in found.items() if info["type"] == "file"}
            return {path[len(top) :].lstrip("/") or self.name: file for path, file in files.items()}
        return {}

    @contextmanager
    def _reached(self, kind: type[ExtractorError]) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the path; raise errors of any file system as one `kind` of typed error.

        FileNotFoundError stays itself if something is to be read and is indeed missing.
        """
        try:
            yield self.system
        except ExtractorError:
            raise
        except Exception as error:
            verb = "written" if kind is OutputError else "read"
            cause: BaseException = error
            if isinstance(error, FileNotFoundError):
                if verb == "read" and _is_absent(error):
                    raise
                cause = error.__cause__ or error
            if _is_forbidden(cause):
                raise kind(
                    f"{self} may not be {verb} with the credentials here.",
                    "set them where fsspec reads them (s3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), on each node.",
                ) from cause
            # a message may hold the URL, and so its password
            detail = "" if str(self) != self.url else str(cause).strip().partition("\n")[0].rstrip(".")[:120]
            raise kind(
                f"{self} cannot be {verb} ({type(cause).__name__}{': ' if detail else ''}{detail}).",
                "check the address and the network, then run the same command again.",
            ) from cause


# Where a video or a feature folder is: here or elsewhere.
Place = Path | RemoteFile


def content_of(place: Place) -> bytes | None:
    """Return the content of a local or remote file; None if it does not exist."""
    if isinstance(place, RemoteFile):
        return place.read()
    return place.read_bytes() if place.exists() else None


def _make_parents(fs: Any, path: str) -> None:
    """Make the folders above a path; object stores have none, and some may not even look for the bucket."""
    if not any(p in PACKAGES for p in ([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol)):
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)


def _stat(fs: Any, path: str) -> Stat:
    info = fs.info(path)
    if info.get("type") == "directory":
        raise FileNotFoundError(path)
    value = next((info[key] for key in MODIFIED if info.get(key)), None)
    if isinstance(value, datetime):
        value = value.timestamp()
    return Stat(info.get("size"), value if value is None or isinstance(value, int | float) else str(value))


def with_retries(step: Callable[[], Got]) -> Got:
    """Return the result of an operation, which is repeated after a pause unless a file is absent, forbidden or full."""
    for attempt in range(1, ATTEMPTS):
        try:
            return step()
        except Exception as error:
            if isinstance(error, ExtractorError) or _is_absent(error) or _is_forbidden(error) or has_no_room(error):
                raise
            time.sleep(PAUSE * attempt)
    return step()


def _is_absent(error: Exception) -> bool:
    """Return whether a file does not exist; some file systems raise the same error without an answer of a server."""
    cause = error.__cause__
    nobody = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    return isinstance(error, FileNotFoundError) and _status(cause) in (None, 404) and not nobody


def _is_forbidden(error: BaseException) -> bool:
    status = _status(error) or _status(error.__cause__)
    return isinstance(error, PermissionError) or "Credential" in type(error).__name__ or status in (401, 403)


def has_no_room(error: BaseException | None) -> bool:
    """Return whether a local disk is full or read-only."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EROFS, errno.EDQUOT)


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status in an error of an HTTP client."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return getattr(error, "status", None) or getattr(error, "code", None)
