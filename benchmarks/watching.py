"""Eight cameras watched by the service, with a viewer every other minute: lag, what is told, processor and memory.

python benchmarks/watching.py --model MODEL.lstr VIDEO... [--streams 8] [--minutes 6] [--record watching.json]
python benchmarks/watching.py --model MODEL.lstr VIDEO... --odd --minutes 120 --every 10 --record watching-hours.json

The cameras send 320×240 at 30 FPS from a server in this process (`playing.py`), and a program that the service tells
notes when it was told; all of it is on the same cores. With `--odd` the last four are odd: one stalls, one restarts,
one changes its size, and the times of one jump (`odd_cameras.py`). In every second part a viewer asks what the page
asks of the service, with all cameras in view: the stream of what happens, and two pictures a second of each.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from datetime import datetime
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote, urlencode, urlsplit

from odd_cameras import ODDITIES, STEADY, Camera
from playing import playing

from lstr.pipelines.files.json_files import read_jsonl, write_json
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.watching.history import History

RECORD = Path(__file__).resolve().parent / "watching.json"
FPS = 30
SETTLING = 30.0  # seconds before anything is counted
DRAINING = 60.0  # seconds for what is to be told at the end, at most
PICTURES_EVERY = 0.5  # seconds, as the page asks
TELLS = """
import json, sys, time
line, at = json.load(sys.stdin), time.time()
told = {"notice": line["notice"], "phase": line["phase"], "decided": line["event"]["decided"], "at": at}
with open(sys.argv[1], "a") as file:
    print(json.dumps(told), file=file)
"""


class Viewer(threading.Thread):
    """Who has the page open with all sources in view, until `ended` is set: the requests of the page, as it makes them.

    The page itself, its events, the stream of what happens, and every half second, in one request, the pictures of the
    sources that have a new one; on connections that stay open.
    """

    def __init__(self, address: str):
        super().__init__(daemon=True)
        self.parts, self.cookie, self.ended = urlsplit(address), "", threading.Event()
        self.newest: dict[str, int] = {}
        self.bytes = self.pictures = 0

    def connect(self) -> HTTPConnection:
        """A connection that stays open."""
        return HTTPConnection(self.parts.hostname, self.parts.port, timeout=30)

    def ask(self, connection: HTTPConnection, path: str) -> bytes:
        """What a path holds."""
        connection.request("GET", path, headers={"cookie": self.cookie} if self.cookie else {})
        answer = connection.getresponse()
        data = answer.read()
        self.cookie = self.cookie or answer.getheader("set-cookie", "").partition(";")[0]
        self.bytes += len(data)
        return data

    def run(self) -> None:
        connection = self.connect()
        self.ask(connection, f"/?{self.parts.query}")
        page = self.ask(connection, "/").decode()
        state = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])["state"]
        self.newest = {source["name"]: source["picture"] for source in state["sources"]}
        threading.Thread(target=self.follow, args=(state["at"],), daemon=True).start()
        self.ask(connection, "/events?limit=50")
        shown: dict[str, int] = {}
        while not self.ended.wait(PICTURES_EVERY):
            wanted = [("of", name) for name, number in [*self.newest.items()] if number and number != shown.get(name)]
            if wanted:
                data = self.ask(connection, f"/pictures?{urlencode(wanted)}")
                head = json.loads(data[4 : 4 + int.from_bytes(data[:4], "big")])
                shown |= {name: number for name, number, _ in head}
                self.pictures += len(head)
        connection.close()

    def follow(self, mark: str) -> None:
        """Read the stream of what happens."""
        connection = self.connect()
        connection.request("GET", f"/stream?after={quote(mark)}", headers={"cookie": self.cookie})
        answer = connection.getresponse()
        while not self.ended.is_set() and (line := answer.readline()):
            self.bytes += len(line)
            if line.startswith(b"data: ["):
                told = json.loads(line.removeprefix(b"data: "))
                self.newest |= {one["source"]: one["picture"] for one in told if one["kind"] == "scores"}
        connection.close()


def used(pid: int) -> tuple[float, float, int]:
    """Processor seconds of a process, its MB in memory, and its open files."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    memory = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return seconds, memory, len(os.listdir(f"/proc/{pid}/fd"))


