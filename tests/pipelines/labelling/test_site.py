"""Requests to the server of `lstr label`: frames, films, changes and decisions, and which it refuses."""

import json
from functools import partial

import cv2
import numpy as np
import pytest

from lstr.extractors.video.reader import PyAVReader
from lstr.pipelines.labelling.proposals import propose
from lstr.pipelines.labelling.values import Proposal
from tests.support.browser import write_greys
from tests.support.labelling import new_id
from tests.support.requests import Visitor
from tests.support.videos import FULL, write_video
from tests.support.waiting import wait_until

HOSTILE = "<img src=x onerror=alert(1)>"
VIDEOS = [HOSTILE, "a", "b", "bad", "late", "old"]  # in the order of the page


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


def change(visitor, kind: str, video: str = "", key: str = "", after=None, query: str = ""):
    changes = [{"kind": kind, "video": video, "key": key, "before": None, "after": after}]
    return visitor.ask(f"/change{query}", {"id": new_id() + "-123456", "changes": changes})


def undo(visitor, request_id: str = "12345678", query: str = ""):
    return visitor.ask(f"/turn{query}", {"id": request_id, "deed": "undo", "video": "a"})


def test_frames_and_their_times(folder, visitor):
    at = VIDEOS.index("a")
    frames = [(float(frame.time), frame.image) for frame in PyAVReader(folder / "a.mp4").frames(FULL)]
    times = np.frombuffer(visitor.ask(f"/times/{at}").body, "<f8")
    assert times == pytest.approx([time for time, _ in frames], abs=1e-6)

    def image_of(answer) -> np.ndarray:
        return cv2.imdecode(np.frombuffer(answer.body, np.uint8), cv2.IMREAD_COLOR_RGB)

    for number in (3, 5, 0):
        answer = visitor.ask(f"/frame/{at}?number={number}")
        differences = [np.abs(image_of(answer).astype(int) - image).mean() for _, image in frames]
        assert int(np.argmin(differences)) == number and float(answer.headers["x-time"]) == times[number]
    assert image_of(visitor.ask(f"/frame/{at}?number=1&side=32")).shape == (24, 32, 3)
    late = visitor.ask(f"/times/{VIDEOS.index('late')}")
    assert float(late.headers["x-start"]) == pytest.approx(1, abs=0.15), "seconds that a player's clock is ahead"


@pytest.mark.parametrize(("name", "plays"), [("a", "video"), ("old", "copy"), ("bad", "never")])
def test_films(folder, visitor, name, plays):
    """A playable video is sent in ranges, another one as a copy in another folder, a damaged one not at all."""
    at = VIDEOS.index(name)
    wait_until(lambda: visitor.ask(f"/plays/{at}").json == {"plays": plays})
    film, part = visitor.ask(f"/film/{at}"), visitor.ask(f"/film/{at}", range="bytes=10-19")
    if plays == "never":
        assert film.status == 404 and visitor.ask(f"/times/{at}").json["error"]
    else:
        assert part.status == 206 and part.body == film.body[10:20]
        assert visitor.ask(f"/film/{at}", range="bytes=99999999-").status == 416
        assert (film.body == next(folder.glob(f"{name}.*")).read_bytes()) is (plays == "video")
    assert len(list(folder.iterdir())) == len(VIDEOS)


def test_no_address_reads_other_files(visitor):
    page = visitor.ask("/")
    assert HOSTILE.encode() not in page.body and page.headers["content-security-policy"] == "frame-ancestors 'none'"
    for path in (
        "/film/../../etc/passwd", "/film/99", "/film/-1", "/film/%2e%2e%2fa", "/frame/0?number=..%2f", "/frame/0",
        "/frame/0?number=999", "/frame/0?number=-1", "/times/a.mp4", "/etc/passwd", "//etc/passwd", "/labels.json",
    ):  # fmt: skip
        answer = visitor.ask(path)
        assert answer.status == 404 and b"root:" not in answer.body, path


