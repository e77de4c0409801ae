"""A webhook: each notice is posted as signed JSON."""

import base64
import hashlib
import hmac
import http.client
import os
import socket
import ssl
import threading
from contextlib import suppress
from datetime import datetime
from urllib.parse import SplitResult, quote, unquote, urlsplit

import lstr
from lstr.errors import ConfigError, DeliveryError
from lstr.pipelines.watching.config import Secret, Table
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.notifications import Notifier, message_bytes

TIMEOUT_S = 10.0  # to connect, and then for all of the answer
UNSAFE = {*map(chr, range(33)), "\x7f"}


class WebhookConfig(Table, frozen=True):
    """An address that takes JSON by POST."""

    url: Secret
    secret: Secret = Secret("")
    """The key of the signature."""


class WebhookNotifier(Notifier):
    """Posts notices to an http or https address; redirects are not followed. Raises ConfigError.

    Headers: `X-Lstr-Id`, the same at every attempt; `X-Lstr-Timestamp`, seconds since 1970 of this attempt; and with a
    secret `X-Lstr-Signature`: `sha256=` and the HMAC-SHA256 of the time stamp, a dot and the body. A notice has arrived
    when the answer is 2xx. No message contains the address.
    """

    Config = WebhookConfig

    def __init__(self, name: str, config: WebhookConfig):
        super().__init__(name, config)
        self._address = parse_address(config.url)
        path = quote(self._address.path or "/", safe="/%:@!$&'()*+,;=~")
        query = quote(self._address.query, safe="/%:@!$&'()*+,;=~?")
        self._path = f"{path}?{query}" if query else path
        self._connection: http.client.HTTPConnection | None = None
        self._closing = False

    def send(self, notice: Notice, now: datetime) -> None:
        """Post a notice."""
        body, stamp = message_bytes(notice, now), str(int(now.timestamp()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"lstr/{lstr.__version__}",
            "X-Lstr-Id": notice.key,
            "X-Lstr-Timestamp": stamp,
        }
        if self.config.secret:
            signature = hmac.new(self.config.secret.encode(), stamp.encode() + b"." + body, hashlib.sha256)
            headers["X-Lstr-Signature"] = f"sha256={signature.hexdigest()}"
        if self._address.username:
            user = f"{unquote(self._address.username)}:{unquote(self._address.password or '')}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(user).decode()}"
        try:
            status = self._post(body, headers)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise DeliveryError(_describe(error)) from None
        if 300 <= status < 400:
            raise DeliveryError(f"it answered {status}, and redirects are not followed.")
        if not 200 <= status < 300:
            raise DeliveryError(f"it answered {status}.")

    def _post(self, body: bytes, headers: dict[str, str]) -> int:
        """Return the status of the answer."""
        host, port = self._address.hostname or "", self._address.port
        connection: http.client.HTTPConnection
        if self._address.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        self._connection = connection
        # a timer, because the time limit of a socket is one for each piece, and an answer may come byte by byte
        timer = threading.Timer(TIMEOUT_S, self._break_off)
        timer.daemon = True
        try:
            connection.connect()
            timer.start()
            if self._closing:
                raise TimeoutError
            connection.request("POST", self._path, body, headers)
            return connection.getresponse().status
        finally:
            timer.cancel()
            self._connection = None
            connection.close()

    def abort(self) -> None:
        """Break off a request in another thread."""
        self._closing = True
        self._break_off()

    def _break_off(self) -> None:
        connection = self._connection
        with suppress(OSError, AttributeError):  # not connected yet, or no longer
            connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


def parse_address(url: str) -> SplitResult:
    """Return the parts of an http or https address. Raises ConfigError, which does not contain it."""
    hint = "give an address such as https://host/path as its url."
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  it raises for an invalid port
    except ValueError:
        raise ConfigError("its address cannot be parsed.", hint) from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError("its address begins with neither http:// nor https://.", hint)
    if not parts.hostname or UNSAFE & {*url}:
        raise ConfigError("its address has no host, or contains a space.", hint)
    return parts


def _describe(error: Exception) -> str:
    """Return what went wrong without the text of the error, which may contain a part of the address."""
    if isinstance(error, TimeoutError):
        return f"it did not answer within {TIMEOUT_S:g} s."
    if isinstance(error, ssl.SSLError):
        return "its certificate or its TLS is not accepted."
    if isinstance(error, socket.gaierror):
        return "its host was not found."
    if isinstance(error, OSError) and error.errno:
        return f"it cannot be reached ({os.strerror(error.errno)})."
    return "its answer was cut off, is not HTTP, or came too slowly."
