"""The server of a labels project: frames by number, films in ranges, changes in one order, and nothing besides."""

import json

import cv2
import numpy as np
import pytest

from lstr.extractors.video.reader import PyAVReader
from lstr.pipelines.labelling.proposals import Candidate, propose
from tests.support.browser import write_greys
from tests.support.labelling import new_id
from tests.support.patience import until
from tests.support.requests import Visitor
from tests.support.videos import FULL, write_video

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    write_video(folder / "a.mp4", [0, 20, 35, 80, 300, 310], options={"bf": "2", "g": "4"}, noise=True)
    write_video(folder / f"{HOSTILE}.mp4", range(0, 200, 20))
    write_video(folder / "b.mp4", range(0, 4000, 100))
    write_greys(folder / "late.mp4", late=1)
    write_video(folder / "old.avi", range(0, 200, 20), codec="mpeg4")
    (folder / "bad.mp4").write_bytes(b"no video at all")
    return folder


@pytest.fixture
def visitor(labelling):
    return Visitor(labelling.server.address)


def place_of(folder, name: str) -> int:
    return sorted(path.stem for path in folder.iterdir()).index(name)


def change(visitor, *changes, **more):
    filled = [{"video": "", "key": "", "before": None, "after": None} | dict(one) for one in changes]
    return visitor.ask("/change", {"id": new_id() + "-123456", "changes": filled, **more})


