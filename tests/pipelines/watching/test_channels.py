"""Channels of this package: what Apprise, a program and a webhook get, and what those get that do not answer."""

import base64
import hashlib
import hmac
import json
import logging
import os
import sys
import time

import pytest

from lstr.errors import ConfigError
from lstr.pipelines.watching import channels, notifications
from lstr.pipelines.watching.channels import (
    AppriseConfig,
    AppriseNotifier,
    CommandConfig,
    CommandNotifier,
    WebhookConfig,
    WebhookNotifier,
)
from lstr.pipelines.watching.mqtt import MqttConfig, MqttNotifier
from lstr.pipelines.watching.notifications import Notifications
from tests.support.patience import until
from tests.support.watching import count_pending
from tests.support.webhooks import Receiver


def told(history, config, event, said=None):
    """Notifications with a stored event."""
    history.begin(event, [*config.channels], event.decided)
    return Notifications(config.channels, history, (said if said is not None else []).append)


@pytest.fixture
def phone(watch_config):
    """A configuration whose channel sends to a receiver."""
    return lambda receiver: watch_config(
        phone=(AppriseNotifier, AppriseConfig(receiver.root.replace("http://", "json://someone:hunter2@")))
    )


def test_a_notice_waits_for_its_image(history, phone, event_of, tmp_path):
    event = event_of()
    history.begin(event, ["phone"], event.decided)
    with Receiver() as receiver:
        asked = []

        def find(event_id):
            asked.append(event_id)
            if len(asked) > 1:
                (tmp_path / f"{event_id}.jpg").write_bytes(b"an image")
            return tmp_path / f"{event_id}.jpg" if len(asked) > 1 else None

        with Notifications(phone(receiver).channels, history, print, find) as running:
            until(lambda: not count_pending(history))
            history.end(event.id, event.seen, False, event.seen)
            running.wake()
            until(lambda: not count_pending(history))
        (posted,) = receiver.posted  # an end is not sent: a message cannot be changed
    message = json.loads(posted.body)
    assert message["title"] == "falling in the hall" and message["message"].startswith("falling in the hall, ")
    (attached,) = message["attachments"]
    assert base64.b64decode(attached["base64"]) == b"an image"


def test_an_image_that_does_not_come_delays_no_notice_for_ever(history, phone, event_of, monkeypatch):
    monkeypatch.setattr(channels, "IMAGE_TIMEOUT_S", 0.2)
    event = event_of()
    history.begin(event, ["phone"], event.decided)
    with Receiver() as receiver, Notifications(phone(receiver).channels, history, print, lambda _: None):
        until(lambda: not count_pending(history))
        assert not json.loads(receiver.posted[0].body)["attachments"]


def test_no_secret_comes_out(history, phone, event_of, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    event, log = event_of(), []
    history.begin(event, ["phone"], event.decided)
    with Receiver(*[500] * 9) as receiver:
        config = phone(receiver)
        with Notifications(config.channels, history, log.append) as running:
            until(lambda: running.deliveries["phone"].failed)
            text = f"{log} {config}"
    text += caplog.text + "".join(capsys.readouterr())
    assert "Apprise could not deliver." in text and "hunter2" not in text and "someone" not in text


@pytest.mark.parametrize(
    ("channel", "package"),
    [
        ((AppriseNotifier, AppriseConfig("json://h")), "apprise"),
        ((MqttNotifier, MqttConfig("localhost")), "paho.mqtt.client"),
    ],
)
def test_a_missing_extra_is_one_sentence(history, watch_config, monkeypatch, channel, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match="not installed") as caught:
        Notifications(watch_config(a=channel).channels, history, print)
    assert caught.value.hint == "pip install 'lstr-video[watch]'"


def python(code: str, *arguments: str):
    return CommandNotifier, CommandConfig(command=(sys.executable, "-S", "-c", code, *arguments))


def test_it_gets_the_event_and_no_shell(history, watch_config, event_of, tmp_path):
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read() + '\\n' + sys.argv[2]); print('x' * 10 ** 6)"
    odd = "$(touch here); `id` *"
    event = event_of(source="cam; rm -rf $HOME")
    with told(history, watch_config(c=python(code, str(tmp_path / "got"), odd)), event):
        until(lambda: not count_pending(history))
    text, argument = (tmp_path / "got").read_text().split("\n")
    assert argument == odd and json.loads(text)["event"] == history.find(event.id).to_dict()


def test_one_that_fails_is_started_again(history, watch_config, event_of, tmp_path, quick):
    code = "import os, sys; n = sys.argv[1]; sys.exit(0 if os.path.exists(n) else open(n, 'w').close() or 3)"
    with told(history, watch_config(c=python(code, str(tmp_path / "once"))), event_of()) as telling:
        until(lambda: not count_pending(history))
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


def hook(root: str, **values):
    return WebhookNotifier, WebhookConfig(url=f"{root}/in?token=abc123", **values)


def test_what_arrives_is_signed(history, watch_config, event_of):
    event = event_of()
    with Receiver() as receiver:
        with told(history, watch_config(phone=hook(receiver.root, secret="hunter2")), event):
            until(lambda: not count_pending(history))
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
            until(lambda: not count_pending(history))
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
    assert count_pending(history) == {"phone": 1}


@pytest.mark.parametrize("answer", ["never", "slow", "endless"])
def test_who_never_answers_delays_no_other_and_no_end(history, watch_config, event_of, monkeypatch, answer):
    """`slow` sends a byte before each limit of a socket, and would never end."""
    monkeypatch.setattr(channels, "WEBHOOK_TIMEOUT_S", 0.3)
    with Receiver(answer) as receiver, Receiver() as other:
        with told(history, watch_config(a=hook(receiver.root), b=hook(other.root)), event_of()) as running:
            until(lambda: other.posted)
            until(lambda: running.deliveries["a"].failed)
            until(lambda: count_pending(history) == {"a": 1})
    assert count_pending(history) == {"a": 1}


def test_one_that_hangs_is_broken_off_at_the_end(history, watch_config, event_of, monkeypatch):
    monkeypatch.setattr(notifications, "ABORT_S", 0.1)
    with Receiver("never") as receiver:
        running = told(history, watch_config(phone=hook(receiver.root)), event_of()).__enter__()
        until(lambda: receiver.posted)
        began = time.monotonic()
        running.__exit__()
        assert time.monotonic() - began < channels.WEBHOOK_TIMEOUT_S - 1, "it waited for the time-out"
    assert count_pending(history) == {"phone": 1}


def test_user_and_password_are_sent_as_they_are_usual(history, watch_config, event_of):
    with Receiver() as receiver:
        address = receiver.root.replace("http://", "http://me:p%40ss@")
        with told(history, watch_config(a=hook(address)), event_of()):
            until(lambda: not count_pending(history))
        assert {posted.headers["Authorization"] for posted in receiver.posted} == {"Basic bWU6cEBzcw=="}


@pytest.mark.parametrize("url", ["ftp://h/x", "file:///etc/passwd", "/x", "http://", "http://h:99999/", "http://h/a b"])
def test_invalid_addresses(url):
    with pytest.raises(ConfigError) as caught:
        WebhookNotifier("a", WebhookConfig(url))
    assert url not in str(caught.value)
