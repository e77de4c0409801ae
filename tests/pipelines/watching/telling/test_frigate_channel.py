"""Frigate as a channel, against a stand-in of the interface that it documents, not against Frigate."""

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lstr.pipelines.watching.config import ChannelConfig, SourceConfig, WatchConfig
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.telling import delivery, exchange, frigate_channel
from lstr.pipelines.watching.telling.channel import ChannelError
from lstr.pipelines.watching.telling.frigate_api import safe_label
from lstr.pipelines.watching.telling.telling import Telling
from tests.support.frigate import COOKIE, StandIn

pytestmark = pytest.mark.long  # a server and seconds of waiting

PASSWORD = "hunter2-long-enough"


@pytest.fixture(autouse=True)
def soon(quick, monkeypatch):
    monkeypatch.setattr(frigate_channel, "SETTLING", 0.05)


@pytest.fixture
def config_of(watch_config) -> Callable[..., WatchConfig]:
    """A configuration in which a stand-in is the channel `nvr`, and the source `door` is its camera `front_door`."""

    def make(nvr: StandIn, **values) -> WatchConfig:
        sources = {"hall": SourceConfig("rtsp://x/"), "door": SourceConfig("rtsp://y/", camera="front_door")}
        return replace(watch_config(nvr=ChannelConfig("frigate", url=nvr.url, **values)), sources=sources)

    return make


def begun(history: History, event) -> None:
    history.begin(event, ["nvr"], event.decided)


def ended(history: History, event, after: float = 0.0):
    end = event.seen + timedelta(seconds=after)
    history.end(event.id, end, False, end)
    return end.timestamp()


def test_an_event_is_created_open_and_ended_at_its_end(history, config_of, event_of, eventually):
    event = event_of(source="door", ago=4)
    with StandIn() as nvr, Telling(config_of(nvr), history, print) as telling:
        begun(history, event)
        telling.wake()
        eventually(nvr.created)
        eventually(lambda: telling.status()["nvr"].delivered == 1)
        (made,) = nvr.created()
        assert (made["camera"], made["label"], made["sub_label"]) == ("front_door", "falling", "lstr")
        assert made["end_time"] is None and made["data"]["score"] == 0.9 and made["has_clip"]
        assert 4 < event.start.timestamp() - made["start_time"] < 7, "five seconds before the action, in whole seconds"
        end = ended(history, event)
        telling.wake()
        eventually(lambda: made["end_time"])
        eventually(lambda: not history.waiting())
    assert made["end_time"] == end and history.kept("frigate nvr") is None
    assert [(asked.method, asked.path.rpartition("/")[2]) for asked in nvr.asked] == [
        ("POST", "create"),
        ("PUT", "end"),
    ]


def test_what_is_told_late_begins_and_ends_when_it_did(history, config_of, event_of, eventually):
    event = event_of(ago=600, seen=datetime.now().astimezone() - timedelta(seconds=500))
    begun(history, event)
    end = ended(history, event)
    with StandIn() as nvr, Telling(config_of(nvr, recording=False, pre_capture=0.0), history, print):
        eventually(lambda: not history.waiting())
    (made,) = nvr.created()
    assert abs(made["start_time"] - event.start.timestamp()) < 2 and made["end_time"] == end and not made["has_clip"]


def test_a_lost_answer_makes_no_second_event(history, config_of, event_of, eventually):
    event, said = event_of(), []
    with StandIn() as nvr, Telling(config_of(nvr), history, said.append) as telling:
        nvr.answers.append("lost")
        begun(history, event)
        telling.wake()
        eventually(lambda: not history.waiting())
        ended(history, event)
        telling.wake()
        eventually(lambda: nvr.created()[0]["end_time"])
        eventually(lambda: not history.waiting())
    assert len(nvr.created()) == 1 and len([a for a in nvr.asked if a.path.endswith("create")]) == 1
    assert "its answer" in said[0] and said[1] == "nvr is told again."


def test_a_request_that_never_came_is_made_again(history, config_of, event_of, eventually):
    """Nothing is found of it; what another one has created is left alone."""
    with StandIn() as nvr, Telling(config_of(nvr), history, print) as telling:
        other, event = event_of(score=0.5), event_of(score=0.7)
        begun(history, other)
        telling.wake()
        eventually(lambda: telling.status()["nvr"].delivered == 1)
        nvr.answers.append(502)
        begun(history, event)
        telling.wake()
        eventually(lambda: telling.status()["nvr"].delivered == 2)
    assert [made["data"]["score"] for made in nvr.created()] == [0.5, 0.7]


@pytest.mark.parametrize("answer", ["kept", "lost"])
def test_after_a_restart_its_end_reaches_the_same_event(history, config_of, event_of, eventually, answer):
    event = event_of()
    with StandIn() as nvr:
        with Telling(config_of(nvr), history, print) as telling:
            if answer == "lost":
                nvr.answers += ["lost", *[503] * 50]
            begun(history, event)
            telling.wake()
            eventually(lambda: telling.status()["nvr"].delivered or telling.status()["nvr"].failed > 1)
        nvr.answers.clear()
        history.hasten("nvr", datetime.now().astimezone())
        end = ended(history, event)
        with Telling(config_of(nvr), history, print):
            eventually(lambda: not history.waiting())
    (made,) = nvr.created()
    assert made["end_time"] == end


