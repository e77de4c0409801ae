"""A webhook: each notice is posted as JSON, signed, to an address that no message ever names."""

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
from time import monotonic
from urllib.parse import SplitResult, quote, unquote, urlsplit

import lstr
from lstr.errors import ConfigError, DeliveryError
from lstr.pipelines.watching.channel import Channel, message_bytes, notice_id
from lstr.pipelines.watching.config import WebhookConfig
from lstr.pipelines.watching.history import Notice

# Within which an address has answered.
SECONDS = 10.0
# Seconds between two looks at how long it takes.
TICK = 0.5
ID, TIMESTAMP, SIGNATURE = "X-Lstr-Id", "X-Lstr-Timestamp", "X-Lstr-Signature"
UNSAFE = {*map(chr, range(33)), "\x7f"}


class Webhook(Channel):
    """Posts notices to an http or https address; redirects are followed nowhere. Raises ConfigError.

    Headers: `X-Lstr-Id`, the same at every try of a notice, to drop doubles by; `X-Lstr-Timestamp`, seconds since 1970
    of this try; and with a secret `X-Lstr-Signature`, as `sign` makes it. A notice has arrived when the answer is 2xx.
    """

    def __init__(self, name: str, config: WebhookConfig):
        super().__init__(name)
        self._address = parse_address(name, config.url)
        path = quote(self._address.path or "/", safe="/%:@!$&'()*+,;=~")
        query = quote(self._address.query, safe="/%:@!$&'()*+,;=~?")
        self._path = f"{path}?{query}" if query else path
        self._secret = config.secret
        self._connection: http.client.HTTPConnection | None = None
        self._closing = False

    def tell(self, notice: Notice, now: datetime) -> None:
        body = message_bytes(notice, now)
        stamp = str(int(now.timestamp()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"lstr/{lstr.__version__}",
            ID: notice_id(notice),
            TIMESTAMP: stamp,
        }
        if self._secret:
            headers[SIGNATURE] = sign(self._secret, stamp, body)
        if self._address.username:
            both = f"{unquote(self._address.username)}:{unquote(self._address.password or '')}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(both).decode()}"
        status = self._post(body, headers)
        if 300 <= status < 400:
            raise DeliveryError(f"it answered {status}, and a redirect is not followed.")
        if not 200 <= status < 300:
            raise DeliveryError(f"it answered {status}.")

    def _post(self, body: bytes, headers: dict[str, str]) -> int:
        """Return the status of the answer. Raises DeliveryError if none comes within SECONDS."""
        host, port = self._address.hostname or "", self._address.port
        connection: http.client.HTTPConnection
        if self._address.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        self._connection = connection
        done = threading.Event()
        threading.Thread(target=self._watch, args=(done,), daemon=True).start()
        try:
            connection.request("POST", self._path, body, headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise DeliveryError(_reason(error)) from None  # the error may name the address
        finally:
            done.set()
            self._connection = None
            connection.close()

    def _watch(self, done: threading.Event) -> None:
        """Break off a request that takes longer than SECONDS: the time limit of a socket is one for each piece."""
        until = monotonic() + SECONDS
        while not done.wait(TICK):
            if self._closing or monotonic() > until:
                self._break_off()

    def abort(self) -> None:
        self._closing = True
        self._break_off()

    def _break_off(self) -> None:
        connection = self._connection
        with suppress(OSError, AttributeError):  # not connected yet, or no more
            connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


def parse_address(name: str, url: str) -> SplitResult:
    """Return the parts of the http or https address of a webhook. Raises ConfigError."""
    hint = "give an address such as https://host/path as its url."
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  it raises for an invalid port
    except ValueError:
        raise ConfigError(f"The webhook {name} has an address that cannot be read.", hint) from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"The webhook {name} has an address that begins with neither http:// nor https://.", hint)
    if not parts.hostname or UNSAFE & {*url}:
        raise ConfigError(f"The webhook {name} has an address without a host, or with a blank in it.", hint)
    return parts


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return `sha256=` and the HMAC-SHA256, in hexadecimal, of the time stamp, a dot and the body."""
    return f"sha256={hmac.new(secret.encode(), timestamp.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def _reason(error: Exception) -> str:
    """Say what went wrong without any text of the error, which may hold a part of the address."""
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
