"""A webhook: each notice is posted as JSON, signed, to an address."""

import base64
import hashlib
import hmac
from datetime import datetime
from urllib.parse import quote, unquote

import lstr
from lstr.pipelines.watching.config import ChannelConfig
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.telling.channel import Channel, UntoldError, message_bytes, notice_id
from lstr.pipelines.watching.telling.exchange import Exchange, parse_address

ANSWER = 4096
"""Bytes that are read of an answer."""
ID, TIMESTAMP, SIGNATURE = "X-Lstr-Id", "X-Lstr-Timestamp", "X-Lstr-Signature"


class Webhook(Channel):
    """Posts notices to an http or https address; redirects are followed nowhere. Raises ChannelError.

    Headers: `X-Lstr-Id`, the same at every try of a notice, to drop doubles by; `X-Lstr-Timestamp`, seconds since 1970
    of this try; and with a secret `X-Lstr-Signature`, as `sign` makes it. A notice has arrived when the answer is 2xx.
    """

    def __init__(self, name: str, config: ChannelConfig):
        super().__init__(name)
        address = parse_address(f"The webhook {name}", config.url)
        path = quote(address.path or "/", safe="/%:@!$&'()*+,;=~")
        query = quote(address.query, safe="/%:@!$&'()*+,;=~?")
        self._path = f"{path}?{query}" if query else path
        self._secret = config.secret
        user, password = unquote(address.username or ""), unquote(address.password or "")
        self._user, self._password = (user, password) if user else (config.user, config.password)
        self._exchange = Exchange(address, ANSWER)

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
        if self._user:
            both = f"{self._user}:{self._password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(both).decode()}"
        status = self._exchange.ask("POST", self._path, body, headers).status
        if 300 <= status < 400:
            raise UntoldError(f"it answered {status}, and a redirect is not followed.")
        if not 200 <= status < 300:
            raise UntoldError(f"it answered {status}.")

    def abort(self) -> None:
        self._exchange.abort()


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """`sha256=` and the HMAC-SHA256, in hexadecimal, of the time stamp, a dot and the body."""
    return f"sha256={hmac.new(secret.encode(), timestamp.encode() + b'.' + body, hashlib.sha256).hexdigest()}"
