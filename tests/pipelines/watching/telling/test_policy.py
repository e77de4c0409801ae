"""Who is told of what, with clocks that stand still."""

from dataclasses import replace
from datetime import datetime, time, timedelta

import pytest

from lstr.pipelines.watching.config import ActionConfig, ChannelConfig, Hours, TellingConfig
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.telling.policy import Policy, Snooze

NOON = datetime(2026, 11, 26, 12).astimezone()
ALWAYS = TellingConfig()
NIGHT = Hours(time(22), time(6))


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def began(seconds: float, source: str = "hall", action: str = "falling") -> WatchedEvent:
    start = after(seconds)
    return WatchedEvent(new_id(start), source, action, start, start, 0.9, 0.9, start)


@pytest.fixture
def policy_of(watch_config, history):
    """A policy with two channels: policy_of(TellingConfig(…), falling=ActionConfig(…))."""

    def make(telling: TellingConfig = ALWAYS, **actions: ActionConfig) -> Policy:
        channels = {"phone": ChannelConfig("command", command=("true",)), "log": ChannelConfig("command")}
        return Policy(replace(watch_config(**channels), telling=telling, actions=actions), history)

    return make


def store(policy: Policy, history: History, event: WatchedEvent) -> tuple[str, ...]:
    channels = policy.channels_of(event, event.decided)
    history.begin(event, channels, event.decided)
    return channels


def test_all_are_told_but_for_an_action_that_names_some(policy_of):
    policy = policy_of(falling=ActionConfig(tell=("log",)), sitting=ActionConfig(tell=()))
    assert policy.channels_of(began(0, action="running"), NOON) == ("phone", "log")
    assert policy.channels_of(began(0), NOON) == ("log",)
    assert policy.why(began(0), NOON) == {"phone": "falling is not for it"}
    assert policy.channels_of(began(0, action="sitting"), NOON) == ()


def test_a_cooldown_counts_from_the_start_of_the_last_that_was_told(policy_of, history):
    policy = policy_of(TellingConfig(cooldown=60))
    told = [bool(store(policy, history, began(seconds))) for seconds in (0, 59, 61, 90, 121)]
    assert told == [True, False, True, False, True]
    assert store(policy, history, began(122, source="yard")) and store(policy, history, began(122, action="running"))
    assert policy.why(began(150), after(150))["phone"] == "the last of it began less than 1 min before"
    assert policy_of(TellingConfig(cooldown=60), falling=ActionConfig(cooldown=0)).channels_of(began(150), after(150))


def test_at_most_so_many_an_hour_and_channel(policy_of, history):
    policy = policy_of(TellingConfig(most_an_hour=2), running=ActionConfig(tell=("log",)))
    assert store(policy, history, began(0)) == ("phone", "log")
    assert store(policy, history, began(10, action="running")) == ("log",)
    assert store(policy, history, began(20)) == ("phone",)
    assert policy.why(began(30), after(30)) == dict.fromkeys(
        ("phone", "log"), "it was told of 2 events within the hour"
    )
    assert store(policy, history, began(3605)) == ("phone", "log")


def test_what_was_stored_while_the_clock_was_ahead_keeps_nobody_from_being_told(policy_of, history):
    """Nobody was told of that action until the date that the clock had shown."""
    policy, year = policy_of(TellingConfig(cooldown=60, most_an_hour=2)), 365 * 86400
    assert store(policy, history, began(year)) and store(policy, history, began(year + 61))
    told = [bool(store(policy, history, began(seconds))) for seconds in (0, 59, 61, 122, 3661)]
    assert told == [True, False, True, False, True], "the cool-down, and the number an hour, count as before"


@pytest.mark.parametrize(("hour", "quiet"), [(21, False), (22, True), (23, True), (5, True), (6, False)])
def test_quiet_hours_over_midnight(policy_of, hour, quiet):
    now = NOON.replace(hour=hour)
    for policy in (policy_of(TellingConfig(quiet=(NIGHT,))), policy_of(falling=ActionConfig(quiet=(NIGHT,)))):
        assert (policy.why(began(0), now) != {}) == quiet
    assert policy_of(TellingConfig(quiet=(NIGHT,)), falling=ActionConfig(quiet=())).why(began(0), now) == {}


@pytest.mark.parametrize(
    ("source", "action", "silent"),
    [
        (None, None, {("hall", "falling"), ("hall", "running"), ("yard", "falling"), ("yard", "running")}),
        ("hall", None, {("hall", "falling"), ("hall", "running")}),
        (None, "falling", {("hall", "falling"), ("yard", "falling")}),
        ("hall", "falling", {("hall", "falling")}),
    ],
)
def test_a_snooze_of_each_kind(policy_of, source, action, silent):
    policy = policy_of()
    policy.snooze(source, action, datetime.now().astimezone() + timedelta(hours=1))
    now = datetime.now().astimezone()
    for places in (silent, set()):
        found = {(s, a) for s in ("hall", "yard") for a in ("falling", "running") if policy.why(began(0, s, a), now)}
        assert found == places
        policy.wake(source, action)


def test_a_snooze_is_kept_over_a_restart_and_ends(watch_config, policy_of, history):
    now = datetime.now().astimezone()
    policy = policy_of()
    policy.snooze("hall", None, now + timedelta(minutes=5))
    policy.snooze("hall", None, now + timedelta(minutes=10))
    policy.snooze(None, "running", None)
    policy.snooze("yard", None, now - timedelta(seconds=1))
    with_another = policy_of()
    assert with_another.snoozed() == [
        Snooze("hall", None, now + timedelta(minutes=10)),
        Snooze(None, "running", None),
    ]
    assert with_another.channels_of(began(0), now) == ()
    assert with_another.channels_of(began(0), now + timedelta(minutes=11)) == ("phone", "log")
    assert with_another.why(began(0, action="running"), now + timedelta(days=400))["log"] == "snoozed"
    assert with_another.wake("hall") == 1 and with_another.wake() == 1 and policy.snoozed() == []
    assert history.kept("snoozed") is None


def test_the_end_of_one_snooze_ends_no_other(policy_of):
    """People who had snoozed a fall for a day were woken when an hour's snooze of all was ended."""
    policy, until = policy_of(), datetime.now().astimezone() + timedelta(hours=1)
    kinds = [(None, None), ("hall", None), (None, "falling"), ("hall", "falling")]
    for kind in kinds:
        policy.snooze(*kind, until)
    for kind in kinds:
        policy.end(*kind)
        kept = [(snooze.source, snooze.action) for snooze in policy.snoozed()]
        assert kept == kinds[kinds.index(kind) + 1 :]
