"""Download one file, or copy it from a mirror on disk. Interrupted downloads resume, and the hash is checked.

This uses urllib because torch.hub and pooch verify a hash but restart at zero after every interruption, and with any
other library the range to resume would have to be requested by hand as well.
"""

import http.client
import os
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from lstr import __version__
from lstr.errors import OutputError, WeightsError
from lstr.extractors.networks.weights_file import sha256_of
from lstr.files.atomic import lock

TIMEOUT_S = 30.0  # a connection without data for this long counts as interrupted
MAX_CUTS = 5  # consecutive interruptions without data before giving up
PAUSE_S = 1.0  # before the next attempt, times the number of consecutive interruptions
BLOCK = 1 << 18  # bytes
ELSEWHERE = "fetch it on another machine and copy it with --from FILE, or name a mirror with --from URL."


class Redirects(urllib.request.HTTPRedirectHandler):
    """A handler of redirects to any host, because authors store weights elsewhere, but not from HTTPS to HTTP."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """See urllib. Raises WeightsError."""
        before, after = (urlsplit(url).scheme for url in (req.full_url, newurl))
        if after not in ("http", "https") or (before, after) == ("https", "http"):
            raise WeightsError(f"{req.full_url} redirects to {after}://, which is not followed.", ELSEWHERE)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


OPENER = urllib.request.build_opener(Redirects)


def is_address(source: str) -> bool:
    """Return whether a source is a URL rather than a path."""
    return urlsplit(source).scheme in ("http", "https")


def download(source: str, target: Path, sha256_prefix: str | None, progress: Callable[[str, int, int], None]) -> str:
    """Fetch a URL or a path to `target`, and return the SHA-256 of its content.

    Data is written to `.NAME.part` next to the target, which is renamed when its hash is right. An interrupted download
    leaves this file, and the next call resumes it; without a known hash it starts over.

    Args:
        source: A URL or a path.
        target: The file to write.
        sha256_prefix: First digits of the expected SHA-256; None if it is unknown.
        progress: Is called with the file name, the bytes so far and the total; 0 if the server does not report it.

    Raises:
        WeightsError: The source is not available or is another file.
        OutputError: The folder cannot be written, or another process fetches the same file.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            if not lock(file):  # two calls must not write one file
                raise OutputError(f"{target} is being fetched by another process.", "wait until it is done.")
            resumed = file.seek(0, os.SEEK_END) > 0 and sha256_prefix is not None
            while True:
                if not resumed:
                    _empty(file)
                _gather(source, file, target.name, progress)
                sha256 = sha256_of(part)
                if not resumed or sha256.startswith(sha256_prefix or ""):
                    break
                resumed = False  # the part may belong to another file
            if sha256_prefix and not sha256.startswith(sha256_prefix):
                size = file.tell()
                part.unlink()
                raise WeightsError(
                    f"{source} is not the published {target.name}: the SHA-256 of its {size} bytes begins with "
                    f"{sha256[: len(sha256_prefix)]}, not {sha256_prefix}.",
                    "try again; if the error persists, the file was changed at the source: name a mirror with --from.",
                )
            # otherwise a power cut could leave a file of zeros under this name
            os.fsync(file.fileno())
            os.replace(part, target)
    except OSError as error:
        raise OutputError(
            f"{target.parent} cannot be written ({error.strerror or error}).",
            "name another folder in $LSTR_HOME, or free some space.",
        ) from error
    finally:
        with suppress(OSError):
            if part.stat().st_size == 0:
                part.unlink()
    return sha256


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _gather(source: str, file: BinaryIO, name: str, progress: Callable[[str, int, int], None]) -> None:
    """Append the missing bytes of the source to `file`."""
    if not is_address(source):
        _empty(file)
        try:
            with Path(source).open("rb") as original:
                shutil.copyfileobj(original, file, BLOCK)
        except OSError as error:
            if error.filename is None:  # the target failed
                raise
            message = f"{source} cannot be read ({error.strerror})."
            raise WeightsError(message, "check the path given with --from.") from error
        file.flush()
        return
    cuts = 0
    while True:
        before = file.tell()
        try:
            if _receive(source, file, name, progress):
                return
            cause: Any = "the connection was cut"
        except urllib.error.HTTPError as error:
            # another request would get the same answer, except from a busy server
            if error.code < 500 and error.code != 429:
                raise WeightsError(f"{source} answers {error.code} {error.reason}.", ELSEWHERE) from error
            cause = f"{error.code} {error.reason}"
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            cause = getattr(error, "reason", error)
        cuts = 0 if file.tell() > before else cuts + 1
        # a retry does not help for an unknown host or a wrong certificate
        if cuts == MAX_CUTS or isinstance(cause, (socket.gaierror, ssl.SSLCertVerificationError)):
            reason, have = str(cause) or type(cause).__name__, file.tell()
            kept = f" {have} bytes are kept; the same command resumes there." if have else ""
            message = f"{urlsplit(source).netloc} cannot be reached ({reason}).{kept}"
            raise WeightsError(message, f"check the network; or {ELSEWHERE}")
        time.sleep(PAUSE_S * cuts)


def _receive(source: str, file: BinaryIO, name: str, progress: Callable[[str, int, int], None]) -> bool:
    """Make one request for the missing bytes; return whether the file then has the size that the server reports."""
    have = file.tell()
    request = urllib.request.Request(source, headers={"User-Agent": f"lstr/{__version__}"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = OPENER.open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return True
        _empty(file)  # longer than the source, so it is part of another file
        return False
    with answer:
        if answer.headers.get_content_type() == "text/html":
            raise WeightsError(f"{source} answers with a web page, not with a file.", ELSEWHERE)
        if have and not (answer.headers.get("Content-Range") or "").startswith(f"bytes {have}-"):
            _empty(file)  # the server does not support ranges and sends the whole file
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else 0
        while True:
            try:
                block = answer.read(BLOCK)
            except OSError as error:  # distinguish network errors from disk errors
                raise ConnectionError(str(error)) from error
            if not block:
                break
            file.write(block)
            progress(name, file.tell(), total)
        file.flush()
    return not total or file.tell() == total
