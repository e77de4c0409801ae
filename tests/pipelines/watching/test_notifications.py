"""Notifications: which channels announce an event, in which order, and what each channel receives."""

import base64
import hashlib
import hmac
import itertools
import json
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lstr.errors import ConfigError, install_hint
from lstr.pipelines.watching import channels, notifications
from lstr.pipelines.watching.channels import AppriseNotifier, CommandNotifier, WebhookNotifier
from lstr.pipelines.watching.config import ActionConfig, Hours, NotificationConfig, WatchConfig, read_config
from lstr.pipelines.watching.mqtt import MqttNotifier
from lstr.pipelines.watching.notifications import Notifications
from lstr.pipelines.watching.recorder import Policy, Snooze
from tests.support.documents import ROOT, block_with
from tests.support.http_servers import Receiver
from tests.support.processes import limit_file_size
from tests.support.waiting import wait_until
from tests.support.watching import count_pending, event_of, recent_event

NOON = datetime(2026, 11, 26, 12).astimezone()
CHANNELS = dict.fromkeys(("phone", "log"), (CommandNotifier, CommandNotifier.Config(("true",))))
ALWAYS, NIGHT = NotificationConfig(), (Hours("22:00-06:00"),)


def after_noon(seconds: float, source: str = "hall", action: str = "falling"):
    return event_of(source, action, NOON + timedelta(seconds=seconds))


@pytest.fixture
def policy_of(history):
    """A policy with two channels: policy_of(NotificationConfig(…), falling=ActionConfig(…))."""
    files = None, Path("data")
    return lambda rules=ALWAYS, **actions: Policy(WatchConfig(*files, {}, actions, rules, CHANNELS), history)


@pytest.fixture
def store(history):
    """Store an event, and return the channels that announce it."""

    def begin(policy: Policy, *event) -> tuple[str, ...]:
        stored = after_noon(*event)
        channels = policy.channels_of(stored, stored.decided)
        history.begin(stored, channels)
        return channels

    return begin


def test_cooldown(policy_of, store):
    """It holds for one source and action, and ignores events that were stored while the clock was ahead."""
    year = 365 * 86400
    policy = policy_of(NotificationConfig(cooldown=60), falling=ActionConfig(notify=("log",)))
    assert store(policy, year) and store(policy, year + 61)
    announced = [bool(store(policy, seconds)) for seconds in (0, 59, 61, 90, 121)]
    assert announced == [True, False, True, False, True]
    assert store(policy, 122, "yard") and store(policy, 122, "hall", "running")
    policy = policy_of(NotificationConfig(cooldown=60), falling=ActionConfig(cooldown=0))
    assert store(policy, 150)


def test_maximum_per_hour(policy_of, store):
    policy = policy_of(NotificationConfig(max_per_hour=2), running=ActionConfig(notify=("log",)))
    assert store(policy, 0) == ("phone", "log")
    assert store(policy, 10, "hall", "running") == ("log",)
    assert store(policy, 20) == ("phone",)
    assert store(policy, 30) == ()
    assert store(policy, 3605) == ("phone", "log")


def test_quiet_hours(policy_of):
    night, event = NOON.replace(hour=22), after_noon(0)
    for policy in (policy_of(NotificationConfig(quiet=NIGHT)), policy_of(falling=ActionConfig(quiet=NIGHT))):
        assert policy.channels_of(event, NOON) != () == policy.channels_of(event, night)
    assert policy_of(NotificationConfig(quiet=NIGHT), falling=ActionConfig(quiet=())).channels_of(event, night)


def test_snoozes_outlast_a_restart_and_end(policy_of, history):
    now, policy = datetime.now().astimezone(), policy_of()
    policy.snooze("hall", None, now + timedelta(minutes=5))
    policy.snooze("hall", None, now + timedelta(minutes=10))
    policy.snooze(None, "running", now + timedelta(days=1))
    policy.snooze("yard", None, now - timedelta(seconds=1))
    policy = policy_of()
    expected = [("hall", None, now + timedelta(minutes=10)), (None, "running", now + timedelta(days=1))]
    assert policy.snoozes() == [Snooze(*values) for values in expected]

    def announced(minutes: float = 0) -> list[str]:
        events = [after_noon(0, *names) for names in (("hall",), ("yard",), ("yard", "running"))]
        later = now + timedelta(minutes=minutes)
        return [f"{event.source} {event.action}" for event in events if policy.channels_of(event, later)]

    assert announced() == ["yard falling"] and announced(11) == ["hall falling", "yard falling"]
    policy.snooze("hall", "falling", None)  # there is no such snooze
    assert announced() == ["yard falling"]
    policy.snooze(None, "running", None)
    assert announced() == ["yard falling", "yard running"]
    policy.snooze("hall", "falling", now + timedelta(hours=1))
    policy.forget("hall")
    assert len(announced()) == 3 and history.value("snoozed") is None


