"""Channels that announce events: Apprise (phones, chats and mail), a program, and a webhook."""

import base64
import hashlib
import hmac
import http.client
import logging
import os
import signal
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from datetime import datetime, timedelta
from shutil import which
from tempfile import TemporaryFile
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlsplit

from msgspec import Meta

import lstr
from lstr.errors import ConfigError, DeliveryError, install_hint
from lstr.pipelines.watching.config import Secret, Table
from lstr.pipelines.watching.event import title
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.notifications import Notifier, describe, message_bytes

IMAGE_TIMEOUT_S = 5.0  # that Apprise waits for the image of an event
FRESH = timedelta(seconds=15)  # after that no image comes any more
TICK_S = 0.1
PROGRAM_TIMEOUT_S = 30.0
WEBHOOK_TIMEOUT_S = 10.0  # to connect, and then for all of the answer
UNSAFE = {*map(chr, range(33)), "\x7f"}
# Why a request of a webhook failed
REASONS = (
    (TimeoutError, f"it did not answer within {WEBHOOK_TIMEOUT_S:g} s."),
    (ssl.SSLError, "its TLS certificate or TLS version was rejected."),
    (socket.gaierror, "its host was not found."),
)
CUT_OFF = "its answer was cut off, is not HTTP, or came too slowly."

Word = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]


class AppriseNotifier(Notifier):
    """Sends a sentence with the image of the event, or without it if that takes too long. Raises ConfigError."""

    class Config(Table, frozen=True):
        """An address of Apprise."""

        url: Secret

    sends_ends = False  # a sent message cannot be changed

    def __init__(self, name: str, config: Config):
        super().__init__(name, config)
        try:
            import apprise
        except ImportError:
            raise ConfigError("This channel needs Apprise, which is not installed.", install_hint("watch")) from None
        for logger in ("apprise", "urllib3"):  # both log addresses with their tokens
            logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
        asset = apprise.AppriseAsset()
        # a redirect would take the token to another host; earlier versions follow all
        if hasattr(asset, "http_redirects"):
            asset.http_redirects = False
        self._apprise: Any = apprise.Apprise(asset=asset)
        if not self._apprise.add(config.url):
            hint = "see the services: https://github.com/caronc/apprise/wiki."
            raise ConfigError("Apprise does not support the address of this channel.", hint)

    def send(self, notice: Notice, now: datetime) -> None:
        """Send a notice."""
        from apprise.attachment.file import AttachFile

        image, find = None, self.service and self.service.find_image
        if find:
            ticks = int(IMAGE_TIMEOUT_S / TICK_S) if now - notice.event.decided < FRESH else 0
            while not (image := find(notice.event.id)) and ticks:
                ticks -= 1
                if self.aborted.wait(TICK_S):
                    raise DeliveryError("the service is ending.")
        attached = AttachFile(str(image)) if image else None
        try:
            arrived = self._apprise.notify(body=describe(notice, now), title=title(notice.event), attach=attached)
        except Exception as error:  # the error of a plug-in may contain its address
            raise DeliveryError(f"Apprise raised {type(error).__name__}.") from None
        if not arrived:
            raise DeliveryError("Apprise could not deliver the message.")


