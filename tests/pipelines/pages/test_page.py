"""The report of a video and the index: each one file, safe with any label, the same data in as out."""

import base64
import hashlib
import os
import re
import tracemalloc
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from lstr.labels.segment import Segment
from lstr.pipelines.pages.page import BLOCK, FULL_SCALE, encode_scores, read_part, write_index, write_report
from tests.support.browser import write_greys
from tests.support.pages import HOSTILE, Page, decode_scores, make_scores, make_timeline

LIBRARY = read_part("vendor/preact-htm.js")  # which names the namespace of SVG


@pytest.fixture
def small():
    """A timeline of 40 chunks and 3 classes, with its scores."""
    return make_timeline(40, ["Background", "hug", "kick"]), make_scores(40, 3)


def test_codes_stay_on_their_side_of_every_threshold_of_two_digits():
    """0.35 as float32 is just below 0.35; rounded up, it would begin what `lstr detect` does not."""
    hundredths = np.arange(1, 100) / 100
    near = hundredths.astype(np.float32)
    scores = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(1))])
    pages = np.frombuffer(base64.b64decode("".join(encode_scores(scores[:, None]))), "<u2") / FULL_SCALE
    for threshold in hundredths:
        np.testing.assert_array_equal(pages >= threshold, scores.astype(np.float64) >= threshold)


def test_scores_of_days_are_never_in_memory_as_a_whole(tmp_path, small):
    """Nor is the page; a class may be called as the place that they take."""
    timeline, _ = small
    write_report(tmp_path / "r.html", *small)  # keeps the parts of the page in memory
    chunks, classes = 2 * BLOCK + 1, 22
    rng, file = np.random.default_rng(0), tmp_path / "scores"
    scores = np.memmap(file, np.float32, "w+", shape=(chunks, classes))
    scores[:] = rng.random(scores.shape, np.float32)
    timeline = {**timeline, "chunks": chunks, "classes": ["@scores@", *map(str, range(1, classes))], "segments": []}
    tracemalloc.start()
    write_report(tmp_path / "r.html", timeline, scores)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000 < 7_000_000 < (tmp_path / "r.html").stat().st_size
    decoded = decode_scores(Page(tmp_path / "r.html").data["scores"]["base64"], chunks, classes)
    np.testing.assert_allclose(decoded, scores, rtol=0, atol=1.01 / FULL_SCALE)


def check_safe(path: Path, calm: Path) -> Page:
    """A page that asks nothing of the network, whose policy names its script and style and which parses no markup."""
    page = Page(path)
    own, script = page.markup.replace(LIBRARY, ""), page.texts[2].replace(LIBRARY, "")
    assert page.tags == Page(calm).tags
    assert "http:" not in own and "https:" not in own and not re.search(r"""["'(=]\s*//""", own)
    assert not re.search(r"@import|\burl\(|\bimport\(|\bfetch\(|XMLHttpRequest|WebSocket", page.markup)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", script)
    assert not set("<>&\u2028\u2029") & set(page.texts[1])
    for tag, attributes in page.tags:
        assert "src" not in attributes and attributes.get("href", "data:,") == "data:,"
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for name, text in (("style-src", page.texts[0]), ("script-src", page.texts[2])):
        # a hash that is off by one line break would leave a blank page in every browser
        assert f"{name} 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    return page


def test_hostile_text_stays_text(tmp_path):
    scores, calm = make_scores(8, 2), make_timeline(8, ["Background", "hug"], warnings=["calm"])
    write_report(tmp_path / "calm.html", calm, scores)
    timeline = make_timeline(8, ["Background", HOSTILE], source=HOSTILE, warnings=[HOSTILE], recipe=HOSTILE)
    truth, events = [Segment(0, 1, HOSTILE)], [{"event": "started", "label": HOSTILE, "time": 1.0, "start": 0.5}]
    write_report(tmp_path / "r.html", timeline, scores, truth=truth, events=events)
    data = check_safe(tmp_path / "r.html", tmp_path / "calm.html").data
    assert (data["timeline"], data["truth"], data["events"]) == (timeline, [s.to_dict() for s in truth], events)
    failed = ["rtsp://me:hunter2@camera stalled.", HOSTILE]
    index = write_index(tmp_path, {HOSTILE: timeline}, failed=failed)
    page = check_safe(index, write_index(tmp_path / "calm", {"a": calm}))
    assert page.data["failed"] == ["rtsp://camera stalled.", HOSTILE] and "hunter2" not in page.markup


