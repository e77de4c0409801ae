"""A server that gets what is posted to it."""

import http.server
import threading
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Posted:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver(http.server.ThreadingHTTPServer):
    """Notes what is posted on loopback. Answers with the first of `answers`, and 200 once there are none.

    Answers: a status; `never` sends nothing until the receiver is closed, `slow` begins with a byte now and then,
    `endless` with one that says only that more follows, again and again.
    """

    daemon_threads = True

    def __init__(self, *answers: int | str):
        self.posted: list[Posted] = []
        self.answers: deque[int | str] = deque(answers)
        self.location = ""
        """Where redirects lead."""
        self.closing = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_):
        """A visitor who left is none."""

    def __exit__(self, *_):
        self.closing.set()
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append(Posted(self.path, dict(self.headers), body))
        answer = self.server.answers.popleft() if self.server.answers else 200
        if answer == "never":
            self.server.closing.wait()
            return
        if answer == "endless":
            while not self.server.closing.is_set():
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        if answer == "slow":
            self.wfile.write(b"HTTP/1.0 ")
            while not self.server.closing.wait(0.05):
                self.wfile.write(b" ")
            return
        self.send_response(answer)
        if 300 <= answer < 400:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(b"x" * 100_000)

    def log_message(self, *_):
        pass
