"""Decisions of a source become events of the history, and which channels announce them."""

from contextlib import contextmanager
from datetime import datetime, timedelta

import numpy as np
import pytest
from msgspec.structs import replace

from lstr.pipelines.detection.decision import Decision, End, Opened, Status
from lstr.pipelines.watching import recorder as module
from lstr.pipelines.watching.channels import CommandConfig, CommandNotifier
from lstr.pipelines.watching.config import ActionConfig, Hours, NotificationConfig
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.recorder import Policy, Recorder, RecorderSink, Snooze
from lstr.timeline import Event

NOW = datetime(2026, 11, 26, 14, 3, 12).astimezone()
NOON = NOW.replace(hour=12, minute=0, second=0)
ALWAYS = NotificationConfig()
NIGHT = Hours("22:00-06:00")


def decision(chunk: int, score: float, *events: Event) -> Decision:
    at = NOW + timedelta(seconds=chunk / 4)
    scores = np.array([1 - score, score], np.float32)
    return Decision(chunk, chunk / 4, "falling", score, [], 1.0, [*events], scores, at=at, source="hall")


def moment(kind: str, chunk: int, **more) -> Event:
    at = NOW + timedelta(seconds=chunk / 4)
    return Event(kind, "falling", chunk / 4, chunk / 4, 0.6, at=at, start_at=at - timedelta(seconds=1), **more)


@pytest.fixture
def log():
    """Stored phases, and sentences of the log."""
    return []


@pytest.fixture
def recorder(history, log):
    return Recorder(history, lambda event, now: ("phone",), lambda event, phase: log.append(phase), log.append)


def sink_of(recorder) -> RecorderSink:
    made = RecorderSink(recorder, "fall.lstr", {"falling": 0.1})
    made.open(Opened("hall", Status("hall"), ("other", "falling")))
    return made


def test_an_event_from_its_start_to_its_end(recorder, history, log):
    sink = sink_of(recorder)
    sink.take(decision(0, 0.1))
    assert not history.events()
    sink.take(decision(1, 0.6, moment("started", 1)))
    (known,) = history.events()
    assert (known.source, known.action, known.score, known.model) == ("hall", "falling", 0.6, "fall.lstr")
    assert known.false_alarms == 0.1 and known.start == NOW - timedelta(seconds=0.75) and known.end is None
    assert [notice.event.id for notice in history.pending("phone")] == [known.id]
    sink.take(decision(2, 0.9))
    end = NOW + timedelta(seconds=0.75)
    sink.take(decision(3, 0.2, moment("ended", 3, end=0.75, end_at=end)))
    (known,) = history.events()
    assert known.end == end and not known.still_on and known.top_score == pytest.approx(0.9)
    assert log == ["new", "update", "end"], "its top score rose"


def test_that_it_is_still_active_is_stored_from_time_to_time(recorder, history, monkeypatch):
    sink = sink_of(recorder)
    sink.take(decision(1, 0.6, moment("started", 1)))
    sink.take(decision(2, 0.62))
    assert history.events()[0].top_score == 0.6, "it rose by little"
    sink.take(decision(2, 0.82))
    monkeypatch.setattr(module, "RENEW_S", -1.0)
    sink.take(decision(3, 0.7))
    (known,) = history.events()
    assert known.top_score == pytest.approx(0.82) and known.seen == NOW + timedelta(seconds=0.75)
    sink.close(End())
    (known,) = history.events()
    assert known.still_on and known.end == NOW + timedelta(seconds=0.75), "the end of the source ends the event"


@contextmanager
def full(history):
    """Every write fails, as on a full disk."""
    history._connection.execute("PRAGMA query_only=ON")
    yield
    history._connection.execute("PRAGMA query_only=OFF")


def test_changes_wait_for_room_on_the_disk_after_the_end_of_their_source(recorder, history, log):
    first, second = sink_of(recorder), sink_of(recorder)
    first.take(decision(1, 0.6, moment("started", 1)))
    with full(history):
        first.close(End())
        second.take(decision(3, 0.7, moment("started", 3)))
        assert log[0] == "new" and len(log) == 2
    recorder.flush()
    later, earlier = history.events()
    assert earlier.end and earlier.still_on and later.end is None
    assert log[2:4] == ["end", "new"] and len(log) == 5


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