def test_values_that_json_lacks(tmp_path, small):
    """A name that is not UTF-8 and a path are texts, infinity is null, and numbers of NumPy are numbers."""
    timeline, scores = small
    timeline["source"], timeline["checkpoint"] = os.fsdecode(b"caf\xe9.mp4"), Path("a.pt")
    timeline["speed"] = {"realtime_factor": float("inf"), "p50": np.float32(0.5), "count": np.int64(3)}
    write_report(tmp_path / "r.html", timeline, scores)
    data = Page(tmp_path / "r.html").data["timeline"]
    assert data["speed"] == {"realtime_factor": None, "p50": 0.5, "count": 3}
    assert (data["source"], data["checkpoint"]) == (timeline["source"], "a.pt")


@pytest.mark.parametrize(
    ("video", "link"),
    [
        ("out/seq 01 ünder 日本 #1?.mp4", "seq 01 ünder 日本 #1?.mp4"),
        ("out/clips/100%.mp4", "clips/100%.mp4"),
        ("videos/a.mp4", "../videos/a.mp4"),
        ("out/javascript:alert(1).mp4", "javascript:alert(1).mp4"),
    ],
)
def test_a_video_is_linked_relative_where_it_is_near(tmp_path, small, video, link):
    write_report(tmp_path / "out" / "r.html", *small, video=tmp_path / video)
    address = Page(tmp_path / "out" / "r.html").data["video"]
    far = tmp_path / "a" / "b" / "c" / "d" / "r.html"
    write_report(far, *small, video=tmp_path / video)
    assert Page(far).data["video"] == (tmp_path / video).as_uri()
    assert unquote(address) == link and re.fullmatch(r"[\w./%~-]+", address, re.ASCII)


@pytest.mark.parametrize(
    ("name", "ahead"), [("late.mp4", 1.0), pytest.param("late.mkv", 0.0, marks=pytest.mark.long), ("gone.mp4", 0.0)]
)
def test_the_page_knows_how_far_the_players_clock_is_ahead(tmp_path, small, name, ahead):
    """Of pictures that begin after the sound; a copy, of what browsers cannot play, has none."""
    if name.startswith("late"):
        write_greys(tmp_path / name, late=1)
    write_report(tmp_path / "r.html", *small, video=tmp_path / name)
    assert Page(tmp_path / "r.html").data["ahead"] == pytest.approx(ahead, abs=0.13)


def test_the_index_has_what_each_timeline_has(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "index.html").write_text("the report of index.mp4")
    timelines = {
        "index": make_timeline(40, ["Background", "hug"]),
        "a/c #1?": make_timeline(8, ["Background", "kick", "hug"]),
        "javascript:alert(1)": make_timeline(8, ["Background", "hug"]),
        os.fsdecode(b"caf\xe9"): make_timeline(8, ["Background", "hug"]),
    }
    truth = dict.fromkeys(timelines) | {"index": [Segment(0.5, 1.5, "wave")]}
    path = write_index(tmp_path / "out", timelines, truth=truth, failed=["c.mp4 is empty (0 bytes)."])
    assert path == tmp_path / "out" / "_index.html"
    data = Page(path).data
    assert data["classes"] == ["Background", "hug", "kick", "wave"] and data["failed"] == ["c.mp4 is empty (0 bytes)."]
    assert [video["id"] for video in data["videos"]] == [*timelines]
    assert [video["segments"] for video in data["videos"]] == [[[1, 0.5, 1.25, 0.875]]] * 4
    assert [video["truth"] for video in data["videos"]] == [[[3, 0.5, 1.5, None]], None, None, None]
    links = ["./index.html", "./a/c%20%231%3F.html", "./javascript%3Aalert%281%29.html", "./caf%E9.html"]
    assert [video["page"] for video in data["videos"]] == links
