"""A folder over HTTP."""

import functools
import http.server
import threading
from pathlib import Path


class Server(http.server.ThreadingHTTPServer):
    """A folder over HTTP on loopback; `requested` has the paths that were fetched, /to/X leads to X."""

    daemon_threads = True

    def __init__(self, folder: Path, handler: type | None = None):
        self.requested: list[str] = []
        super().__init__(("127.0.0.1", 0), functools.partial(handler or Handler, directory=str(folder)))
        self.root = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Answers for `Server`."""

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
