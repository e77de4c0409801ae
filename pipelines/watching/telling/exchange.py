"""A request over HTTP and its answer, all of it within seconds, to an address that no message ever names."""

import http.client
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from urllib.parse import SplitResult, urlsplit

from lstr.pipelines.watching.telling.channel import ChannelError, UntoldError

SECONDS = 10.0
"""Within which an address has answered."""
TICK = 0.5
"""Seconds between two looks at how long it takes."""
UNSAFE = {*map(chr, range(33)), "\x7f"}


@dataclass(frozen=True)
class Answer:
    """What came back; no redirect is followed."""

    status: int
    headers: Mapping[str, str]
    """By names in small letters."""
    cookies: tuple[str, ...]
    """Each is `name=value`."""
    body: bytes | None
    """None where it broke off, or is larger than what was to be read of it."""


class Exchange:
    """Requests to one host, by one thread; `abort` may be called from another one.

    address: http or https. context: whose certificates are trusted; None trusts those that this machine does.
    most: bytes that are read of an answer.
    """

    def __init__(self, address: SplitResult, most: int, context: ssl.SSLContext | None = None):
        self._address, self._most, self._context = address, most, context
        self._connection: http.client.HTTPConnection | None = None
        self._closing = False

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """The answer, however slowly it comes. Raises UntoldError where there is none within SECONDS."""
        host, port = self._address.hostname or "", self._address.port
        connection: http.client.HTTPConnection
        if self._address.scheme == "https":
            context = self._context or ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        self._connection = connection
        done = threading.Event()
        threading.Thread(target=self._watch, args=(done,), daemon=True).start()
        try:
            connection.request(method, path, body, dict(headers))
            return self._read(connection.getresponse())
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise UntoldError(_reason(error)) from None  # the error may name the address
        finally:
            done.set()
            self._connection = None
            connection.close()

    def _read(self, answer: http.client.HTTPResponse) -> Answer:
        body: bytes | None = None
        with suppress(OSError, http.client.HTTPException):  # its status may be all that is needed
            body = answer.read(self._most)
            body = None if answer.read(1) else body
        cookies = tuple(text.partition(";")[0].strip() for text in answer.headers.get_all("set-cookie") or ())
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, cookies, body)

    def _watch(self, done: threading.Event) -> None:
        """Break off what takes longer than SECONDS: the limit of a socket is one of each piece."""
        until = monotonic() + SECONDS
        while not done.wait(TICK):
            if self._closing or monotonic() > until:
                self._break_off()

    def abort(self) -> None:
        """Let what is asked now fail, and all that is asked later."""
        self._closing = True
        self._break_off()

    def _break_off(self) -> None:
        connection = self._connection
        with suppress(OSError, AttributeError):  # it is not connected yet, or no more
            connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


def parse_address(called: str, url: str) -> SplitResult:
    """The parts of an http or https address. Raises ChannelError, which calls whose it is so, as `The webhook door`."""
    hint = "give an address such as https://host/path as its url."
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  it raises for what is no port
    except ValueError:
        raise ChannelError(f"{called} has an address that cannot be read.", hint) from None
    if parts.scheme not in ("http", "https"):
        raise ChannelError(f"{called} has an address that begins with neither http:// nor https://.", hint)
    if not parts.hostname or UNSAFE & {*url}:
        raise ChannelError(f"{called} has an address without a host, or with a blank in it.", hint)
    return parts


def _reason(error: Exception) -> str:
    """What went wrong without any text of the error, which may hold a part of the address."""
    if isinstance(error, TimeoutError):
        return f"it did not answer within {SECONDS:g} s."
    if isinstance(error, ssl.SSLError):
        return "its certificate or its TLS is not accepted."
    if isinstance(error, socket.gaierror):
        return "its host is not found."
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens at its address."
    if isinstance(error, OSError) and error.errno and not isinstance(error, http.client.HTTPException):
        return f"it cannot be reached ({os.strerror(error.errno)})."
    return "its answer broke off, is no HTTP, or came too slowly."
