"""A kind of channel in another package: the one of CONTRIBUTING.md, installed next to lstr, announces an event."""

import json
import os
import subprocess
import sys

from tests.support.documents import ROOT, block_with

PAGE = ROOT / "CONTRIBUTING.md"
WATCH = """
import sys
from datetime import datetime
from pathlib import Path
from time import sleep
from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.notifications import Notifications

folder, now = Path(sys.argv[1]), datetime.now().astimezone()
history = History(folder / "history.sqlite")
history.begin(WatchedEvent(new_id(now), "hall", "falling", now, now, 0.9, 0.9, now), ["notes"], now)
with Notifications(read_config(folder / "watch.toml").channels, history, print):
    while history.pending("notes"):
        sleep(0.01)
"""


def test_a_sink_of_another_package_announces_events(tmp_path):
    name, place = block_with(PAGE, "toml", "lstr.sinks").removeprefix('entry-points."lstr.sinks".').split(" = ")
    module, _, _ = json.loads(place).partition(":")
    (tmp_path / f"{module}.py").write_text(block_with(PAGE, "python", "Notifier"))
    info = tmp_path / "notes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: notes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lstr.sinks]\n{name} = {json.loads(place)}\n")
    channel = f'[channels.notes]\nkind = "{name}"\npath = "{tmp_path / "notes.txt"}"\n'
    (tmp_path / "watch.toml").write_text(f'[sources.hall]\naddress = "http://127.0.0.1:9/hall"\n{channel}')
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-c", WATCH, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "notes.txt").read_text().startswith("falling in the hall, ")