class CommandNotifier(Notifier):
    """Starts a program, never by a shell.

    A notice has arrived when the program ends with exit code 0; after PROGRAM_TIMEOUT_S it is killed with its children.
    Its output is thrown away, because it may contain secrets.
    """

    class Config(Table, frozen=True):
        """A program and its arguments."""

        command: Annotated[tuple[Word, ...], Meta(min_length=1)]

    def __init__(self, name: str, config: Config):
        super().__init__(name, config)
        self._process: subprocess.Popen[bytes] | None = None

    def check(self) -> None:
        """Raise ConfigError if the program does not exist."""
        if which(self.config.command[0]) is None:
            raise ConfigError(f"program not found: {self.config.command[0]}.", "install it, or correct `command`.")

    def send(self, notice: Notice, now: datetime) -> None:
        """Start the program and wait for it."""
        try:
            # a file, not a pipe: if this process is killed, the program still has all of it
            with TemporaryFile() as body:
                body.write(message_bytes(notice, now))
                body.seek(0)
                # a process group: Ctrl-C in a terminal does not end it, and a kill ends its children too
                process = subprocess.Popen(
                    self.config.command,
                    stdin=body,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    process_group=0,
                )
        except OSError as error:
            raise DeliveryError(f"its program cannot be started ({os.strerror(error.errno or 0)}).") from None
        self._process = process
        try:
            if self.aborted.is_set():
                raise DeliveryError("the service is ending.")
            process.wait(PROGRAM_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise DeliveryError(f"its program ran for more than {PROGRAM_TIMEOUT_S:g} s and was killed.") from None
        finally:
            if process.poll() is None:
                _kill(process)
                process.wait()
            self._process = None
        if process.returncode:
            raise DeliveryError(f"its program ended with exit code {process.returncode}.")

    def abort(self) -> None:
        """Kill the program."""
        super().abort()
        if process := self._process:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class WebhookNotifier(Notifier):
    """Posts notices to an http or https address; redirects are not followed. Raises ConfigError.

    Headers: `X-Lstr-Id`, the same at every attempt; `X-Lstr-Timestamp`, seconds since 1970 of this attempt; and with a
    secret `X-Lstr-Signature`: `sha256=` and the HMAC-SHA256 of the time stamp, a dot and the body. A notice has arrived
    when the answer is 2xx. No message contains the address.
    """

    class Config(Table, frozen=True):
        """An address that takes JSON by POST, and the key of the signature."""

        url: Secret
        secret: Secret = Secret("")

    def __init__(self, name: str, config: Config):
        super().__init__(name, config)
        hint = "use an address such as https://host/path as its url."
        try:
            self._address = urlsplit(config.url)
            self._address.port  # noqa: B018  it raises for an invalid port
        except ValueError:
            raise ConfigError("its address cannot be parsed.", hint) from None
        if self._address.scheme not in ("http", "https"):
            raise ConfigError("its address begins with neither http:// nor https://.", hint)
        if not self._address.hostname or UNSAFE & {*config.url}:
            raise ConfigError("its address has no host, or contains a space.", hint)
        path = quote(self._address.path or "/", safe="/%:@!$&'()*+,;=~")
        query = quote(self._address.query, safe="/%:@!$&'()*+,;=~?")
        self._path = f"{path}?{query}" if query else path
        self._connection: http.client.HTTPConnection | None = None

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
        kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._address.hostname or "", self._address.port, timeout=WEBHOOK_TIMEOUT_S)
        self._connection = connection
        # a timer, because the time limit of a socket is one for each piece, and an answer may come byte by byte
        timer = threading.Timer(WEBHOOK_TIMEOUT_S, self._break_off)
        timer.daemon = True
        try:
            connection.connect()
            timer.start()
            if self.aborted.is_set():
                raise TimeoutError
            connection.request("POST", self._path, body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            # not the text of the error, which may contain a part of the address
            code = error.errno if isinstance(error, OSError) else None
            reason = f"it cannot be reached ({os.strerror(code)})." if code else CUT_OFF
            raise DeliveryError(next((text for kind, text in REASONS if isinstance(error, kind)), reason)) from None
        finally:
            timer.cancel()
            self._connection = None
            connection.close()
        if 300 <= status < 400:
            raise DeliveryError(f"it answered {status}, and redirects are not followed.")
        if not 200 <= status < 300:
            raise DeliveryError(f"it answered {status}.")

    def abort(self) -> None:
        """Break off a request in another thread."""
        super().abort()
        self._break_off()

    def _break_off(self) -> None:
        connection = self._connection
        with suppress(OSError, AttributeError):  # not connected yet, or no longer
            connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
