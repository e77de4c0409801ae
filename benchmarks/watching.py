"""Eight cameras watched by the service, with a viewer every other minute: lag, what is told, processor and memory.

python benchmarks/watching.py --model MODEL.lstr VIDEO... [--streams 8] [--minutes 6] [--record watching.json]
python benchmarks/watching.py --model MODEL.lstr VIDEO... --odd --minutes 120 --every 10 --record watching-hours.json

The cameras send 320×240 at 30 FPS from a server in this process (`playing.py`), and a program that the service tells
notes when it was told; all of it is on the same cores. With `--odd` the last four are odd: one stalls, one restarts,
one changes its size, and the times of one jump (`odd_cameras.py`). In every second part a viewer reads the stream of
events of the page and three pictures a second of each camera, as a browser does.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from datetime import datetime
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

from odd_cameras import ODDITIES, STEADY, Camera
from playing import playing

from lstr.pipelines.files.json_files import read_jsonl, write_json
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.watching.history import History

RECORD = Path(__file__).resolve().parent / "watching.json"
FPS = 30
SETTLING = 30.0  # seconds before anything is counted
DRAINING = 60.0  # seconds for what is to be told at the end, at most
PICTURES = 3  # a second and source
TELLS = """
import json, sys, time
line, at = json.load(sys.stdin), time.time()
told = {"notice": line["notice"], "phase": line["phase"], "decided": line["event"]["decided"], "at": at}
with open(sys.argv[1], "a") as file:
    print(json.dumps(told), file=file)
"""


class Viewer(threading.Thread):
    """Who has the page open, until `ended` is set."""

    def __init__(self, address: str, names: list[str]):
        super().__init__(daemon=True)
        self.parts, self.names, self.ended = urlsplit(address), names, threading.Event()
        self.bytes = 0

    def ask(self, path: str, cookie: str = "") -> tuple[dict[str, str], bytes]:
        """One request."""
        connection = HTTPConnection(self.parts.hostname, self.parts.port, timeout=30)
        connection.request("GET", path, headers={"cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        return {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def run(self) -> None:
        headers, _ = self.ask(f"/?{self.parts.query}")
        cookie = headers["set-cookie"].partition(";")[0]
        _, state = self.ask("/state", cookie)
        mark = re.search(rb'"at":\s*"([^"]+)"', state)
        threading.Thread(target=self.follow, args=(cookie, mark[1].decode()), daemon=True).start()
        while not self.ended.wait(1 / PICTURES):
            for name in self.names:
                with suppress(OSError):
                    self.bytes += len(self.ask(f"/picture/{name}", cookie)[1])

    def follow(self, cookie: str, mark: str) -> None:
        """Read the stream of what happens."""
        connection = HTTPConnection(self.parts.hostname, self.parts.port, timeout=60)
        connection.request("GET", f"/stream?after={mark}", headers={"cookie": cookie})
        answer = connection.getresponse()
        while not self.ended.is_set() and (line := answer.readline()):
            self.bytes += len(line)
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
            viewer = Viewer(address, names) if number % 2 else None
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
            parts.append(row | {"lag_p95": max(lags), "viewer_bytes": viewer.bytes if viewer else 0})
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
