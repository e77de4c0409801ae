"""The index of several reports: each video's row, links that hold, text that stays text."""

import json
import os
import re

import pytest

from lstr.labels.segment import Segment
from lstr.pipelines.pages.page import read_part
from lstr.pipelines.pages.timeline_page import write_index
from tests.support.pages import HOSTILE, Page, make_timeline

LIBRARY = read_part("vendor/preact-htm.js")


def links(page: Page) -> dict[str, str]:
    return {video["id"]: video["page"] for video in page.data["videos"]}


def test_it_says_what_each_timeline_says(tmp_path):
    timelines = {"b": make_timeline(40, ["Background", "hug"]), "a/c": make_timeline(8, ["Background", "kick", "hug"])}
    truth = {"b": [Segment(0.5, 1.5, "wave")], "a/c": None}
    path = write_index(tmp_path / "out", timelines, truth=truth, failed=["c.mp4 is empty (0 bytes)."])
    assert path == tmp_path / "out" / "index.html"
    data = Page(path).data
    assert data["classes"] == ["Background", "hug", "kick", "wave"]
    assert [video["id"] for video in data["videos"]] == ["b", "a/c"]
    assert [video["segments"] for video in data["videos"]] == [[[1, 0.5, 1.25, 0.875]]] * 2
    assert [video["truth"] for video in data["videos"]] == [[[3, 0.5, 1.5, None]], None]
    assert data["failed"] == ["c.mp4 is empty (0 bytes)."]


@pytest.mark.parametrize(
    ("video_id", "page"),
    [
        ("deep/seq 01 #1?", "./deep/seq%2001%20%231%3F.html"),
        ("javascript:alert(1)", "./javascript%3Aalert%281%29.html"),
        (os.fsdecode(b"caf\xe9"), "./caf%E9.html"),
    ],
)
def test_links_lead_to_the_reports(tmp_path, video_id, page):
    assert links(Page(write_index(tmp_path, {video_id: make_timeline(8, ["Background", "hug"])}))) == {video_id: page}


def test_it_does_not_take_the_place_of_a_video_called_index(tmp_path):
    (tmp_path / "index.html").write_text("the report of index.mp4")
    assert write_index(tmp_path, {"index": make_timeline(8, ["Background", "hug"])}).name == "_index.html"
    assert (tmp_path / "index.html").read_text() == "the report of index.mp4"


def test_hostile_text_stays_text_and_nothing_is_asked_of_the_network(tmp_path):
    calm = Page(write_index(tmp_path / "calm", {"a": make_timeline(8, ["Background", "hug"], warnings=["calm"])}))
    timeline = make_timeline(8, ["Background", HOSTILE], warnings=[HOSTILE])
    page = Page(write_index(tmp_path, {HOSTILE: timeline}, failed=["rtsp://me:hunter2@camera stalled.", HOSTILE]))
    assert page.tags == calm.tags
    assert page.data["failed"] == ["rtsp://camera stalled.", HOSTILE]
    own = page.markup.replace(LIBRARY, "")  # which names the namespace of SVG
    assert "hunter2" not in own and "http:" not in own and "https:" not in own
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", page.texts[2].replace(LIBRARY, "")
    )
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    assert json.loads(page.texts[1])["classes"] == ["Background", HOSTILE]
