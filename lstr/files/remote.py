"""Files at URLs that fsspec supports: s3://, gs://, https://, sftp:// and others.

fsspec reads credentials from the environment and its configuration. `str` of a remote file is its URL without
credentials (user, password, signed query).
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
ATTEMPTS = 3  # per operation, in addition to retries inside the file system
PAUSE = 2.0  # seconds before the second attempt; doubled before the third
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
# Keys for the modification time in different file systems; an ETag also changes with the file.
MODIFIED = ("LastModified", "Last-Modified", "last_modified", "updated", "mtime", "modified", "created", "ETag", "etag")


class Stat(NamedTuple):
    """Size and time of a remote file, to detect changes; `st_mtime` is text if the server reports no number."""

    st_size: int
    st_mtime: float | str | None


def place(name: str | Path) -> "Place":
    """Return a local path, also for a `file://` URL, or a remote file."""
    if not str(name):  # Path("") is the current folder
        raise MissingPathError("One of the names is empty.", "check the variable or pattern that it comes from.")
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(name)):
        return Path(name)
    parts = urlsplit(str(name))
    return Path(unquote(parts.path)) if parts.scheme == "file" else RemoteFile(str(name).rstrip("/"))


@dataclass(frozen=True, repr=False)
class RemoteFile:
    """A file, or a folder of files, at an fsspec URL."""

    url: str  # the full URL; it may contain a password, so use `str` for messages and records

    def __str__(self) -> str:
        """Return the URL without user, password and, for HTTP, query."""
        scheme, _, rest = self.url.partition("://")
        if scheme in PACKAGES:  # it begins with a bucket, and keys may contain any characters
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
        """The folder that contains it."""
        return RemoteFile(self.url.rpartition("/")[0])

    def joinpath(self, *parts: str) -> "RemoteFile":
        """Return a file in this folder."""
        return RemoteFile("/".join([self.url, *parts]))

    @property
    def system(self) -> tuple[Any, str]:
        """Its fsspec file system, and the path in it. Raises MissingPathError for an unsupported protocol."""
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
        """Return the path relative to a folder. Raises MissingPathError if the file is not in it."""
        top = f"{folder.url}/" if isinstance(folder, RemoteFile) else None
        if top is None or not self.url.startswith(top):
            raise MissingPathError(f"{self} is not in {folder}.", "name their common folder: --set root=DIR.")
        return PurePosixPath(self.url.removeprefix(top))

    def resolve(self) -> "RemoteFile":
        """Return itself, for compatibility with Path."""
        return self

    def stat(self) -> Stat:
        """Return the current size and time. Raises FileNotFoundError, or VideoError if the server does not answer."""
        with self._reached(VideoError) as (fs, path):
            return with_retries(lambda: _stat(fs, path))

    def get(self, copy: Path) -> Stat:
        """Download it; return its `stat`. Raises FileNotFoundError, or VideoError if the copy is incomplete."""

        def download() -> Stat:
            stat = _stat(fs, path)
            fs.get_file(path, str(copy))
            if stat.st_size not in (None, copy.stat().st_size):
                raise OSError(f"received {copy.stat().st_size} of {stat.st_size} bytes")
            return stat

        with self._reached(VideoError) as (fs, path):
            return with_retries(download)

    def read(self) -> bytes | None:
        """Return its content; None if it does not exist. Raises MissingPathError if it cannot be reached."""
        with suppress(FileNotFoundError), self._reached(MissingPathError) as (fs, path):
            return with_retries(lambda: fs.cat_file(path))
        return None

    def contents(self) -> dict[str, bytes]:
        """Return the contents of the files in this folder, by relative path; files that were deleted are skipped."""
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
        """Replace the content. Raises OutputError."""
        with self._reached(OutputError) as (fs, path):
            _make_parents(fs, path)
            with_retries(lambda: fs.pipe_file(path, content))

    def put(self, file: Path) -> None:
        """Upload a local file. Raises OutputError, also if the copy is incomplete."""

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
        """Return every file in this folder, or that matches its `*`, by relative path. Raises MissingPathError."""
        with suppress(FileNotFoundError), self._reached(MissingPathError) as (fs, root):
            pattern = "*" in root
            found = fs.glob(root, detail=True) if pattern else fs.find(root, detail=True)
            fs.invalidate_cache()  # otherwise fsspec would not see new files
            prefix = self.url.removesuffix(root)  # scheme, user and host, which fsspec's paths lack
            top = root.split("*")[0].rpartition("/")[0] if pattern else root
            files = {path: RemoteFile(prefix + path) for path, info in found.items() if info["type"] == "file"}
            return {path[len(top) :].lstrip("/") or self.name: file for path, file in files.items()}
        return {}

    @contextmanager
    def _reached(self, kind: type[ExtractorError]) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the path; convert the errors of all file systems to `kind`.

        FileNotFoundError is passed on if a file to read is really missing.
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
                    f"{self} cannot be {verb} with the available credentials.",
                    "set the credentials on each node (s3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).",
                ) from cause
            # a message may contain the URL with its password
            detail = "" if str(self) != self.url else str(cause).strip().partition("\n")[0].rstrip(".")[:120]
            raise kind(
                f"{self} cannot be {verb} ({type(cause).__name__}{': ' if detail else ''}{detail}).",
                "check the address and the network, then run the same command again.",
            ) from cause


Place = Path | RemoteFile  # a local path or a remote file


def content_of(place: Place) -> bytes | None:
    """Return the content of a local or remote file; None if it does not exist."""
    if isinstance(place, RemoteFile):
        return place.read()
    return place.read_bytes() if place.exists() else None


def _make_parents(fs: Any, path: str) -> None:
    """Create the parent folders of a path; object stores have none, and listing the bucket may be forbidden."""
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
    """Return the result of an operation; retry it, unless a file is missing or forbidden or the disk is full."""
    for attempt in range(1, ATTEMPTS):
        try:
            return step()
        except Exception as error:
            if isinstance(error, ExtractorError) or _is_absent(error) or _is_forbidden(error) or has_no_room(error):
                raise
            time.sleep(PAUSE * attempt)
    return step()


def _is_absent(error: Exception) -> bool:
    """Return whether a file does not exist; some file systems raise the same error if a server is unreachable."""
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
    """Return the HTTP status code in an error of an HTTP client."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return getattr(error, "status", None) or getattr(error, "code", None)
