"""A service that is killed several times stores every event, and announces each."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from lstr.pipelines.detection.model import load_checkpoint
from lstr.pipelines.watching.history import History
from tests.support.served import TS_HEAD, served
from tests.support.waiting import wait_until
from tests.support.watching import count_pending

LONG_S = 120.0  # enough for a busy machine
SHELL = shutil.which("sh")
CONFIG = """
model = "small.lstr"
[sources.hall]
address = "http://127.0.0.1:{port}/hall"
[channels.notes]
kind = "command"
command = ["{shell}", "-c", "line=$(cat); echo \\"$line\\" >> {notes}"]
"""


def read_notes(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.skipif(SHELL is None, reason="the channel of this test is a shell")
@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_service_loses_no_event(lstr, small_set, stream, tmp_path, kills):
    """Each start sees every action once. Killed between sending and storing that, it sends again, with the same id."""
    notes = tmp_path / "notes.jsonl"
    assert lstr("pack", small_set.checkpoint.parent, "-o", tmp_path / "small.lstr")[0] == 0
    with served(*[[TS_HEAD, stream, None]] * (kills + 1)) as port:
        text = CONFIG.format(port=port, shell=SHELL, notes=notes)
        for action in load_checkpoint(small_set.checkpoint).classes[1:]:
            text += f'[actions."{action}"]\non = 0.0\noff = 0.0\n'
        (tmp_path / "watch.toml").write_text(text)
        command = [sys.executable, "-m", "lstr_cli", "watch", str(tmp_path / "watch.toml")]
        delays = random.Random(0)
        for run in range(kills + 1):
            count = len(read_notes(notes))
            with subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ}) as service:
                wait_until(lambda n=count, run=service: run.poll() is not None or len(read_notes(notes)) > n, LONG_S)
                assert service.poll() is None, "it ended by itself"
                if run < kills:
                    sleep(delays.uniform(0, 0.3))
                    service.kill()
                else:
                    history = History(tmp_path / "watch.data" / "history.sqlite", readonly=True)
                    wait_until(lambda stored=history: not any(count_pending(stored).values()), LONG_S)
                    service.terminate()
    events, lines = history.events(), read_notes(notes)
    history.close()
    assert {line["event"]["id"] for line in lines if line["phase"] == "new"} == {event.id for event in events}
    assert all(event.end for event in events) and len(events) > kills
    assert len({(event.action, event.start) for event in events}) == len(events), "each is stored once"
    notices = [line["notice"] for line in lines]
    assert len(notices) - len(set(notices)) <= kills
