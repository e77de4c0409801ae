"""Channels of this package: what Apprise, a program and a webhook get, and what those get that do not answer."""

import base64
import hashlib
import hmac
import json
import shlex
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from lstr import errors
from lstr.errors import ConfigError, install_hint
from lstr.pipelines.watching import channels
from lstr.pipelines.watching.channels import (
    AppriseConfig,
    AppriseNotifier,
    CommandConfig,
    CommandNotifier,
    WebhookConfig,
    WebhookNotifier,
)
from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.mqtt import MqttConfig, MqttNotifier
from lstr.pipelines.watching.notifications import Notifications
from tests.support.documents import ROOT, block_with
from tests.support.waiting import wait_until
from tests.support.watching import count_pending
from tests.support.webhooks import Receiver


@pytest.fixture
def announce(history, watch_config, event_of):
    """Store an event and send it by channels, by their names: announce(phone=(kind, table)) -> notifications."""

    def begin(event=None, find_image=None, **given):
        event = event or event_of()
        history.begin(event, [*given], event.decided)
        return Notifications(watch_config(**given).channels, history, print, find_image or (lambda _: None))

    return begin


def apprise(root: str):
    return AppriseNotifier, AppriseConfig(root.replace("http://", "json://"))


def python(code: str, *arguments: str):
    return CommandNotifier, CommandConfig(command=(sys.executable, "-S", "-c", code, *arguments))


def hook(root: str, **values):
    return WebhookNotifier, WebhookConfig(url=f"{root}/in?token=abc123", **values)


def test_a_notice_waits_for_its_image(history, announce, event_of, tmp_path):
    event, asked, image = event_of(), [], tmp_path / "image.jpg"
    image.write_bytes(b"an image")

    def find(event_id):
        asked.append(event_id)
        return image if len(asked) > 1 else None

    with Receiver() as receiver, announce(event, find, phone=apprise(receiver.root)) as running:
        wait_until(lambda: not count_pending(history))
        history.update(replace(event, end=event.seen), event.seen)
        running.wake()
        wait_until(lambda: not count_pending(history))
        (posted,) = receiver.posted  # an end is not sent: a message cannot be changed
    message = json.loads(posted.body)
    assert "falling" in message["title"] and "hall" in message["message"]
    (attached,) = message["attachments"]
    assert base64.b64decode(attached["base64"]) == b"an image"


@pytest.mark.parametrize(
    ("channel", "package"),
    [
        ((AppriseNotifier, AppriseConfig("json://h")), "apprise"),
        ((MqttNotifier, MqttConfig("localhost")), "paho.mqtt.client"),
    ],
)
def test_a_missing_extra_is_an_error_with_the_command(history, watch_config, monkeypatch, channel, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        Notifications(watch_config(a=channel).channels, history, print)
    assert caught.value.hint == install_hint("watch")


@pytest.mark.parametrize(
    ("origin", "target"),
    [
        ({}, "lstr-video[watch]"),
        ({"url": "file:///src"}, "lstr-video[watch] @ file:///src"),
        (
            {"url": "https://host/lstr", "vcs_info": {"vcs": "git", "commit_id": "1f2e"}},
            "lstr-video[watch] @ git+https://host/lstr@1f2e",
        ),
    ],
)
def test_the_command_fits_the_installation(tmp_path, monkeypatch, origin, target):
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lstr" / "errors.py"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lstr_video-1.dist-info").mkdir()
    (tmp_path / "lstr_video-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lstr-video\n")
    (tmp_path / "lstr_video-1.dist-info" / "direct_url.json").write_text(json.dumps(origin))
    assert shlex.split(install_hint("watch")) == ["pip", "install", target]
    assert Requirement(target).extras == {"watch"}
    (tmp_path / "setup.cfg").touch()
    assert shlex.split(install_hint("watch")) == ["pip", "install", "-e", f"{tmp_path}[watch]"]


def test_a_program_gets_the_event_and_no_shell(history, announce, event_of, tmp_path):
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read() + '\\n' + sys.argv[2]); print('x' * 10 ** 6)"
    odd = "$(touch here); `id` *"
    event = event_of(source="cam; rm -rf $HOME")
    with announce(event, c=python(code, str(tmp_path / "got"), odd)):
        wait_until(lambda: not count_pending(history))
    text, argument = (tmp_path / "got").read_text().split("\n")
    assert argument == odd and json.loads(text)["event"] == history.find(event.id).to_dict()


def test_a_program_that_runs_too_long_is_killed_with_what_it_started(announce, tmp_path, monkeypatch):
    monkeypatch.setattr(channels, "PROGRAM_TIMEOUT_S", 1)
    code = (
        "import os, subprocess, sys, time; sys.stdin.read(); child = subprocess.Popen(['sleep', '1000'])\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid} '); time.sleep(1000)"
    )
    started = tmp_path / "started"
    with announce(c=python(code, str(started))) as running:
        wait_until(lambda: running.deliveries["c"].failed and started.exists())
    for pid in started.read_text().split():
        wait_until(lambda pid=pid: has_ended(int(pid)))


