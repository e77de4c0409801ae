"""Order, age and end of notifications; a service that is killed is in test_killed_service.py."""

import threading
import time
from dataclasses import replace

import pytest

from lstr.pipelines.watching import notifications
from lstr.pipelines.watching.channels import (
    WEBHOOK_TIMEOUT_S,
    AppriseConfig,
    AppriseNotifier,
    CommandConfig,
    CommandNotifier,
    WebhookConfig,
    WebhookNotifier,
)
from lstr.pipelines.watching.mqtt import MqttConfig, MqttNotifier
from lstr.pipelines.watching.notifications import Notifications
from tests.support.processes import limit_file_size
from tests.support.waiting import wait_until
from tests.support.watching import count_pending
from tests.support.webhooks import Receiver


def ids(receiver: Receiver) -> list[str]:
    return [posted.headers["X-Lstr-Id"] for posted in receiver.posted]


@pytest.fixture
def begin(history):
    """Notifications of events by a webhook: begin(receiver, *events)."""

    def make(receiver: Receiver, *events) -> Notifications:
        for event in events:
            history.begin(event, ["hook"], event.decided)
        return Notifications({"hook": (WebhookNotifier, WebhookConfig(url=receiver.root))}, history, [].append)

    return make


def test_a_full_disk_lets_nobody_be_told_twice(history, begin, event_of, monkeypatch):
    monkeypatch.setattr(notifications, "FULL_DISK_PAUSE_S", 0.02)
    with Receiver() as receiver, begin(receiver, event_of()) as running:
        with limit_file_size(0):
            wait_until(lambda: receiver.posted)
            for _ in range(10):
                running.wake()
                time.sleep(0.01)
            assert count_pending(history) == {"hook": 1}
        wait_until(lambda: not count_pending(history))
        assert len(receiver.posted) == 1


def test_a_new_event_is_tried_at_once_and_what_waits_follows(history, begin, event_of, monkeypatch):
    monkeypatch.setattr(notifications, "FIRST_PAUSE_S", 1000.0)
    first, second, third = (event_of(action=action) for action in ("falling", "running", "sitting"))
    with Receiver(500) as receiver, begin(receiver, first, second) as running:
        wait_until(lambda: running.deliveries["hook"].failed)
        history.begin(third, ["hook"], third.decided)
        running.wake()
        wait_until(lambda: not count_pending(history))
        assert ids(receiver) == [f"{event.id}.new" for event in (first, second, third, first)]


def test_an_event_of_yesterday_is_no_news(history, begin, event_of):
    events = [event_of(ago=hours * 3600) for hours in (25, 25, 23)]
    with Receiver() as receiver:
        running = begin(receiver, *events)
        for event in events:
            history.update(replace(event, end=event.seen), event.seen)
        with running:
            wait_until(lambda: not count_pending(history))
        assert ids(receiver) == [f"{events[-1].id}.new", f"{events[-1].id}.end"]


def test_all_threads_end_and_one_that_hangs_is_broken_off(history, event_of, monkeypatch):
    monkeypatch.setattr(notifications, "ABORT_S", 0.1)
    before, event = {*threading.enumerate()}, event_of()
    with Receiver("never") as receiver:
        channels = {
            "a": (CommandNotifier, CommandConfig(command=("sleep", "1000"))),
            "b": (MqttNotifier, MqttConfig(host="127.0.0.1", port=9)),
            "c": (AppriseNotifier, AppriseConfig(url="json://127.0.0.1:9")),
            "d": (WebhookNotifier, WebhookConfig(url=receiver.root)),
        }
        history.begin(event, [*channels], event.decided)
        with Notifications(channels, history, print, lambda _: None):
            wait_until(lambda: receiver.posted)
            began = time.monotonic()
        assert time.monotonic() - began < WEBHOOK_TIMEOUT_S - 1, "it waited for the time-out"
    wait_until(lambda: {*threading.enumerate()} <= before, 30)
    assert count_pending(history) == dict.fromkeys(channels, 1)
