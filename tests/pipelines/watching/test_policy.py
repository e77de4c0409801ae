"""Which channels announce an event, with clocks that stand still."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from lstr.pipelines.watching.channels import CommandConfig, CommandNotifier
from lstr.pipelines.watching.config import ActionConfig, Hours, NotificationConfig
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.recorder import Policy, Snooze

NOW = datetime(2026, 11, 26, 14, 3, 12).astimezone()
NOON = NOW.replace(hour=12, minute=0, second=0)
ALWAYS = NotificationConfig()
NIGHT = Hours("22:00-06:00")


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def began(seconds: float, source: str = "hall", action: str = "falling") -> WatchedEvent:
    start = after(seconds)
    return WatchedEvent(new_id(start), source, action, start, start, 0.9, 0.9, start)


@pytest.fixture
def policy_of(watch_config, history):
    """A policy with two channels: policy_of(NotificationConfig(…), falling=ActionConfig(…))."""

    def make(rules: NotificationConfig = ALWAYS, **actions: ActionConfig) -> Policy:
        channels = dict.fromkeys(("phone", "log"), (CommandNotifier, CommandConfig(("true",))))
        return Policy(replace(watch_config(**channels), notifications=rules, actions=actions), history)

    return make


def store(policy: Policy, history: History, event: WatchedEvent) -> tuple[str, ...]:
    channels = policy.channels_of(event, event.decided)
    history.begin(event, channels, event.decided)
    return channels


def test_a_cooldown_and_a_number_an_hour_count_what_was_told(policy_of, history):
    """Of that source and action, and of that channel; what was stored while the clock was ahead does not count."""
    year = 365 * 86400
    policy = policy_of(NotificationConfig(cooldown=60), falling=ActionConfig(notify=("log",)))
    assert store(policy, history, began(year)) and store(policy, history, began(year + 61))
    told = [bool(store(policy, history, began(seconds))) for seconds in (0, 59, 61, 90, 121)]
    assert told == [True, False, True, False, True]
    assert store(policy, history, began(122, source="yard")) and store(policy, history, began(122, action="running"))
    own = policy_of(NotificationConfig(cooldown=60), falling=ActionConfig(cooldown=0))
    assert own.channels_of(began(150), after(150))
    policy = policy_of(NotificationConfig(max_per_hour=2), running=ActionConfig(notify=("log",)))
    assert store(policy, history, began(10000)) == ("phone", "log")
    assert store(policy, history, began(10010, action="running")) == ("log",)
    assert store(policy, history, began(10020)) == ("phone",)
    assert store(policy, history, began(10030)) == ()
    assert store(policy, history, began(13605)) == ("phone", "log")


@pytest.mark.parametrize(("hour", "quiet"), [(21, False), (22, True), (5, True), (6, False)])
def test_quiet_hours_over_midnight(policy_of, hour, quiet):
    now = NOON.replace(hour=hour)
    for policy in (policy_of(NotificationConfig(quiet=(NIGHT,))), policy_of(falling=ActionConfig(quiet=(NIGHT,)))):
        assert (policy.channels_of(began(0), now) == ()) == quiet
    assert policy_of(NotificationConfig(quiet=(NIGHT,)), falling=ActionConfig(quiet=())).channels_of(began(0), now)


def test_a_snooze_is_kept_over_a_restart_and_ends(policy_of, history):
    """Each kind silences what it names; the end of one ends no other."""
    now, policy = datetime.now().astimezone(), policy_of()
    policy.snooze("hall", None, now + timedelta(minutes=5))
    policy.snooze("hall", None, now + timedelta(minutes=10))
    policy.snooze(None, "running", now + timedelta(days=1))
    policy.snooze("yard", None, now - timedelta(seconds=1))
    again = policy_of()
    assert again.snoozes() == [
        Snooze("hall", None, now + timedelta(minutes=10)),
        Snooze(None, "running", now + timedelta(days=1)),
    ]

    def told(minutes: float = 0) -> list[str]:
        places = (("hall", "falling"), ("yard", "falling"), ("yard", "running"))
        later = now + timedelta(minutes=minutes)
        return [" ".join(place) for place in places if again.channels_of(began(0, *place), later)]

    assert told() == ["yard falling"] and told(11) == ["hall falling", "yard falling"]
    again.snooze("hall", "falling", None)
    assert told() == ["yard falling"], "there is no such snooze"
    again.snooze(None, "running", None)
    assert told() == ["yard falling", "yard running"]
    again.snooze("hall", "falling", now + timedelta(hours=1))
    again.forget("hall")
    assert len(told()) == 3 and history.value("snoozed") is None
    history.set_value("snoozed", [{"source": None, "action": None, "until": None}])  # as earlier versions kept one
    assert told(60 * 24 * 400) == []
