"""Webhooks: what arrives, and what those get who misbehave."""

import hashlib
import hmac
import json
import time

import pytest

from lstr.errors import ConfigError
from lstr.pipelines.watching import channels, notifications
from lstr.pipelines.watching.channels import WebhookConfig, WebhookNotifier, parse_address
from lstr.pipelines.watching.notifications import Notifications
from tests.support.patience import until
from tests.support.webhooks import Receiver


def told(history, config, event, said=None):
    """Notifications with a stored event."""
    history.begin(event, [*config.channels], event.decided)
    return Notifications(config, history, (said if said is not None else []).append)


def hook(root: str, **values):
    return WebhookNotifier, WebhookConfig(url=f"{root}/in?token=abc123", **values)


def test_what_arrives_is_signed(history, watch_config, event_of):
    event = event_of()
    with Receiver() as receiver:
        with told(history, watch_config(phone=hook(receiver.root, secret="hunter2")), event):
            until(lambda: not history.count_pending())
        (posted,) = receiver.posted
    assert posted.path == "/in?token=abc123"
    stamp = posted.headers["X-Lstr-Timestamp"]
    mac = hmac.new(b"hunter2", f"{stamp}.".encode() + posted.body, hashlib.sha256).hexdigest()
    assert posted.headers["X-Lstr-Signature"] == f"sha256={mac}" and abs(time.time() - int(stamp)) < 600
    message = json.loads(posted.body)
    assert message["notice"] == posted.headers["X-Lstr-Id"] == f"{event.id}.new"
    assert message["phase"] == "new" and message["event"] == history.find(event.id).to_dict()
    assert message["sentence"].startswith("falling in the hall, ")


def test_an_error_is_followed_by_one_delivery(history, watch_config, event_of, quick):
    said: list[str] = []
    with Receiver(500, 503) as receiver:
        with told(history, watch_config(phone=hook(receiver.root)), event_of(), said) as running:
            until(lambda: not history.count_pending())
            assert running.deliveries["phone"].failed == 2
        assert len({posted.headers["X-Lstr-Id"] for posted in receiver.posted}) == 1
        assert len(receiver.posted) == 3
    assert said == [
        "phone could not announce falling in the hall and tries again: it answered 500.",
        "phone works again.",
    ]


def test_a_redirect_is_not_followed(history, watch_config, event_of):
    said: list[str] = []
    with Receiver() as inside, Receiver(302) as receiver:
        receiver.location = f"{inside.root}/admin"
        with told(history, watch_config(phone=hook(receiver.root)), event_of(), said):
            until(lambda: said)
            assert said[0].endswith("it answered 302, and redirects are not followed.")
        assert inside.posted == [] and len(receiver.posted) == 1
    assert history.count_pending() == {"phone": 1}


@pytest.mark.parametrize("answer", ["never", "slow", "endless"])
def test_who_never_answers_delays_no_other_and_no_end(history, watch_config, event_of, monkeypatch, answer):
    """`slow` sends a byte before each limit of a socket, and would never end."""
    monkeypatch.setattr(channels, "WEBHOOK_TIMEOUT_S", 0.3)
    with Receiver(answer) as receiver, Receiver() as other:
        with told(history, watch_config(a=hook(receiver.root), b=hook(other.root)), event_of()) as running:
            until(lambda: other.posted)
            until(lambda: running.deliveries["a"].failed)
            until(lambda: history.count_pending() == {"a": 1})
    assert history.count_pending() == {"a": 1}


def test_one_that_hangs_is_broken_off_at_the_end(history, watch_config, event_of, monkeypatch):
    monkeypatch.setattr(notifications, "ABORT_S", 0.1)
    with Receiver("never") as receiver:
        running = told(history, watch_config(phone=hook(receiver.root)), event_of()).__enter__()
        until(lambda: receiver.posted)
        began = time.monotonic()
        running.close()
        assert time.monotonic() - began < channels.WEBHOOK_TIMEOUT_S - 1, "it waited for the time-out"
    assert history.count_pending() == {"phone": 1}


def test_user_and_password_are_sent_as_they_are_usual(history, watch_config, event_of):
    with Receiver() as receiver:
        address = receiver.root.replace("http://", "http://me:p%40ss@")
        with told(history, watch_config(a=hook(address)), event_of()):
            until(lambda: not history.count_pending())
        assert {posted.headers["Authorization"] for posted in receiver.posted} == {"Basic bWU6cEBzcw=="}


@pytest.mark.parametrize("url", ["ftp://h/x", "file:///etc/passwd", "/x", "http://", "http://h:99999/", "http://h/a b"])
def test_invalid_addresses(url):
    with pytest.raises(ConfigError) as caught:
        parse_address(url)
    assert url not in str(caught.value)