def ids(receiver: Receiver) -> list[str]:
    return [posted.headers["X-Lstr-Id"] for posted in receiver.posted]


def webhook(root: str, **values):
    return WebhookNotifier, WebhookNotifier.Config(url=f"{root}/in?token=abc123", **values)


def python(code: str, *arguments: str):
    return CommandNotifier, CommandNotifier.Config(command=(sys.executable, "-S", "-c", code, *arguments))


@pytest.fixture
def announce(history):
    """Store events, by default a recent one, and announce them: announce(*events, phone=(kind, table))."""

    def begin(*events, find_image=lambda _: None, **tables) -> Notifications:
        for event in events or [recent_event()]:
            history.begin(event, [*tables])
        return Notifications(tables, history, [].append, find_image)  # printing fails on a full disk

    return begin


def test_a_full_disk_repeats_no_notification(history, announce, monkeypatch):
    monkeypatch.setattr(notifications, "FULL_DISK_PAUSE_S", 0.02)
    with Receiver() as receiver, ExitStack() as stack:
        running = announce(hook=webhook(receiver.root))
        with limit_file_size(0):
            stack.enter_context(running)  # not before: it would deliver at once
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
    with Receiver(500) as receiver, announce(first, second, hook=webhook(receiver.root)) as running:
        wait_until(lambda: running.deliveries["hook"].failed)
        history.begin(third, ["hook"])
        running.wake()
        wait_until(lambda: not count_pending(history))
        assert ids(receiver) == [f"{event.id}.new" for event in (first, second, third, first)]


def test_events_older_than_a_day_are_not_announced(history, announce):
    events = [recent_event(hours * 3600) for hours in (25, 25, 23)]
    with Receiver() as receiver:
        running = announce(*events, hook=webhook(receiver.root))
        for event in events:
            history.update(replace(event, end=event.seen))
        with running:
            wait_until(lambda: not count_pending(history))
        assert ids(receiver) == [f"{events[-1].id}.new", f"{events[-1].id}.end"]


def test_all_threads_end_even_if_a_channel_hangs(history, announce, monkeypatch):
    monkeypatch.setattr(notifications, "ABORT_S", 0.1)
    monkeypatch.setattr("lstr.pipelines.watching.channels.WEBHOOK_TIMEOUT_S", 1000.0)
    before = {*threading.enumerate()}
    with Receiver("never") as receiver:
        channels = {
            "a": (CommandNotifier, CommandNotifier.Config(command=("sleep", "1000"))),
            "b": (MqttNotifier, MqttNotifier.Config(host="127.0.0.1", port=9)),
            "c": (AppriseNotifier, AppriseNotifier.Config(url="json://127.0.0.1:9")),
            "d": webhook(receiver.root),
        }
        with announce(**channels):
            wait_until(lambda: receiver.posted)
            closing = time.monotonic()
        assert time.monotonic() - closing < 500, "it waited for the time-out"
    wait_until(lambda: {*threading.enumerate()} <= before)
    assert count_pending(history) == dict.fromkeys(channels, 1)


def write_distribution(folder: Path, name: str, file: str, text: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / file).write_text(text)


def test_apprise_waits_for_the_image(history, announce, tmp_path):
    event, image = recent_event(), tmp_path / "image.jpg"
    image.write_bytes(b"an image")
    found = itertools.chain([None], itertools.repeat(image))
    with Receiver() as receiver:
        phone = AppriseNotifier, AppriseNotifier.Config(receiver.root.replace("http://", "json://"))
        with announce(event, find_image=lambda _: next(found), phone=phone) as running:
            wait_until(lambda: not count_pending(history))
            history.update(replace(event, end=event.seen))
            running.wake()
            wait_until(lambda: not count_pending(history))
        (posted,) = receiver.posted  # an end is not sent: a message cannot be changed
    message = json.loads(posted.body)
    assert "falling" in message["title"] and "hall" in message["message"]
    (attached,) = message["attachments"]
    assert base64.b64decode(attached["base64"]) == b"an image"


@pytest.mark.parametrize(
    ("notifier", "address", "package"),
    [(AppriseNotifier, "json://h", "apprise"), (MqttNotifier, "localhost", "paho.mqtt.client")],
)
def test_a_missing_extra_is_an_error_with_the_command(monkeypatch, notifier, address, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        notifier("a", notifier.Config(address))
    assert caught.value.hint == install_hint("watch")


def test_a_program_receives_the_event_without_a_shell(history, announce, tmp_path):
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read() + '\\n' + sys.argv[2]); print('x' * 10 ** 6)"
    hostile, output = "$(touch here); `id` *", tmp_path / "output"
    event = recent_event(source="cam; rm -rf $HOME")
    with announce(event, c=python(code, str(output), hostile)):
        wait_until(lambda: not count_pending(history))
    text, argument = output.read_text().split("\n")
    assert argument == hostile and json.loads(text)["event"] == history.find(event.id).to_dict()