def test_frames_and_their_times(folder, visitor):
    at = place_of(folder, "a")
    played = [(float(frame.time), frame.image) for frame in PyAVReader(folder / "a.mp4").frames(FULL)]
    told = visitor.ask(f"/times/{at}")
    times = np.frombuffer(told.body, "<f8")
    assert times == pytest.approx([time for time, _ in played], abs=1e-6)
    for number in (3, 5, 0):
        answer = visitor.ask(f"/frame/{at}?number={number}")
        image = cv2.imdecode(np.frombuffer(answer.body, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
        apart = [np.abs(image.astype(int) - other).mean() for _, other in played]
        assert int(np.argmin(apart)) == number and float(answer.headers["x-time"]) == times[number]
    late = visitor.ask(f"/times/{place_of(folder, 'late')}")
    assert float(late.headers["x-start"]) == pytest.approx(1, abs=0.15), "that a player's clock is ahead"
    small = visitor.ask(f"/frame/{at}?number=1&side=32")
    assert cv2.imdecode(np.frombuffer(small.body, np.uint8), cv2.IMREAD_COLOR).shape == (24, 32, 3)


@pytest.mark.parametrize(("name", "plays"), [("a", "video"), ("old", "copy"), ("bad", "never")])
def test_films(folder, visitor, name, plays):
    """A video comes in ranges, what no browser plays as a copy elsewhere, and what is no video not at all."""
    at = place_of(folder, name)
    until(lambda: visitor.ask(f"/plays/{at}").json == {"plays": plays})
    film, part = visitor.ask(f"/film/{at}"), visitor.ask(f"/film/{at}", range="bytes=10-19")
    if plays == "never":
        assert film.status == 404 and visitor.ask(f"/times/{at}").json["error"]
    else:
        assert part.status == 206 and part.body == film.body[10:20]
        assert visitor.ask(f"/film/{at}", range="bytes=99999999-").status == 416
        assert (film.body == next(folder.glob(f"{name}.*")).read_bytes()) is (plays == "video")
    assert len(list(folder.iterdir())) == 6


def test_no_path_leads_outside(visitor):
    page = visitor.ask("/")
    assert HOSTILE.encode() not in page.body and page.headers["content-security-policy"] == "frame-ancestors 'none'"
    for path in (
        "/film/../../etc/passwd", "/film/99", "/film/-1", "/film/%2e%2e%2fa", "/frame/0?number=..%2f", "/frame/0",
        "/frame/0?number=999", "/frame/0?number=-1", "/times/a.mp4", "/etc/passwd", "//etc/passwd", "/labels.json",
    ):  # fmt: skip
        answer = visitor.ask(path)
        assert answer.status == 404 and b"root:" not in answer.body, path


def test_changes_are_ordered_and_saved(labelling, visitor):
    first = change(visitor, {"kind": "action", "key": "f", "after": {"name": "fall", "key": "f", "place": 0}})
    assert first.status == 200 and first.json["entry"]["revision"] == 1
    value = {"action": "f", "start": 0.1, "end": 0.4, "subject": "", "comment": ""}
    assert change(visitor, {"kind": "label", "video": "a", "key": "x", "after": value}).status == 200
    late = change(visitor, {"kind": "label", "video": "a", "key": "x", "after": {**value, "start": 0.2}})
    assert late.status == 409 and late.json["error"]
    undone = visitor.ask("/turn", {"id": "12345678", "deed": "undo", "video": "a"})
    assert undone.json["entry"]["changes"][0]["after"] is None
    again = visitor.ask("/turn", {"id": "12345678", "deed": "undo", "video": "a"})
    assert again.json == undone.json, "the same request, sent twice"
    assert visitor.ask("/turn", {"id": "123456789", "deed": "undo", "video": "a"}).json["entry"] is None
    labelling.project.settle()
    assert json.loads(labelling.project.path.read_text())["classes"] == ["Background", "fall"]


def test_what_is_no_change_is_refused(labelling, visitor):
    kind = b'{"id": "12345678", "changes": [{"kind": "file"}]}'
    for content in (b"", b"[]", b"{}", b"[" * 100_000, kind, b'{"id": 1}'):
        answer = visitor.ask("/change", content)
        assert answer.status == 400 and answer.json["error"], content
    for video in ("../outside", "/etc/passwd", "a/../../b", "..", "a\0b"):
        answer = change(visitor, {"kind": "about", "video": video, "after": {"complete": True}})
        assert answer.status == 400 and answer.json["error"] and not labelling.project.state.abouts
    assert visitor.ask("/change", b"{}", content_type="text/plain").status == 415
    assert visitor.ask("/change", b" " * (2**22 + 1)).status == 413


def test_a_tab_of_another_project_is_refused(labelling, visitor):
    """As where its server was on this port before, and the browser has the cookies of both."""
    about = {"kind": "about", "video": "a", "after": {"complete": True}}
    assert change(visitor, about, project="0123456789abcdef").status == 403
    assert visitor.ask("/turn", {"id": "12345678", "deed": "undo", "video": "a", "project": "x"}).status == 403
    assert visitor.ask("/events?since=0&project=0123456789abcdef").status == 403
    assert not labelling.project.state.abouts
    assert change(visitor, about, project=labelling.project.id).status == 200


def decide(visitor, **body):
    whole = {"id": new_id() + "-123456", "decision": "accept", "video": "b", "label_key": "12345678"} | body
    return visitor.ask("/decide", whole)


def test_a_decision_about_an_open_proposal_is_made_once(labelling, visitor):
    for video, peaks in {"b": (0.9, 0.52), "a": (0.4,), "elsewhere": (0.5,)}.items():
        found = [Candidate("kick", start, start + 0.5, peak, 0.5) for start, peak in enumerate(peaks)]
        labelling.project.propose(
            video, lambda state, history, video=video, found=found: propose(state, history, video, "m", found, 4.0)
        )

    def order(name: str) -> list[list]:
        return visitor.ask(f"/proposals?order={name.replace(' ', '%20')}").json["order"]

    places = [[at for at, _ in order(name)] for name in ("no order", "least sure", "in time")]
    assert places[0] == places[1] != places[2] == sorted(places[0]) and len(places[0]) == 3, (
        "only in videos of the page"
    )
    key, kick = order("least sure")[0][1], next(iter(labelling.project.state.actions))
    for wrong in (
        {"decision": "perhaps"},
        {"video": "elsewhere"},
        {"video": None},
        {"key": "nowhere"},
        {"key": 3},
        {"label_key": "short"},
        {"label": {"action": "nothing", "start": 1, "end": 2}},
        {"label": {"action": "unknown", "start": 1, "end": 2}},
        {"label": {"action": kick, "start": 2, "end": 1}},
        {"label": "a label"},
    ):
        answer = decide(visitor, **{"key": key} | wrong)
        assert answer.status == 400 and answer.json["hint"] and labelling.project.revision == 3, wrong
    label = {"action": kick, "start": 1.25, "end": 1.5, "subject": "Anna", "comment": ""}
    entry = decide(visitor, key=key, label=label).json["entry"]
    assert {change["kind"] for change in entry["changes"]} == {"label", "proposal"}
    assert labelling.project.state.labels["b"]["12345678"].subject == "Anna"
    assert decide(visitor, key=key, decision="reject").status == 400 and len(order("in time")) == 2
