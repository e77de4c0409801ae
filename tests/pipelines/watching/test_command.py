"""Commands that are started for a notice."""

import json
import os
import sys

from lstr.pipelines.watching import channels
from lstr.pipelines.watching.channels import CommandConfig, CommandNotifier
from lstr.pipelines.watching.notifications import Notifications
from tests.support.patience import until


def python(code: str, *arguments: str):
    return CommandNotifier, CommandConfig(command=(sys.executable, "-S", "-c", code, *arguments))


def told(history, config, event, said=None):
    history.begin(event, [*config.channels], event.decided)
    return Notifications(config, history, ([] if said is None else said).append)


def test_it_gets_the_event_and_no_shell(history, watch_config, event_of, tmp_path):
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read() + '\\n' + sys.argv[2]); print('x' * 10 ** 6)"
    odd = "$(touch here); `id` *"
    event = event_of(source="cam; rm -rf $HOME")
    with told(history, watch_config(c=python(code, str(tmp_path / "got"), odd)), event):
        until(lambda: not history.count_pending())
    text, argument = (tmp_path / "got").read_text().split("\n")
    assert argument == odd and json.loads(text)["event"] == history.find(event.id).to_dict()


def test_one_that_fails_is_started_again(history, watch_config, event_of, tmp_path, quick):
    code = "import os, sys; n = sys.argv[1]; sys.exit(0 if os.path.exists(n) else open(n, 'w').close() or 3)"
    with told(history, watch_config(c=python(code, str(tmp_path / "once"))), event_of()) as telling:
        until(lambda: not history.count_pending())
        assert telling.deliveries["c"].failed == 1


def test_one_that_runs_too_long_is_killed_with_what_it_started(history, watch_config, event_of, tmp_path, monkeypatch):
    monkeypatch.setattr(channels, "PROGRAM_TIMEOUT_S", 1)
    code = (
        "import os, subprocess, sys, time; sys.stdin.read(); child = subprocess.Popen(['sleep', '1000'])\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid} '); time.sleep(1000)"
    )
    started, said = tmp_path / "started", []
    with told(history, watch_config(c=python(code, str(started))), event_of(), said) as telling:
        until(lambda: telling.deliveries["c"].failed)
        assert said[0].endswith("its program ran for more than 1 s and was killed.")
    for pid in started.read_text().split():
        until(lambda pid=pid: gone(int(pid)))


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for is left as a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_a_program_that_is_missing(history, watch_config, event_of):
    config = watch_config(c=(CommandNotifier, CommandConfig(command=(os.devnull + "/x",))))
    said = []
    with told(history, config, event_of(), said):
        until(lambda: said)
        assert said[0].endswith("its program cannot be started (Not a directory).")
