"""What Frigate's HTTP interface is asked: events of a camera, to create one and to end it, and a sub-label.

Paths, verbs and fields are those of its documentation (`/api/…` at port 5000, which asks nobody who he is, or at 8971
with a login).
"""

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import lstr
from lstr.pipelines.watching.config import ChannelConfig
from lstr.pipelines.watching.telling.channel import ChannelError, UntoldError
from lstr.pipelines.watching.telling.exchange import Answer, Exchange, parse_address

LARGEST = 2**20
"""Bytes of an answer."""
MOST = 50
"""Events that are asked for, the newest."""
LONGEST = 100
"""Characters of a sub-label."""
LEAST = 1e-4
"""The score of a sub-label is above 0."""
SEPARATORS = re.compile(r"[/,]")
"""What separates parts of a path, and labels that are asked for."""
REASONS = {
    401: "; it wants to know who asks: give user and password",
    403: "; the user has to have the role admin",
}


class RefusedError(UntoldError):
    """Frigate has refused a request, and done nothing of it."""

    def __init__(self, status: int, reason: str = ""):
        super().__init__(reason or f"it answered {status}{REASONS.get(status, '')}.")
        self.status = status


@dataclass(frozen=True)
class TheirEvent:
    """An event as Frigate has it; times in seconds since 1970, by its clock."""

    id: str
    start: float
    end: float | None
    """None while it goes on."""
    sub_label: str | None
    score: float | None
    is_manual: bool
    """Whether it was created by this interface, and not by what Frigate saw."""


class FrigateApi:
    """The interface of one Frigate, for one thread. All requests raise UntoldError, RefusedError where it says no.

    Raises ChannelError for an address or a certificate that is none.
    """

    def __init__(self, name: str, config: ChannelConfig):
        address = parse_address(f"The channel {name}", config.url)
        self._base = address.path.rstrip("/")
        self._user, self._password = config.user, config.password
        self._cookie = ""
        self._exchange = Exchange(address, LARGEST, _context(name, config))

    def abort(self) -> None:
        """Let what is asked fail soon."""
        self._exchange.abort()

    def events(self, camera: str, label: str, **more: str | float) -> list[TheirEvent]:
        """The newest events of a camera with a label, at most MOST, the newest first."""
        query = {"cameras": camera, "labels": safe_label(label), "limit": MOST, "include_thumbnails": 0} | more
        found = self._ask("GET", f"events?{urlencode(query)}")
        try:
            return [_event(values) for values in found]
        except (TypeError, KeyError, ValueError, AttributeError):
            raise UntoldError("its answer is not one of Frigate.") from None

    def create(self, camera: str, label: str, values: Mapping[str, Any]) -> str:
        """Create an event; its id."""
        path = f"events/{quote(camera, safe='')}/{quote(safe_label(label), safe='')}/create"
        made = self._ask("POST", path, values)
        event_id = made.get("event_id") if isinstance(made, dict) else None
        if not (isinstance(event_id, str) and event_id):
            raise UntoldError("its answer is not one of Frigate.")
        return event_id

    def end(self, event_id: str, end: float | None) -> None:
        """End an event that was created, at a time of its clock, or now."""
        values = {} if end is None else {"end_time": end}
        self._ask("PUT", f"events/{quote(event_id, safe='')}/end", values)

    def set_sub_label(self, event_id: str, sub_label: str, score: float) -> None:
        """Give an event a sub-label, in place of the one that it has."""
        values = {"subLabel": sub_label[:LONGEST], "subLabelScore": min(1.0, max(LEAST, score))}
        self._ask("POST", f"events/{quote(event_id, safe='')}/sub_label", values)

    def _ask(self, method: str, path: str, values: Mapping[str, Any] | None = None) -> Any:
        """The JSON of an answer; whoever has a user signs in first, and again where that has run out."""
        if self._user and not self._cookie:
            self._sign_in()
        answer = self._send(method, path, values)
        if answer.status == 401 and self._user:
            self._sign_in()
            answer = self._send(method, path, values)
        if 300 <= answer.status < 400:
            raise UntoldError(f"it answered {answer.status}, and a redirect is not followed.")
        if 400 <= answer.status < 500:
            raise RefusedError(answer.status)
        if not 200 <= answer.status < 300:
            raise UntoldError(f"it answered {answer.status}.")
        try:
            return json.loads(answer.body or b"")
        except (ValueError, RecursionError):
            raise UntoldError("its answer is not one of Frigate.") from None

    def _sign_in(self) -> None:
        self._cookie = ""
        answer = self._send("POST", "login", {"user": self._user, "password": self._password})
        if answer.status == 401:
            raise RefusedError(401, "it refuses user and password.")
        if not (200 <= answer.status < 300 and answer.cookies):
            raise UntoldError(f"it answered {answer.status} to user and password.")
        self._cookie = "; ".join(answer.cookies)

    def _send(self, method: str, path: str, values: Mapping[str, Any] | None) -> Answer:
        headers = {"User-Agent": f"lstr/{lstr.__version__}", "Accept": "application/json"}
        if self._cookie:
            headers["Cookie"] = self._cookie
        body = None
        if values is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(values).encode()
        return self._exchange.ask(method, f"{self._base}/api/{path}", body, headers)


def safe_label(label: str) -> str:
    """A label that is one part of a path, and one of a list."""
    return SEPARATORS.sub("_", label.encode("utf-8", "replace").decode())


def _event(values: Mapping[str, Any]) -> TheirEvent:
    data = values.get("data") or {}
    end, score = values.get("end_time"), data.get("score")
    return TheirEvent(
        str(values["id"]),
        float(values["start_time"]),
        None if end is None else float(end),
        values.get("sub_label"),
        None if score is None else float(score),
        data.get("type") == "api",
    )


def _context(name: str, config: ChannelConfig) -> ssl.SSLContext | None:
    """Trusts one certificate alone, whatever name is on it: Frigate makes one for itself, which names no host."""
    if not config.certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    try:
        context.load_verify_locations(config.certificate)
    except (OSError, ssl.SSLError):
        raise ChannelError(
            f"The certificate of the channel {name} cannot be read.",
            "name a PEM file with the certificate that Frigate shows.",
        ) from None
    return context
