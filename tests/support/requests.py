"""HTTP requests with any headers to a server on this machine."""

import json
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.support.waiting import TIMEOUT_S


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Visitor:
    """A client that has opened the address of a server and received its `cookie`."""

    def __init__(self, address: str):
        parts = urlsplit(address)
        self.port, self.host = parts.port, parts.hostname
        self.entry = f"{parts.path}?{parts.query}"
        entered = self.ask(self.entry, cookie="")
        assert entered.status == 303 and entered.headers["location"] == "./"
        self.cookie = entered.headers["set-cookie"].partition(";")[0]

    def ask(
        self, path: str, content: Any = None, method: str = "", cookie: str | None = None, **headers: str
    ) -> Answer:
        """Send a GET, or a POST of JSON content; underscores in names of headers become hyphens."""
        connection = HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        cookie = self.cookie if cookie is None else cookie
        sent = {"cookie": cookie} if cookie else {}
        if content is not None:
            sent["content-type"] = "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = content if isinstance(content, bytes) or content is None else json.dumps(content).encode()
        connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
        answer = connection.getresponse()
        data = b"" if answer.getheader("content-type", "").startswith("text/event-stream") else answer.read()
        connection.close()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, data)
