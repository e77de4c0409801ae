"""What Apprise delivers, and with which picture."""

import base64
import json
import logging
import sys

import pytest
from apprise import AppriseAsset

from lstr.errors import ConfigError
from lstr.pipelines.watching import apprise
from lstr.pipelines.watching.config import AppriseConfig, MqttConfig
from lstr.pipelines.watching.telling import Telling
from tests.support.patience import until
from tests.support.webhooks import Receiver


def reaching(receiver: Receiver) -> AppriseConfig:
    return AppriseConfig(url=receiver.root.replace("http://", "json://someone:hunter2@"))


def test_a_notice_waits_for_its_picture(history, watch_config, event_of, tmp_path):
    event = event_of()
    history.begin(event, ["phone"], event.decided)
    with Receiver() as receiver:
        asked = []

        def picture(event_id):
            asked.append(event_id)
            if len(asked) > 1:
                (tmp_path / f"{event_id}.jpg").write_bytes(b"a picture")
            return tmp_path / f"{event_id}.jpg" if len(asked) > 1 else None

        with Telling(watch_config(phone=reaching(receiver)), history, print, picture) as telling:
            until(lambda: not history.waiting())
            history.end(event.id, event.seen, False, event.seen)
            telling.wake()
            until(lambda: not history.waiting())
        (posted,) = receiver.posted  # an end is not sent: a message cannot be changed
    message = json.loads(posted.body)
    assert message["title"] == "falling in the hall" and message["message"].startswith("falling in the hall, ")
    (attached,) = message["attachments"]
    assert base64.b64decode(attached["base64"]) == b"a picture"


def test_a_picture_that_does_not_come_keeps_no_notice(history, watch_config, event_of, monkeypatch):
    monkeypatch.setattr(apprise, "PATIENCE", 0.2)
    event = event_of()
    history.begin(event, ["phone"], event.decided)
    with Receiver() as receiver, Telling(watch_config(phone=reaching(receiver)), history, print, lambda _: None):
        until(lambda: not history.waiting())
        assert not json.loads(receiver.posted[0].body)["attachments"]


@pytest.mark.skipif(not hasattr(AppriseAsset, "http_redirects"), reason="this version follows redirects")
def test_a_redirect_is_not_followed(history, watch_config, event_of):
    event = event_of()
    history.begin(event, ["phone"], event.decided)
    with Receiver() as inside, Receiver(302) as receiver:
        receiver.location = f"{inside.root}/admin"
        with Telling(watch_config(phone=reaching(receiver)), history, print) as telling:
            until(lambda: telling.deliveries["phone"].failed)
        assert inside.posted == [] and len(receiver.posted) == 1


def test_no_secret_comes_out(history, watch_config, event_of, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    event, said = event_of(), []
    history.begin(event, ["phone"], event.decided)
    with Receiver(*[500] * 9) as receiver:
        config = watch_config(phone=reaching(receiver))
        with Telling(config, history, said.append) as telling:
            until(lambda: telling.deliveries["phone"].failed)
            text = f"{said} {config}"
    text += caplog.text + "".join(capsys.readouterr())
    assert "Apprise could not deliver." in text and "hunter2" not in text and "someone" not in text


@pytest.mark.parametrize(
    ("channel", "package"),
    [(AppriseConfig("json://h"), "apprise"), (MqttConfig("localhost"), "paho.mqtt.client")],
)
def test_an_extra_that_is_missing_is_one_sentence(history, watch_config, monkeypatch, channel, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match="is not installed") as caught:
        Telling(watch_config(a=channel), history, print)
    assert caught.value.hint == "pip install 'lstr-video[watch]'"
