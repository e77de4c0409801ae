"""What the server answers about proposals: the order in which they wait, decisions, and what is no decision."""

import json

import pytest

from lstr.pipelines.labelling.proposals import Candidate, proposed
from tests.support.labelling import new_id
from tests.support.requests import Visitor
from tests.support.videos import write_video


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    write_video(folder / "a.mp4", range(0, 4000, 100))
    write_video(folder / "b.mp4", range(0, 4000, 100))
    return folder


@pytest.fixture
def visitor(labelling):
    for video, peaks in {"b": (0.9, 0.52), "a": (0.4,), "elsewhere": (0.5,)}.items():
        found = [Candidate("kick", start, start + 0.5, peak, 0.5) for start, peak in enumerate(peaks)]
        labelling.project.propose(
            video, lambda state, history, video=video, found=found: proposed(state, history, video, "m", found, 4.0)
        )
    return Visitor(labelling.server.address)


def order(visitor, name: str) -> list[list]:
    return json.loads(visitor.ask(f"/proposals?order={name.replace(' ', '%20')}").body)["order"]


def decide(visitor, **body):
    whole = {"id": new_id() + "-123456", "decision": "accept", "video": "b", "label_key": "12345678"} | body
    return visitor.ask("/decide", whole)


def test_they_wait_in_an_order_and_only_in_videos_of_the_page(visitor):
    assert [at for at, _ in order(visitor, "least sure")] == [1, 0, 1] == [at for at, _ in order(visitor, "no order")]
    assert [at for at, _ in order(visitor, "in time")] == [0, 1, 1]
    told = json.loads(visitor.ask("/proposals").body)
    assert told["search"]["model"] == "" and not told["search"]["is_running"] and told["revision"] == 3


def test_a_decision_is_made_once(labelling, visitor):
    key = order(visitor, "least sure")[0][1]
    kick = next(iter(labelling.project.state.actions))
    label = {"action": kick, "start": 1.25, "end": 1.5, "subject": "Anna", "comment": ""}
    entry = json.loads(decide(visitor, key=key, label=label).body)["entry"]
    assert {change["kind"] for change in entry["changes"]} == {"label", "proposal"}
    assert labelling.project.state.labels["b"]["12345678"].subject == "Anna"
    assert decide(visitor, key=key, decision="reject").status == 400 and len(order(visitor, "in time")) == 2


def test_what_is_no_decision_changes_nothing(labelling, visitor):
    key = order(visitor, "least sure")[0][1]
    for wrong in (
        {"decision": "perhaps"},
        {"video": "elsewhere"},
        {"video": None},
        {"key": "nowhere"},
        {"key": 3},
        {"label_key": "short"},
        {"label": {"action": "nothing", "start": 1, "end": 2}},
        {"label": {"action": "unknown", "start": 1, "end": 2}},
        {"label": {"action": "unknown", "start": 2, "end": 1}},
        {"label": "a label"},
    ):
        answer = decide(visitor, **{"key": key} | wrong)
        assert answer.status == 400 and answer.json["hint"] and labelling.project.revision == 3, wrong
