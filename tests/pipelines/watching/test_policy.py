"""Who is told of what, with clocks that stand still."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from lstr.pipelines.watching.channels import CommandConfig, CommandNotifier
from lstr.pipelines.watching.config import ActionConfig, Hours, NotificationConfig
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.recorder import Policy, Snooze

NOON = datetime(2026, 11, 26, 12).astimezone()
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


def test_all_are_told_but_for_an_action_that_names_some(policy_of):
    policy = policy_of(falling=ActionConfig(notify=("log",)), sitting=ActionConfig(notify=()))
    assert policy.channels_of(began(0, action="running"), NOON) == ("phone", "log")
    assert policy.channels_of(began(0), NOON) == ("log",)
    assert policy.channels_of(began(0, action="sitting"), NOON) == ()


def test_a_cooldown_counts_from_the_start_of_the_last_that_was_told(policy_of, history):
    policy = policy_of(NotificationConfig(cooldown=60))
    told = [bool(store(policy, history, began(seconds))) for seconds in (0, 59, 61, 90, 121)]
    assert told == [True, False, True, False, True]
    assert store(policy, history, began(122, source="yard")) and store(policy, history, began(122, action="running"))
    assert policy_of(NotificationConfig(cooldown=60), falling=ActionConfig(cooldown=0)).channels_of(
        began(150), after(150)
    )


def test_at_most_so_many_an_hour_and_channel(policy_of, history):
    policy = policy_of(NotificationConfig(max_per_hour=2), running=ActionConfig(notify=("log",)))
    assert store(policy, history, began(0)) == ("phone", "log")
    assert store(policy, history, began(10, action="running")) == ("log",)
    assert store(policy, history, began(20)) == ("phone",)
    assert policy.channels_of(began(30), after(30)) == ()
    assert store(policy, history, began(3605)) == ("phone", "log")


def test_what_was_stored_while_the_clock_was_ahead_keeps_nobody_from_being_told(policy_of, history):
    """Nobody was told of that action until the date that the clock had shown."""
    policy, year = policy_of(NotificationConfig(cooldown=60, max_per_hour=2)), 365 * 86400
    assert store(policy, history, began(year)) and store(policy, history, began(year + 61))
    told = [bool(store(policy, history, began(seconds))) for seconds in (0, 59, 61, 122, 3661)]
    assert told == [True, False, True, False, True], "the cool-down, and the number an hour, count as before"


@pytest.mark.parametrize(("hour", "quiet"), [(21, False), (22, True), (5, True), (6, False)])
def test_quiet_hours_over_midnight(policy_of, hour, quiet):
    now = NOON.replace(hour=hour)
    for policy in (policy_of(NotificationConfig(quiet=(NIGHT,))), policy_of(falling=ActionConfig(quiet=(NIGHT,)))):
        assert (policy.channels_of(began(0), now) == ()) == quiet
    assert policy_of(NotificationConfig(quiet=(NIGHT,)), falling=ActionConfig(quiet=())).channels_of(began(0), now)


def test_a_snooze_is_kept_over_a_restart_and_ends(policy_of, history):
    """Each kind silences what it names; the end of one ends no other: people who had snoozed a fall for a day were
    woken when an hour's snooze of all was ended."""
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


def test_a_snooze_without_an_end_holds(policy_of, history):
    """Earlier versions kept such ones, which came by MQTT."""
    history.set_value("snoozed", [{"source": None, "action": None, "until": None}])
    assert policy_of().channels_of(began(0), after(400 * 86400)) == ()