def numbers(address: str) -> dict[str, float]:
    """What the service tells Prometheus."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def summed(found: dict[str, float], name: str) -> float:
    """A number over all sources."""
    return sum(value for key, value in found.items() if key.startswith(name))


def counted_of(found: dict[str, float], kind: str, name: str) -> int:
    """What was counted of one source."""
    return int(found.get(f'lstr_source_{kind}_total{{source="{name}"}}', 0))


def measure(options: argparse.Namespace, folder: Path) -> dict:
    """One run."""
    told, names = folder / "told.jsonl", [f"camera{n}" for n in range(options.streams)]
    odd = [*ODDITIES.values()] if options.odd else []
    oddities = [*[STEADY] * (options.streams - len(odd)), *odd]
    videos = islice(cycle(options.videos), options.streams)
    films = {n: Camera(video, FPS, oddity) for n, (video, oddity) in enumerate(zip(videos, oddities, strict=True))}
    with ExitStack() as stack, playing(films) as server:
        (folder / "tells.py").write_text(TELLS)
        words = ", ".join(f'"{word}"' for word in (sys.executable, "-S", folder / "tells.py", told))
        text = f'model = "{options.model.resolve()}"\n[clips]\n[channels.note]\nkind = "command"\ncommand = [{words}]\n'
        text += "".join(f'[sources.{name}]\naddress = "{server.address(n)}"\n' for n, name in enumerate(names))
        (folder / "watch.toml").write_text(text)
        command = [sys.executable, "-m", "lstr_cli", "watch", str(folder / "watch.toml")]
        log = stack.enter_context(options.log.open("w")) if options.log else None
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=log)
        address = process.stdout.readline().strip()
        sleep(SETTLING)
        before, parts = numbers(address), []
        for number in range(options.minutes // options.every):
            viewer = Viewer(address) if number % 2 else None
            if viewer:
                viewer.start()
            began, (start, _, _) = monotonic(), used(process.pid)
            sleep(60 * options.every)
            end, memory, files = used(process.pid)
            found = numbers(address)
            lags = [value for key, value in found.items() if key.startswith("lstr_source_lag_seconds")]
            share = (end - start) / (monotonic() - began)
            row = {"viewer": bool(viewer), "cores": round(share, 3), "memory_mb": round(memory), "files": files}
            row |= {"threads": len(os.listdir(f"/proc/{process.pid}/task")), "load": round(os.getloadavg()[1], 1)}
            row |= {"disk_mb": round(summed(found, "lstr_clips_bytes") / 1e6)}
            read = {"viewer_bytes": viewer.bytes, "pictures": viewer.pictures} if viewer else {}
            parts.append(row | {"lag_p95": max(lags)} | read)
            print(parts[-1], flush=True)
            if viewer:
                viewer.ended.set()
        after = numbers(address)
        until = monotonic() + DRAINING
        while monotonic() < until and summed(numbers(address), "lstr_notices_waiting"):
            sleep(0.2)
        process.terminate()
        code = process.wait(30)
    history = History(folder / "watch.data" / "history.sqlite", readonly=True)
    events, lines = history.events(), read_jsonl(told)
    delays = sorted(
        line["at"] - datetime.fromisoformat(line["decided"]).timestamp() for line in lines if line["phase"] == "new"
    )
    counted = ("decided", "dropped", "unseen", "reconnects")
    by_camera = {
        name: {kind: counted_of(after, kind, name) - counted_of(before, kind, name) for kind in counted}
        for name in names
    }
    return {
        "streams": options.streams,
        "odd": {name: kind for name, kind in zip(names[-len(ODDITIES) :], ODDITIES, strict=True)} if odd else {},
        "code": code,
        "minutes_a_part": options.every,
        "parts": parts,
        "server_late": round(server.late, 3),
        **{kind: sum(row[kind] for row in by_camera.values()) for kind in counted},
        "cameras": by_camera,
        "events": len(events),
        "told_new": len(delays),
        "told_twice": len(lines) - len({line["notice"] for line in lines}),
        "told_after_seconds": {"median": round(delays[len(delays) // 2], 3), "most": round(delays[-1], 3)},
        "clips": sum(bool(event.clip) for event in events),
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--minutes", type=int, default=6)
    parser.add_argument("--every", type=int, default=1, help="minutes of a part")
    parser.add_argument("--log", type=Path, help="where what the service says goes")
    parser.add_argument("--odd", action="store_true")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = measure(options, Path(folder))
    write_json(options.record, made | {"model": options.model.name, **about_machine()})
    print(made)


if __name__ == "__main__":
    main()