def test_an_event_that_is_told_no_more_is_not_left_open(history, config_of, event_of, eventually, monkeypatch):
    """Its answer was lost, and then Frigate was out of reach until the notice was dropped."""
    lost, later = event_of(), event_of(source="door", score=0.6)
    with StandIn() as nvr:
        with Telling(config_of(nvr), history, print) as telling:
            nvr.answers += ["lost", *[503] * 50]
            begun(history, lost)
            telling.wake()
            eventually(lambda: telling.status()["nvr"].failed > 1)
        nvr.answers.clear()
        end = ended(history, lost)
        (notice,) = history.due("nvr", datetime.now().astimezone() + timedelta(days=1))
        history.drop(notice, datetime.now().astimezone(), "older than a day")
        monkeypatch.setattr(frigate_channel, "LOST", timedelta(0))
        with Telling(config_of(nvr), history, print) as telling:
            begun(history, later)
            telling.wake()
            eventually(lambda: telling.status()["nvr"].delivered == 1)
            eventually(lambda: {*history.kept("frigate nvr")} == {later.id})
    first, second = nvr.created()
    assert first["end_time"] == end and second["end_time"] is None


def test_an_event_that_was_deleted_there_is_over(history, config_of, event_of, eventually, monkeypatch):
    event = event_of()
    with StandIn() as nvr, Telling(config_of(nvr), history, print) as telling:
        begun(history, event)
        telling.wake()
        eventually(lambda: telling.status()["nvr"].delivered == 1)
        nvr.events.clear()
        ended(history, event)
        telling.wake()
        eventually(lambda: telling.status()["nvr"].last_error == "it does not know the event that it has created.")
        monkeypatch.setattr(frigate_channel, "KNOWN", timedelta(0))
        eventually(lambda: not history.waiting())


def test_an_end_before_its_beginning_is_now(history, config_of, event_of, eventually):
    """The clocks of two machines are not the same."""
    event = event_of(ago=1)
    with StandIn() as nvr, Telling(config_of(nvr), history, print) as telling:
        begun(history, event)
        telling.wake()
        eventually(lambda: telling.status()["nvr"].delivered == 1)
        ended(history, event, after=-3600.0)
        telling.wake()
        eventually(lambda: not history.waiting())
    assert time.time() - nvr.created()[0]["end_time"] < 600


def test_a_login_and_another_when_it_has_run_out(history, config_of, event_of, eventually):
    event, said = event_of(), []
    with StandIn(PASSWORD) as nvr:
        with Telling(config_of(nvr, user="lstr", password=PASSWORD), history, said.append) as telling:
            begun(history, event)
            telling.wake()
            eventually(lambda: telling.status()["nvr"].delivered == 1)
            nvr.expire()
            ended(history, event)
            telling.wake()
            eventually(lambda: not history.waiting())
    assert nvr.logins == 2 and not said and nvr.created()[0]["end_time"]
    assert all(asked.cookie.startswith(f"{COOKIE}=token-") for asked in nvr.asked)


@pytest.mark.parametrize(
    ("stand_in", "user", "source", "reason"),
    [
        ({"password": PASSWORD}, ("lstr", "wrong"), "hall", "it refuses user and password."),
        (
            {"password": PASSWORD},
            ("", ""),
            "hall",
            "it answered 401; it wants to know who asks: give user and password.",
        ),
        ({"role": "viewer"}, ("", ""), "hall", "it answered 403; the user has to have the role admin."),
        ({}, ("", ""), "attic", "it answered 404."),
    ],
)
def test_refusals_are_told_and_tried_again(history, config_of, event_of, eventually, stand_in, user, source, reason):
    event, said = event_of(source=source), []
    with StandIn(**stand_in) as nvr:
        config = config_of(nvr, user=user[0], password=user[1])
        with Telling(config, history, said.append) as telling:
            begun(history, event)
            telling.wake()
            eventually(lambda: telling.status()["nvr"].failed > 1)
            assert telling.status()["nvr"].last_error == reason and history.waiting() == {"nvr": 1}
        assert not nvr.events and history.kept("frigate nvr") is None, "nothing may be open of what was refused"
    assert said[0].endswith(f"and is tried again: {reason}") and "wrong" not in str(said)


def test_a_redirect_and_what_is_no_answer(history, config_of, event_of, eventually):
    event = event_of()
    with StandIn() as nvr, Telling(config_of(nvr), history, print) as telling:
        nvr.answers += [302, 200, 200]
        begun(history, event)
        telling.wake()
        eventually(lambda: not history.waiting())
    assert len(nvr.created()) == 1 and not [asked for asked in nvr.asked if asked.path == "/elsewhere"]


