"""Order, age and end of notifications; test_killed_service.py kills a service."""

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
from tests.support.http_servers import Receiver
from tests.support.processes import limit_file_size
from tests.support.waiting import wait_until
from tests.support.watching import count_pending, recent_event


def ids(receiver: Receiver) -> list[str]:
    return [posted.headers["X-Lstr-Id"] for posted in receiver.posted]


@pytest.fixture
def announce(history):
    """Store events and announce them by a webhook: announce(receiver, *events) -> notifications."""

    def begin(receiver: Receiver, *events) -> Notifications:
        for event in events:
            history.begin(event, ["hook"], event.decided)
        return Notifications({"hook": (WebhookNotifier, WebhookConfig(url=receiver.root))}, history, [].append)

    return begin


def test_a_full_disk_repeats_no_notification(history, announce, monkeypatch):
    monkeypatch.setattr(notifications, "FULL_DISK_PAUSE_S", 0.02)
    with Receiver() as receiver, announce(receiver, recent_event()) as running:
        with limit_file_size(0):
            wait_until(lambda: receiver.posted)
            for _ in range(10):
                running.wake()
                time.sleep(0.01)
            assert count_pending(history) == {"hook": 1}
        wait_until(lambda: not count_pending(history))
        assert len(receiver.posted) == 1


def test_new_events_come_before_failed_ones(history, announce, monkeypatch):
    monkeypatch.setattr(notifications, "FIRST_PAUSE_S", 1000.0)
    first, second, third = (recent_event() for _ in range(3))
    with Receiver(500) as receiver, announce(receiver, first, second) as running:
        wait_until(lambda: running.deliveries["hook"].failed)
        history.begin(third, ["hook"], third.decided)
        running.wake()
        wait_until(lambda: not count_pending(history))
        assert ids(receiver) == [f"{event.id}.new" for event in (first, second, third, first)]


def test_events_older_than_a_day_are_not_announced(history, announce):
    events = [recent_event(hours * 3600) for hours in (25, 25, 23)]
    with Receiver() as receiver:
        running = announce(receiver, *events)
        for event in events:
            history.update(replace(event, end=event.seen), event.seen)
        with running:
            wait_until(lambda: not count_pending(history))
        assert ids(receiver) == [f"{events[-1].id}.new", f"{events[-1].id}.end"]


def test_all_threads_end_even_if_a_channel_hangs(history, monkeypatch):
    monkeypatch.setattr(notifications, "ABORT_S", 0.1)
    before, event = {*threading.enumerate()}, recent_event()
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
            closing = time.monotonic()
        assert time.monotonic() - closing < WEBHOOK_TIMEOUT_S - 1, "it waited for the time-out"
    wait_until(lambda: {*threading.enumerate()} <= before, 30)
    assert count_pending(history) == dict.fromkeys(channels, 1)
