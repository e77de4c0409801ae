"""What Apprise delivers, and with which image."""

import base64
import json
import logging
import sys

import pytest

from lstr.errors import ConfigError
from lstr.pipelines.watching import channels
from lstr.pipelines.watching.channels import AppriseConfig, AppriseNotifier
from lstr.pipelines.watching.mqtt import MqttConfig, MqttNotifier
from lstr.pipelines.watching.notifications import Notifications
from tests.support.patience import until
from tests.support.webhooks import Receiver


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

        with Notifications(phone(receiver), history, print, find) as running:
            until(lambda: not history.count_pending())
            history.end(event.id, event.seen, False, event.seen)
            running.wake()
            until(lambda: not history.count_pending())
        (posted,) = receiver.posted  # an end is not sent: a message cannot be changed
    message = json.loads(posted.body)
    assert message["title"] == "falling in the hall" and message["message"].startswith("falling in the hall, ")
    (attached,) = message["attachments"]
    assert base64.b64decode(attached["base64"]) == b"an image"


def test_an_image_that_does_not_come_delays_no_notice_for_ever(history, phone, event_of, monkeypatch):
    monkeypatch.setattr(channels, "IMAGE_TIMEOUT_S", 0.2)
    event = event_of()
    history.begin(event, ["phone"], event.decided)
    with Receiver() as receiver, Notifications(phone(receiver), history, print, lambda _: None):
        until(lambda: not history.count_pending())
        assert not json.loads(receiver.posted[0].body)["attachments"]


def test_no_secret_comes_out(history, phone, event_of, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    event, log = event_of(), []
    history.begin(event, ["phone"], event.decided)
    with Receiver(*[500] * 9) as receiver:
        config = phone(receiver)
        with Notifications(config, history, log.append) as running:
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
        Notifications(watch_config(a=channel), history, print)
    assert caught.value.hint == "pip install 'lstr-video[watch]'"