def test_one_that_never_answers_is_not_waited_for(history, config_of, event_of, eventually, monkeypatch):
    monkeypatch.setattr(exchange, "SECONDS", 0.3)
    monkeypatch.setattr(exchange, "TICK", 0.05)
    event = event_of()
    with StandIn() as nvr, Telling(config_of(nvr), history, print) as telling:
        nvr.answers.append("never")
        begun(history, event)
        telling.wake()
        eventually(lambda: telling.status()["nvr"].failed)
        eventually(lambda: not history.waiting())
    assert len(nvr.created()) == 1


def test_the_person_whom_it_follows_gets_a_sub_label(history, config_of, event_of, eventually):
    event, now = event_of(source="door", action="x" * 300, top_score=1.0), time.time()
    with StandIn() as nvr, Telling(config_of(nvr, as_what="sub_label"), history, print) as telling:
        nvr.person("long ago", "front_door", now - 900, now - 800)
        nvr.person("older", "front_door", now - 60)
        nvr.person("newer", "front_door", now - 30)
        nvr.person("gone", "front_door", now - 10, now - 1)
        nvr.person("elsewhere", "hall", now - 5)
        begun(history, event)
        telling.wake()
        eventually(lambda: not history.waiting())
        ended(history, event)
        telling.wake()
        eventually(lambda: not history.waiting())
    labels = {name: person["sub_label"] for name, person in nvr.events.items() if person["sub_label"]}
    assert labels == {"newer": "x" * 100} and nvr.events["newer"]["data"]["sub_label_score"] == 1.0
    assert len(nvr.requests("POST")) == 1, "there is nothing to end"


def test_whom_it_has_just_lost_sight_of_gets_it_too(history, config_of, event_of, eventually):
    event, now = event_of(ago=4), time.time()
    begun(history, event)
    with StandIn() as nvr:
        nvr.person("fell", "hall", now - 30, now - 2)
        nvr.person("before", "hall", now - 90, now - 40)
        with Telling(config_of(nvr, as_what="sub_label"), history, print):
            eventually(lambda: not history.waiting())
    assert nvr.events["fell"]["sub_label"] == "falling" and not nvr.events["before"]["sub_label"]


def test_a_person_is_waited_for_and_then_nobody_is_told(history, config_of, event_of, eventually, monkeypatch):
    late, never, said = event_of(), event_of(source="door"), []
    with StandIn() as nvr, Telling(config_of(nvr, as_what="sub_label"), history, said.append) as telling:
        begun(history, late)
        telling.wake()
        eventually(lambda: telling.status()["nvr"].last_error == "Frigate follows no person on hall.")
        nvr.person("p", "hall", time.time() - 1)
        eventually(lambda: not history.waiting())
        monkeypatch.setattr(frigate_channel, "PATIENCE", timedelta(0))
        begun(history, never)
        telling.wake()
        eventually(lambda: not history.waiting())
        assert telling.status()["nvr"].delivered == 1
    assert nvr.events["p"]["sub_label"] == "falling"
    assert said[-1] == "nvr is not told of falling in the door: Frigate follows no person on front_door."


@pytest.mark.skipif(not shutil.which("openssl"), reason="nothing makes a certificate")
def test_a_certificate_that_it_has_made_for_itself(history, config_of, event_of, eventually, tmp_path, monkeypatch):
    key, certificate, other = (str(tmp_path / name) for name in ("key.pem", "own.pem", "other.pem"))
    for path in (other, certificate):
        words = ["openssl", "req", "-newkey", "rsa:2048", "-days", "2", "-nodes", "-x509", "-subj", "/CN=*"]
        subprocess.run([*words, "-keyout", key, "-out", path], check=True, capture_output=True)
    monkeypatch.setattr(delivery, "FIRST", 0.3)
    event = event_of()
    with StandIn(certificate=(key, certificate)) as nvr:
        begun(history, event)
        for trusted in (None, Path(other)):
            with Telling(config_of(nvr, certificate=trusted), history, print) as telling:
                history.hasten("nvr", datetime.now().astimezone())
                eventually(lambda telling=telling: telling.status()["nvr"].failed)
                assert telling.status()["nvr"].last_error == "its certificate or its TLS is not accepted."
        history.hasten("nvr", datetime.now().astimezone())
        with Telling(config_of(nvr, certificate=Path(certificate)), history, print):
            eventually(lambda: not history.waiting())
    assert len(nvr.created()) == 1


@pytest.mark.parametrize("values", [{"url": "ftp://h/"}, {"url": "http://h/", "certificate": Path("/nowhere.pem")}])
def test_channels_that_are_none(history, watch_config, values):
    with pytest.raises(ChannelError, match="channel nvr"):
        Telling(watch_config(nvr=ChannelConfig("frigate", **values)), history, print)


def test_labels_are_one_part_of_a_path():
    assert safe_label("sit/stand, fast") == "sit_stand_ fast" and safe_label("\ud800") == "?"
