"""A service that is killed again and again: what it saw is stored, and who was to be told is told."""

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

LONG = 120.0  # seconds that a busy machine may take
SHELL = shutil.which("sh")
HALL = """
[sources.hall]
address = "http://127.0.0.1:{port}/hall"
[channels.note]
kind = "command"
command = ["{shell}", "-c", "line=$(cat); echo \\"$line\\" >> {told}"]
"""


def told_in(path: Path) -> list[dict]:
    """What the program noted, line by line."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.skipif(SHELL is None, reason="no shell notes what it is told here")
@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_service_loses_no_event_and_tells_of_each(lstr, small_set, stream, tmp_path, kills):
    """Each start sees every action once. Killed between telling and noting that, it tells again, under the same id."""
    actions, told = load_checkpoint(small_set.checkpoint).classes[1:], tmp_path / "told.jsonl"
    assert lstr("pack", small_set.checkpoint.parent, "-o", tmp_path / "small.lstr")[0] == 0
    with served(*[[TS_HEAD, stream, None]] * (kills + 1)) as port:
        text = f'model = "small.lstr"\n{HALL.format(port=port, shell=SHELL, told=told)}'
        text += "".join(f'[actions."{action}"]\non = 0.0\noff = 0.0\n' for action in actions)
        (tmp_path / "watch.toml").write_text(text)
        words = [sys.executable, "-m", "lstr_cli", "watch", str(tmp_path / "watch.toml")]
        chance = random.Random(0)
        for run in range(kills + 1):
            before = len(told_in(told))
            with subprocess.Popen(words, stderr=subprocess.DEVNULL, env={**os.environ}) as watching:
                wait_until(
                    lambda known=before, run=watching: run.poll() is not None or len(told_in(told)) > known, LONG
                )
                assert watching.poll() is None, "it ended by itself"
                if run < kills:
                    sleep(chance.uniform(0, 0.3))
                    watching.kill()
                else:
                    history = History(tmp_path / "watch.data" / "history.sqlite", readonly=True)
                    wait_until(lambda known=history: not any(count_pending(known).values()), LONG)
                    watching.terminate()
    events, lines = history.events(), told_in(told)
    history.close()
    begun = [line for line in lines if line["phase"] == "new"]
    assert {line["event"]["id"] for line in begun} == {event.id for event in events}, "each is stored, and told"
    assert all(event.end for event in events) and len(events) > kills
    assert len({(event.action, event.start) for event in events}) == len(events), "none is stored twice"
    notices = [line["notice"] for line in lines]
    assert len(notices) - len(set(notices)) <= kills
