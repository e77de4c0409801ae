"""HTTP servers on loopback: one of a folder, and one that records what is posted."""

import functools
import http.server
import threading
from collections import deque, namedtuple


class _LoopbackServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.root = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Handler(http.server.SimpleHTTPRequestHandler):
    """The handler of `Server`."""

    def do_GET(self):
        self.server.requested.append(self.path)
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


class Server(_LoopbackServer):
    """A folder; `requested` has the paths of all requests, and /to/X redirects to X."""

    def __init__(self, folder, handler: type = Handler):
        self.requested: list[str] = []
        super().__init__(functools.partial(handler, directory=str(folder)))


Posted = namedtuple("Posted", "path headers body")


class Receiver(_LoopbackServer):
    """Records POST requests. Answers with the first of `answers`, and with 200 when none remain.

    Answers: a status; `never` sends nothing until the receiver is closed, `slow` begins with a byte now and then,
    `endless` repeats the status that more follows.
    """

    def __init__(self, *answers: int | str):
        self.posted, self.answers, self.closing = [], deque(answers), threading.Event()
        self.location = ""  # of redirects
        super().__init__(_ReceiverHandler)

    def handle_error(self, *_):
        """Ignore clients that close the connection."""

    def __exit__(self, *_):
        self.closing.set()
        self.shutdown()
        self.server_close()


class _ReceiverHandler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append(Posted(self.path, dict(self.headers), body))
        answer = self.server.answers.popleft() if self.server.answers else 200
        if isinstance(answer, str):
            wait_s = {"never": None, "slow": 0.05, "endless": 0.0}[answer]
            self.wfile.write({"never": b"", "slow": b"HTTP/1.0 ", "endless": b""}[answer])
            while not self.server.closing.wait(wait_s):
                self.wfile.write(b" " if answer == "slow" else b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self.send_response(answer)
        if 300 <= answer < 400:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(b"x" * 100_000)

    log_message = Handler.log_message
