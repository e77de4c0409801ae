"""The report of a video and the index of reports: their data, and that they are safe with any label."""

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
from tests.support.pages import HOSTILE, Page, make_scores, make_timeline

LIBRARY = read_part("vendor/preact-htm.js")  # contains the namespace of SVG


@pytest.fixture
def small():
    """A timeline of 40 chunks and 3 classes, with its scores."""
    return make_timeline(40, ["Background", "hug", "kick"]), make_scores(40, 3)


def test_encoded_scores_are_on_the_same_side_of_thresholds():
    """0.35 as float32 is just below 0.35: rounded up, it would start an action that `lstr detect` does not report."""
    hundredths = np.arange(1, 100) / 100
    near = hundredths.astype(np.float32)
    scores = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(1))])
    decoded = np.frombuffer(base64.b64decode("".join(encode_scores(scores[:, None]))), "<u2") / FULL_SCALE
    for threshold in hundredths:
        np.testing.assert_array_equal(decoded >= threshold, scores.astype(np.float64) >= threshold)


def test_long_scores_and_their_page_are_never_in_memory_as_a_whole(tmp_path, small):
    """A class may have the name of the placeholder of the scores."""
    path = tmp_path / "r.html"
    write_report(path, *small)  # loads the parts of the page
    chunks, classes = 2 * BLOCK + 1, 22
    scores = np.memmap(tmp_path / "scores", np.float32, "w+", shape=(chunks, classes))
    scores[:] = np.random.default_rng(0).random(scores.shape, np.float32)
    timeline = small[0] | {"chunks": chunks, "classes": ["@scores@", *map(str, range(1, classes))], "segments": []}
    tracemalloc.start()
    write_report(path, timeline, scores)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000 < 7_000_000 < path.stat().st_size
    codes = np.frombuffer(base64.b64decode(Page(path).data["scores"]["base64"]), "<u2").reshape(classes, chunks).T
    np.testing.assert_allclose(codes / FULL_SCALE, scores, rtol=0, atol=1.01 / FULL_SCALE)


def check_safe(path: Path, calm: Path) -> Page:
    """Check that a page uses no network and no markup in texts, and that its policy has the hashes of its parts."""
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


def test_values_that_json_lacks_are_converted(tmp_path, small):
    source, speed = os.fsdecode(b"caf\xe9.mp4"), {"a": float("inf"), "b": np.float32(0.5), "c": np.int64(3)}
    write_report(
        tmp_path / "r.html", small[0] | {"source": source, "checkpoint": Path("a.pt"), "speed": speed}, small[1]
    )
    data = Page(tmp_path / "r.html").data["timeline"]
    assert data["speed"] == {"a": None, "b": 0.5, "c": 3} and (data["source"], data["checkpoint"]) == (source, "a.pt")


@pytest.mark.parametrize(
    ("video", "link"),
    [
        ("out/seq 01 ünder 日本 #1?.mp4", "seq 01 ünder 日本 #1?.mp4"),
        ("out/clips/100%.mp4", "clips/100%.mp4"),
        ("videos/a.mp4", "../videos/a.mp4"),
        ("out/javascript:alert(1).mp4", "javascript:alert(1).mp4"),
    ],
)
def test_links_to_near_videos_are_relative(tmp_path, small, video, link):
    near, far = (tmp_path / folder / "r.html" for folder in ("out", "a/b/c/d"))
    for path in (near, far):
        write_report(path, *small, video=tmp_path / video)
    address = Page(near).data["video"]
    assert unquote(address) == link and re.fullmatch(r"[\w./%~-]+", address, re.ASCII)
    assert Page(far).data["video"] == (tmp_path / video).as_uri()


def test_the_index_has_the_segments_of_every_timeline(tmp_path):
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
    videos = {key: [video[key] for video in data["videos"]] for key in ("id", "segments", "truth", "page")}
    assert videos["id"] == [*timelines] and videos["segments"] == [[[1, 0.5, 1.25, 0.875]]] * 4
    assert videos["truth"] == [[[3, 0.5, 1.5, None]], None, None, None]
    links = ["./index.html", "./a/c%20%231%3F.html", "./javascript%3Aalert%281%29.html", "./caf%E9.html"]
    assert videos["page"] == links
