"""Which channels announce an event, at given times."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from lstr.pipelines.watching.channels import CommandConfig, CommandNotifier
from lstr.pipelines.watching.config import ActionConfig, Hours, NotificationConfig, WatchConfig
from lstr.pipelines.watching.recorder import Policy, Snooze
from tests.support.watching import event_of

NOON = datetime(2026, 11, 26, 12).astimezone()
CHANNELS = dict.fromkeys(("phone", "log"), (CommandNotifier, CommandConfig(("true",))))
CONFIG = WatchConfig(Path("watch.toml"), None, Path("data"), {}, channels=CHANNELS)
ALWAYS, NIGHT = NotificationConfig(), (Hours("22:00-06:00"),)


def after_noon(seconds: float, source: str = "hall", action: str = "falling"):
    return event_of(source, action, NOON + timedelta(seconds=seconds))


@pytest.fixture
def policy_of(history):
    """A policy with two channels: policy_of(NotificationConfig(…), falling=ActionConfig(…))."""

    def build(rules: NotificationConfig = ALWAYS, **actions: ActionConfig) -> Policy:
        return Policy(replace(CONFIG, notifications=rules, actions=actions), history)

    return build


@pytest.fixture
def store(history):
    """Store an event, and return the channels that announce it."""

    def begin(policy: Policy, *event) -> tuple[str, ...]:
        stored = after_noon(*event)
        channels = policy.channels_of(stored, stored.decided)
        history.begin(stored, channels, stored.decided)
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


@pytest.mark.parametrize(("hour", "quiet"), [(21, False), (22, True), (5, True), (6, False)])
def test_quiet_hours_over_midnight(policy_of, hour, quiet):
    now = NOON.replace(hour=hour)
    for policy in (policy_of(NotificationConfig(quiet=NIGHT)), policy_of(falling=ActionConfig(quiet=NIGHT))):
        assert (policy.channels_of(after_noon(0), now) == ()) == quiet
    assert policy_of(NotificationConfig(quiet=NIGHT), falling=ActionConfig(quiet=())).channels_of(after_noon(0), now)


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
    history.set_value("snoozed", [{"source": None, "action": None, "until": None}])  # stored by earlier versions
    assert announced(60 * 24 * 400) == []
