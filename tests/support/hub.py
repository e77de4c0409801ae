"""A stand-in of the Hugging Face Hub's HTTP interface, as far as huggingface_hub's download of one file asks for it.

`Hub` answers HEAD and GET of /OWNER/NAME/resolve/REVISION/FILE with the headers and error codes of the Hub, and leads
to a store of large files on another host, as the Hub does. It was written after the client, not after the server.
"""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

SIGNATURE = "Signature=s1gned-and-secret"
BLOCK = 1 << 16
CHILD = """
import json, sys
from lstr.pipelines.model_files.hub import local_model
from lstr.pipelines.model_files.hub_address import hub_file
for line in sys.stdin:
    try:
        path = local_model(line.rstrip("\\n"))
        answer = {"path": str(path), **hub_file(path).to_dict()}
    except Exception as error:
        answer = {"error": type(error).__name__, "says": str(error), "hint": getattr(error, "hint", None)}
    print(json.dumps(answer), flush=True)
"""


@dataclass
class Repository:
    """What a repository has at each commit, and which commit a name means; who may see it."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    readers: tuple[str, ...] = ()
    """Tokens that may read it."""

    def commit(self, files: Mapping[str, bytes], *names: str) -> str:
        """A commit with these files, which `names` mean from now on."""
        digest = hashlib.sha1(json.dumps([len(self.commits), sorted(files)]).encode()).hexdigest()
        self.commits[digest] = dict(files)
        self.names |= dict.fromkeys(names, digest)
        return digest


class Hub(http.server.ThreadingHTTPServer):
    """The stand-in, on loopback; use it as a context manager.

    tokens: which the Hub knows. asked: (method, path, headers) of each request. cuts: after so many bytes the next
    answers of the store break off. status: what each answer of the Hub is instead, where it is not 0.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        port = self.server_address[1]
        self.root, self.store = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
        self.repositories: dict[str, Repository] = {}
        self.tokens: set[str] = set()
        self.blobs: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.cuts: list[int] = []
        self.status = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        super().__exit__(*exception)

    def add(self, name: str, **about) -> Repository:
        """A repository."""
        self.repositories[name] = Repository(**about)
        return self.repositories[name]

    def of_store(self) -> list[dict[str, str]]:
        """The headers of each request for bytes."""
        return [headers for method, path, headers in self.asked if path.startswith("/store/") and method == "GET"]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        hub, path = self.server, urlsplit(self.path).path
        hub.asked.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}))
        if path.startswith("/store/"):
            self._send_blob(hub.blobs[path.removeprefix("/store/")])
            return
        if hub.status:
            self._send(hub.status, {})
            return
        owner, name, verb, revision, file = path.lstrip("/").split("/", 4)
        assert verb == "resolve", path
        self._resolve(hub.repositories.get(f"{owner}/{name}"), unquote(revision), unquote(file))

    def _resolve(self, repository: Repository | None, revision: str, file: str) -> None:
        hub = self.server
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token not in hub.tokens:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and token not in repository.readers):
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        elif repository.gated and token not in repository.readers:
            self._refuse(403 if token else 401, "GatedRepo", "Access to this model is restricted.")
        elif (commit := repository.names.get(revision, revision)) not in repository.commits:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif file not in repository.commits[commit]:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        else:
            content = repository.commits[commit][file]
            digest = hashlib.sha256(content).hexdigest()
            hub.blobs[digest] = content
            about = {"X-Repo-Commit": commit, "X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{digest}"'}
            location = f"{hub.store}/store/{digest}?{SIGNATURE}"
            self._send(302, {**about, "Location": location, "ETag": f'"{digest[:40]}"'})

    def _refuse(self, status: int, code: str, message: str, more: Mapping[str, str] = {}) -> None:
        self._send(status, {**({"X-Error-Code": code} if code else {}), "X-Error-Message": message, **more})

    def _send(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_blob(self, content: bytes) -> None:
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        left = content[start:]
        if self.server.cuts:
            self.wfile.write(left[: self.server.cuts.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(left)


def environment(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    """What makes a process ask this Hub, and keep what it gets in a folder of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    own = {"HF_ENDPOINT": hub.root, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    return {**kept, **own, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost", **more}


class Client:
    """A process with the real huggingface_hub, which reads its settings once; use it as a context manager."""

    def __init__(self, hub: Hub, home: Path, **more: str):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(hub, home, **more),
        )

    def get(self, address: str) -> dict[str, str]:
        """What becomes of an address: path, address, commit and sha256; or error, says and hint."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{address}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.communicate()
