"""Nothing is told that is not stored, and all that is stored is told, whatever comes in between."""

import json
import random
import subprocess
import sys
import threading
import time

from lstr.pipelines.watching import notifications
from lstr.pipelines.watching.channels import (
    AppriseConfig,
    AppriseNotifier,
    CommandConfig,
    CommandNotifier,
    WebhookConfig,
    WebhookNotifier,
)
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.mqtt import MqttConfig, MqttNotifier
from lstr.pipelines.watching.notifications import Notifications
from tests.support.patience import until
from tests.support.processes import room
from tests.support.watching import count_pending
from tests.support.webhooks import Receiver

# stores an event every few milliseconds, and tells by a webhook
SERVICE = """
import sys, time
from datetime import datetime
from pathlib import Path
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.notifications import Notifications
from lstr.pipelines.watching.channels import WebhookConfig, WebhookNotifier
folder, url, n = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
channels = {"hook": (WebhookNotifier, WebhookConfig(url=url))}
history = History(folder / "history.sqlite")
history.end_all(datetime.now().astimezone())
with Notifications(channels, history, lambda text: None) as running:
    for _ in range(n):
        now = datetime.now().astimezone()
        event = WatchedEvent(new_id(now), "hall", "falling", now, now, 0.9, 0.9, now)
        history.begin(event, ["hook"], now)
        running.wake()
        time.sleep(0.005)
    while history.pending("hook"):
        time.sleep(0.01)
"""


def service(folder, url: str, n: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", SERVICE, str(folder), url, str(n)])


def ids(receiver: Receiver) -> list[str]:
    return [posted.headers["X-Lstr-Id"] for posted in receiver.posted]


def hook(receiver: Receiver):
    return WebhookNotifier, WebhookConfig(url=receiver.root)


def test_a_kill_between_delivery_and_note(tmp_path):
    """The webhook has it and the history does not know: it is delivered again, with the same id."""
    with Receiver("never") as receiver:
        first = service(tmp_path, receiver.root, 1)
        try:
            until(lambda: receiver.posted)
        finally:
            first.kill()
            first.wait()
        assert service(tmp_path, receiver.root, 0).wait(120) == 0
        one, two, end = ids(receiver)
        assert one == two and end == one.replace("new", "end")
        again = json.loads(receiver.posted[1].body)
        assert again["phase"] == "new" and again["event"]["end"] and again["event"]["still_on"]


def test_what_is_told_is_stored_over_kills(tmp_path):
    with Receiver() as receiver:
        for _ in range(3):
            process = service(tmp_path, receiver.root, 10**6)
            try:
                n = len(receiver.posted) + random.randint(1, 20)
                until(lambda n=n: len(receiver.posted) >= n)
            finally:
                process.kill()
                process.wait()
        assert service(tmp_path, receiver.root, 0).wait(120) == 0
        history = History(tmp_path / "history.sqlite", readonly=True)
        stored = {f"{event.id}.{phase}" for event in history.events() for phase in ("new", "end")}
        history.close()
        assert {*ids(receiver)} == stored
        assert len(ids(receiver)) <= len(stored) + 3, "at most one at each kill is told twice"


def test_a_full_disk_lets_nobody_be_told_twice(history, watch_config, event_of, monkeypatch):
    monkeypatch.setattr(notifications, "FULL_DISK_PAUSE_S", 0.02)
    said, event = [], event_of()
    history.begin(event, ["hook"], event.decided)
    with Receiver() as receiver:
        with room(0), Notifications(watch_config(hook=hook(receiver)).channels, history, said.append) as running:
            until(lambda: receiver.posted and said)
            for _ in range(10):
                running.wake()
                time.sleep(0.01)
            assert count_pending(history) == {"hook": 1}
        # what the first knew is lost with it, as by a kill
        assert len(receiver.posted) == 1 and len(said) == 1 and "cannot be written" in said[0]


def test_a_new_event_is_tried_at_once_and_what_waits_follows(history, watch_config, event_of, monkeypatch):
    monkeypatch.setattr(notifications, "FIRST_PAUSE_S", 1000.0)
    first, second, third = (event_of(action=action) for action in ("falling", "running", "sitting"))
    for event in (first, second):
        history.begin(event, ["hook"], event.decided)
    with (
        Receiver(500) as receiver,
        Notifications(watch_config(hook=hook(receiver)).channels, history, print) as running,
    ):
        until(lambda: running.deliveries["hook"].failed)
        history.begin(third, ["hook"], third.decided)
        running.wake()
        until(lambda: not count_pending(history))
        assert ids(receiver) == [f"{event.id}.new" for event in (first, second, third, first)]


def test_an_event_of_yesterday_is_no_news(history, watch_config, event_of):
    said = []
    for ago in (25 * 3600, 25 * 3600, 23 * 3600):
        event = event_of(ago=ago)
        history.begin(event, ["hook"], event.decided)
        history.end(event.id, event.seen, False, event.seen)
    with Receiver() as receiver, Notifications(watch_config(hook=hook(receiver)).channels, history, said.append):
        until(lambda: not count_pending(history))
        assert ids(receiver) == [f"{event.id}.new", f"{event.id}.end"]
    assert said == ["hook: 2 notifications were dropped, older than a day."]


def test_all_threads_end(history, watch_config, event_of, monkeypatch):
    monkeypatch.setattr(notifications, "ABORT_S", 0.1)
    before = {*threading.enumerate()}
    channels = {
        "a": (CommandNotifier, CommandConfig(command=("sleep", "1000"))),
        "b": (MqttNotifier, MqttConfig(host="127.0.0.1", port=9)),
        "c": (AppriseNotifier, AppriseConfig(url="json://127.0.0.1:9")),
    }
    event = event_of()
    history.begin(event, [*channels], event.decided)
    with Notifications(channels, history, print, lambda _: None):
        time.sleep(0.1)
    began = time.monotonic()
    while left := {*threading.enumerate()} - before:
        assert time.monotonic() - began < 30, left
        time.sleep(0.02)
    assert count_pending(history) == dict.fromkeys(channels, 1)