def test_a_slow_program_is_killed_with_its_children(announce, tmp_path, monkeypatch):
    monkeypatch.setattr(channels, "PROGRAM_TIMEOUT_S", 1)
    started = tmp_path / "started"
    command = ("sh", "-c", 'sleep 1000 & echo $$ $! > "$0"; wait', str(started))
    with announce(c=(CommandNotifier, CommandNotifier.Config(command))) as running:
        wait_until(lambda: running.deliveries["c"].failed and started.exists())

    def has_ended(pid: str) -> bool:
        with suppress(OSError):  # a child without a parent that waits for it is left as a zombie
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return True

    wait_until(lambda: all(map(has_ended, started.read_text().split())))


def test_a_webhook_is_signed_and_repeated_until_it_succeeds(history, announce, monkeypatch):
    monkeypatch.setattr(notifications, "FIRST_PAUSE_S", 0.02)
    event = recent_event()
    with Receiver(500, 503) as receiver:
        phone = webhook(receiver.root.replace("http://", "http://me:p%40ss@"), secret="hunter2")
        with announce(event, phone=phone) as running:
            wait_until(lambda: not count_pending(history))
            assert running.deliveries["phone"].failed == 2
    assert len(receiver.posted) == 3
    for posted in receiver.posted:
        stamp = posted.headers["X-Lstr-Timestamp"]
        mac = hmac.new(b"hunter2", f"{stamp}.".encode() + posted.body, hashlib.sha256).hexdigest()
        assert posted.headers["X-Lstr-Signature"] == f"sha256={mac}" and abs(time.time() - int(stamp)) < 600
        assert posted.headers["Authorization"] == "Basic bWU6cEBzcw==" and posted.path == "/in?token=abc123"
        message = json.loads(posted.body)
        assert message["notice"] == posted.headers["X-Lstr-Id"] == f"{event.id}.new"
        assert message["phase"] == "new" and message["event"] == history.find(event.id).to_dict()
        assert "falling" in message["sentence"]


FAULTY = {
    "exit code": lambda root: python("import sys; sys.exit(3)"),
    "missing program": lambda root: (CommandNotifier, CommandNotifier.Config(command=("/dev/null/x",))),
    **dict.fromkeys(["never", "slow", "endless", 302, 500], webhook),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_channel_keeps_its_notification_and_delays_no_other(history, announce, monkeypatch, fault):
    """`slow` sends a byte before each limit of a socket, and would never end; a redirect is not followed."""
    monkeypatch.setattr(channels, "WEBHOOK_TIMEOUT_S", 0.3)
    with Receiver(*[fault] * 9) as receiver, Receiver() as other:
        receiver.location = f"{other.root}/admin"
        with announce(a=FAULTY[fault](receiver.root), b=webhook(other.root)) as running:
            wait_until(lambda: running.deliveries["a"].failed)
            wait_until(lambda: count_pending(history) == {"a": 1})
    assert count_pending(history) == {"a": 1} and [posted.path for posted in other.posted] == ["/in?token=abc123"]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://", "http://h:99999/", "http://h/a b"])
def test_invalid_addresses(url):
    with pytest.raises(ConfigError) as caught:
        WebhookNotifier("a", WebhookNotifier.Config(url))
    assert url not in str(caught.value)


def test_the_channel_of_another_package_in_contributing(history, tmp_path, monkeypatch):
    page = ROOT / "CONTRIBUTING.md"
    name, value = block_with(page, "toml", "lstr.sinks").removeprefix('entry-points."lstr.sinks".').split(" = ")
    (tmp_path / f"{json.loads(value).partition(':')[0]}.py").write_text(block_with(page, "python", "Notifier"))
    write_distribution(tmp_path, "notes", "entry_points.txt", f"[lstr.sinks]\n{name} = {json.loads(value)}\n")
    monkeypatch.syspath_prepend(tmp_path)
    channel = f'[channels.notes]\nkind = "{name}"\npath = "{tmp_path / "notes.txt"}"\n'
    (tmp_path / "watch.toml").write_text(f'[sources.hall]\naddress = "http://127.0.0.1:9/hall"\n{channel}')
    event = recent_event()
    history.begin(event, ["notes"])
    with Notifications(read_config(tmp_path / "watch.toml").channels, history, print):
        wait_until(lambda: not count_pending(history))
    assert "falling" in (tmp_path / "notes.txt").read_text()