def has_ended(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for is left as a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize(
    "make",
    [
        lambda root: python("import sys; sys.exit(3)"),
        lambda root: (CommandNotifier, CommandConfig(command=("/dev/null/x",))),
        hook,
    ],
    ids=["a status", "no program", "webhook"],
)
def test_what_fails_is_kept_to_be_sent_again(history, announce, make):
    with Receiver(*[500] * 9) as receiver, announce(a=make(receiver.root)) as running:
        wait_until(lambda: running.deliveries["a"].failed)
        assert count_pending(history) == {"a": 1}


def test_a_webhook_is_signed(history, announce, event_of):
    event = event_of()
    with Receiver() as receiver, announce(event, phone=hook(receiver.root, secret="hunter2")):
        wait_until(lambda: not count_pending(history))
        (posted,) = receiver.posted
    assert posted.path == "/in?token=abc123"
    stamp = posted.headers["X-Lstr-Timestamp"]
    mac = hmac.new(b"hunter2", f"{stamp}.".encode() + posted.body, hashlib.sha256).hexdigest()
    assert posted.headers["X-Lstr-Signature"] == f"sha256={mac}" and abs(time.time() - int(stamp)) < 600
    message = json.loads(posted.body)
    assert message["notice"] == posted.headers["X-Lstr-Id"] == f"{event.id}.new"
    assert message["phase"] == "new" and message["event"] == history.find(event.id).to_dict()
    assert "falling" in message["sentence"]


def test_an_error_is_followed_by_one_delivery(history, announce, quick):
    with Receiver(500, 503) as receiver, announce(phone=hook(receiver.root)) as running:
        wait_until(lambda: not count_pending(history))
        assert running.deliveries["phone"].failed == 2
        assert len({posted.headers["X-Lstr-Id"] for posted in receiver.posted}) == 1
        assert len(receiver.posted) == 3


def test_a_redirect_is_not_followed(history, announce):
    with Receiver() as inside, Receiver(302) as receiver:
        receiver.location = f"{inside.root}/admin"
        with announce(phone=hook(receiver.root)) as running:
            wait_until(lambda: running.deliveries["phone"].failed)
        assert inside.posted == [] and len(receiver.posted) == 1
    assert count_pending(history) == {"phone": 1}


@pytest.mark.parametrize("answer", ["never", "slow", "endless"])
def test_who_never_answers_delays_no_other_and_no_end(history, announce, monkeypatch, answer):
    """`slow` sends a byte before each limit of a socket, and would never end."""
    monkeypatch.setattr(channels, "WEBHOOK_TIMEOUT_S", 0.3)
    with Receiver(answer) as receiver, Receiver() as other:
        with announce(a=hook(receiver.root), b=hook(other.root)) as running:
            wait_until(lambda: running.deliveries["a"].failed)
            wait_until(lambda: count_pending(history) == {"a": 1})
    assert count_pending(history) == {"a": 1}


def test_user_and_password_of_an_address_are_sent_as_a_header(history, announce):
    with Receiver() as receiver, announce(a=hook(receiver.root.replace("http://", "http://me:p%40ss@"))):
        wait_until(lambda: not count_pending(history))
        assert {posted.headers["Authorization"] for posted in receiver.posted} == {"Basic bWU6cEBzcw=="}


@pytest.mark.parametrize("url", ["ftp://h/x", "file:///etc/passwd", "/x", "http://", "http://h:99999/", "http://h/a b"])
def test_invalid_addresses(url):
    with pytest.raises(ConfigError) as caught:
        WebhookNotifier("a", WebhookConfig(url))
    assert url not in str(caught.value)


def test_a_kind_of_another_package_announces_events(history, event_of, tmp_path, monkeypatch):
    """The one of CONTRIBUTING.md, installed next to lstr."""
    page = ROOT / "CONTRIBUTING.md"
    name, place = block_with(page, "toml", "lstr.sinks").removeprefix('entry-points."lstr.sinks".').split(" = ")
    module, _, _ = json.loads(place).partition(":")
    (tmp_path / f"{module}.py").write_text(block_with(page, "python", "Notifier"))
    info = tmp_path / "notes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: notes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lstr.sinks]\n{name} = {json.loads(place)}\n")
    channel = f'[channels.notes]\nkind = "{name}"\npath = "{tmp_path / "notes.txt"}"\n'
    (tmp_path / "watch.toml").write_text(f'[sources.hall]\naddress = "http://127.0.0.1:9/hall"\n{channel}')
    monkeypatch.syspath_prepend(tmp_path)
    event = event_of()
    history.begin(event, ["notes"], event.decided)
    with Notifications(read_config(tmp_path / "watch.toml").channels, history, print):
        wait_until(lambda: not count_pending(history))
    assert "falling" in (tmp_path / "notes.txt").read_text()