def test_changes_are_ordered_and_saved(labelling, visitor):
    first = change(visitor, "action", key="f", after={"name": "fall", "key": "f", "place": 0})
    assert first.status == 200 and first.json["entry"]["revision"] == 1
    value = {"action": "f", "start": 0.1, "end": 0.4, "subject": "", "comment": ""}
    assert change(visitor, "label", "a", "x", value).status == 200
    conflict = change(visitor, "label", "a", "x", {**value, "start": 0.2})
    assert conflict.status == 409 and conflict.json["error"]
    undone = undo(visitor).json
    assert undone["entry"]["changes"][0]["after"] is None and undo(visitor).json == undone, "a repeated request"
    assert undo(visitor, "123456789").json["entry"] is None
    labelling.project.settle()
    assert json.loads(labelling.project.path.read_text())["classes"] == ["Background", "fall"]


def test_invalid_requests_are_refused(labelling, visitor):
    """Also from a tab of another project that this port served before."""
    kind = b'{"id": "12345678", "changes": [{"kind": "file"}]}'
    for content in (b"", b"[]", b"{}", b"[" * 100_000, kind, b'{"id": 1}'):
        answer = visitor.ask("/change", content)
        assert answer.status == 400 and answer.json["error"], content
    for video in ("../outside", "/etc/passwd", "a/../../b", "..", "a\0b"):
        answer = change(visitor, "about", video, after={"complete": True})
        assert answer.status == 400 and answer.json["error"]
    assert visitor.ask("/change", b"{}", content_type="text/plain").status == 415
    assert visitor.ask("/change", b" " * (2**22 + 1)).status == 413
    assert change(visitor, "about", "a", "", {"complete": True}, "?project=0123456789abcdef").status == 403
    assert undo(visitor, query="?project=x").status == 403
    assert visitor.ask("/events?since=0&project=0123456789abcdef").status == 403
    assert not labelling.project.state.abouts
    assert change(visitor, "about", "a", "", {"complete": True}, f"?project={labelling.project.id}").status == 200


def test_an_open_proposal_is_decided_once(labelling, visitor):
    for video, peaks in {"b": (0.9, 0.52), "a": (0.4,), "elsewhere": (0.5,)}.items():
        candidates = [Proposal("kick", start, start + 0.5, peak, 0.5, "") for start, peak in enumerate(peaks)]
        make = partial(propose, video=video, model="m", candidates=candidates, duration=4.0)
        labelling.project.propose(video, make)

    def order(name: str) -> list[list]:
        return visitor.ask(f"/proposals?order={name.replace(' ', '%20')}").json["order"]

    def decide(**body):
        defaults = {"id": new_id() + "-123456", "decision": "accept", "video": "b", "label_key": "12345678"}
        return visitor.ask("/decide", {**defaults, "key": key, **body})

    places = [[place for place, _ in order(name)] for name in ("no order", "least sure", "in time")]
    assert places[0] == places[1] != places[2] == sorted(places[0]) and len(places[0]) == 3, "of videos of the page"
    key, kick = order("least sure")[0][1], next(iter(labelling.project.state.actions))
    for invalid in (
        {"decision": "perhaps"},
        {"video": "elsewhere"},
        {"key": "nowhere"},
        {"label_key": "short"},
        {"label": {"action": "nothing", "start": 1, "end": 2}},
        {"label": {"action": "unknown", "start": 1, "end": 2}},
        {"label": {"action": kick, "start": 2, "end": 1}},
    ):
        answer = decide(**invalid)
        assert answer.status == 400 and answer.json["hint"] and labelling.project.revision == 3, invalid
    label = {"action": kick, "start": 1.25, "end": 1.5, "subject": "Anna", "comment": ""}
    entry = decide(label=label).json["entry"]
    assert {change["kind"] for change in entry["changes"]} == {"label", "proposal"}
    assert labelling.project.state.labels["b"]["12345678"].subject == "Anna"
    assert decide(decision="reject").status == 400 and len(order("in time")) == 2
