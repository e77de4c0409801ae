"""The page that runs a model, in a real headless Chromium on the processor, against `lstr detect` of the same file."""

import json
import re
from fractions import Fraction

import av
import numpy as np
import pytest

import lstr as library
from lstr.extractors.video.file_reader import open_chunks
from tests.support.browser import CHROMIUM, FLAGS, until
from tests.support.web_pages import DECODING, encoded, folder_served
from tests.support.web_set import SMALL

pytestmark = pytest.mark.long
EXACT = 1e-4
"""In probability: the same frames to the bit, and rounding of networks and model"""
CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]


@pytest.fixture(scope="module")
def address(web):
    """The page below a path, as a server may have it."""
    with folder_served(web.page.parent) as served:
        yield f"{served}/{web.page.name}/"


@pytest.fixture(scope="module")
def with_camera(chromium):
    """Another browser, whose webcam is drawn."""
    browser = chromium.browser_type.launch(executable_path=CHROMIUM, args=[*FLAGS, *CAMERA])
    yield browser
    browser.close()


@pytest.fixture
def shown(chromium, address):
    """Open the page: shown(width) -> page. Words on the console, and requests to other hosts, fail the test."""
    complaints, pages = [], []

    def show(browser=chromium, width=1440, at=address, script="", **settings):
        context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True, **settings)
        page = context.new_page()
        pages.append(context)
        if script:
            page.add_init_script(script)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        context.on("request", lambda request: request.url.startswith(("blob:", at)) or complaints.append(request.url))
        page.goto(at)
        return page

    yield show
    for context in pages:
        context.close()
    assert not complaints


def ready(page):
    until(page, "ready")
    page.evaluate(
        """() => {
          if (!window.scores) worker.addEventListener("message", ({ data }) => {
            if (data.scores && data.run === run) window.scores.push([data.line.chunk, ...data.scores]);
          });
          window.scores = [];
        }"""
    )


def watched(page, path) -> tuple[np.ndarray, list[dict]]:
    """Scores (chunks, classes) and lines of a file that is chosen on the page."""
    ready(page)
    page.set_input_files("#file", path)
    until(page, "running")
    for _ in range(600):
        if not page.evaluate("running"):
            break
        page.wait_for_timeout(100)
    found = np.array(page.evaluate("window.scores.map((row) => [...row])"))
    assert found[:, 0].tolist() == list(range(len(found)))
    return found[:, 1:], page.evaluate("lines")


def by_command(path, model) -> tuple[np.ndarray, list[dict]]:
    decisions = list(library.detect(path, model))
    lines = [line for decision in decisions for line in decision.lines()]
    return np.array([decision.scores for decision in decisions]), lines


def without_latency(lines: list[dict]) -> list[dict]:
    return [{name: value for name, value in line.items() if name != "latency_ms"} for line in lines]


def recoded(source, target, codec, rate=None, shape=None, **options):
    """The pictures of a file in another coding, at another rate, or of another (width, height)."""
    with av.open(str(source)) as given, av.open(str(target), "w") as container:
        video = given.streams.video[0]
        rate = Fraction(rate or video.average_rate)
        stream = container.add_stream(codec, rate=rate, options=options)
        (stream.width, stream.height), stream.pix_fmt = shape or (video.width, video.height), "yuv420p"
        for number, frame in enumerate(given.decode(video)):
            frame = frame.reformat(stream.width, stream.height)
            frame.pts, frame.time_base = number, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return target


@pytest.mark.parametrize(
    ("name", "codec", "rate", "how"),
    [
        ("as-it-is.mp4", None, None, "frame by frame"),
        pytest.param("b-frames.mp4", "libx264", "30000/1001", "frame by frame", marks=pytest.mark.slow),
        pytest.param("on-borders.mp4", "libx264", "16", "frame by frame", marks=pytest.mark.slow),
        ("vp9.webm", "libvpx-vp9", None, "by the player, frame after frame"),
        pytest.param("h264.mkv", "libx264", "25", "by the player, frame after frame", marks=pytest.mark.slow),
    ],
)
def test_scores_of_a_file_are_the_command_s(shown, web, tmp_path, name, codec, rate, how):
    source = sorted(web.videos.glob("*.mp4"))[0]
    path = recoded(source, tmp_path / name, codec, rate, **({"b": "400k"})) if codec else source
    page = shown()
    scores, lines = watched(page, path)
    expected, told = by_command(path, web.model)
    assert page.evaluate("manner") == how
    assert scores.shape == expected.shape and len(scores) >= 20
    assert np.abs(scores - expected).max() < EXACT
    assert scores.max(0).min() > 0 and (expected[:, 1:].max(1) > 0.5).any(), "it was taught something"
    assert [line.get("event") for line in lines] == [line.get("event") for line in told]
    for line, other in zip(without_latency(lines), without_latency(told), strict=True):
        assert line.keys() == other.keys()
        assert {n: line[n] for n in line if n not in ("score", "top")} == {
            n: other[n] for n in other if n not in ("score", "top")
        }
        assert line["score"] == pytest.approx(other["score"], abs=2e-4)


def test_scores_of_frames_from_python_are_python_s(shown, web):
    """The same arrays go into both: what decodes has no part in it."""
    path = sorted(web.videos.glob("*.mp4"))[1]
    expected, _ = by_command(path, web.model)
    page = shown()
    ready(page)
    page.evaluate("() => tell({ kind: 'begin', run })")
    for chunk in open_chunks(path, SMALL.long_side)[2]:
        page.evaluate(
            f"""([first, frames]) => {{
              {DECODING}
              frames.forEach((frame, at) => tell({{ kind: "slot", run, slot: first + at, picture: imageOf(frame) }}));
            }}""",
            [6 * chunk.index, [*map(encoded, chunk.frames)]],
        )
    page.evaluate("(slot) => tell({ kind: 'end', run, slot })", 6 * len(expected))
    until(page, f"window.scores.length === {len(expected)}")
    found = np.array(page.evaluate("window.scores.map((row) => [...row])"))[:, 1:]
    assert np.abs(found - expected).max() < EXACT


def test_lines_and_segments_are_handed_out(shown, web):
    page = shown()
    path = sorted(web.videos.glob("*.mp4"))[0]
    _, lines = watched(page, path)
    with page.expect_download() as waiting:
        page.click("#lines")
    assert waiting.value.suggested_filename == f"{path.stem}.jsonl"
    assert [json.loads(line) for line in waiting.value.path().read_text().splitlines()] == lines
    with page.expect_download() as waiting:
        page.click("#segments-csv")
    rows = waiting.value.path().read_text().splitlines()
    assert rows[0] == "video,duration,start,end,label,score" and len(rows) - 1 == page.evaluate("segments.length")
    assert page.locator("#events li").count() == sum("event" in line for line in lines)
    assert page.locator("#title").inner_text() == "Figures <that act>"


def test_a_picture_of_another_shape_is_told(shown, web, tmp_path):
    source = sorted(web.videos.glob("*.mp4"))[0]
    page = shown()
    watched(page, source)
    assert page.evaluate("seen") == "" and page.locator("#facts dt", has_text="Seen").count() == 0
    watched(page, recoded(source, tmp_path / "wide.mp4", "libx264", shape=(320, 180), b="400k"))
    told = page.locator("#facts dd").first.inner_text()
    assert told == "the middle 75 % of the width"
    assert page.evaluate("partSeen(1)") == "the middle 75 % of the height"


@pytest.mark.slow
def test_another_file_takes_the_place_of_one_that_runs(shown, web):
    page = shown()
    first, second = sorted(web.videos.glob("*.mp4"))[:2]
    ready(page)
    page.set_input_files("#file", first)
    until(page, "lines.length > 2")
    page.evaluate("() => document.getElementById('file').addEventListener('change', () => { window.scores = []; })")
    scores, _ = watched(page, second)
    assert np.abs(scores - by_command(second, web.model)[0]).max() < EXACT


def test_a_file_that_is_stopped_keeps_what_was_decided(shown, web):
    page = shown()
    ready(page)
    page.set_input_files("#file", sorted(web.videos.glob("*.mp4"))[0])
    until(page, "lines.length > 2")
    page.click("#stop")
    until(page, "!running")
    assert 2 < page.evaluate("lines.length") and page.evaluate("decided < duration")


def test_a_webcam_is_decided_on_as_it_comes(shown, with_camera):
    page = shown(with_camera, permissions=["camera"])
    ready(page)
    page.click("#camera")
    until(page, "lines.filter((line) => 'chunk' in line).length >= 6")
    page.click("#stop")
    until(page, "!running")
    lines = [line for line in page.evaluate("lines") if "chunk" in line]
    chunks = [line["chunk"] for line in lines]
    assert chunks == sorted({*chunks}) and all(line["time"] == (line["chunk"] + 1) / 4 for line in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", line["at"]) for line in lines)
    missing = sum(line["chunks"] for line in page.evaluate("lines") if "gap" in line)
    assert len(chunks) + missing == chunks[-1] + 1, "each chunk is decided or counted as missing"
    assert page.evaluate("video.srcObject.getTracks().every((track) => track.readyState === 'ended')")


def told(page) -> str:
    until(page, "!document.getElementById('warnings').hidden")
    return page.locator("#warnings").inner_text()


def test_a_webcam_that_is_refused_is_said(shown):
    page = shown(
        script="navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotAllowedError'); };"
    )
    ready(page)
    page.click("#camera")
    assert told(page).startswith("The webcam was refused. Allow it")


def test_a_page_without_https_says_why_there_is_no_webcam(shown):
    page = shown(script="Object.defineProperty(Navigator.prototype, 'mediaDevices', { value: undefined });")
    ready(page)
    page.click("#camera")
    assert told(page).startswith("Browsers give a webcam only to pages of https or localhost.")


def test_a_file_that_is_no_video_is_said(shown, tmp_path):
    path = tmp_path / "notes.mp4"
    path.write_bytes(b"\0\0\0\x20ftypisom" + b"no film" * 300)
    page = shown()
    ready(page)
    page.set_input_files("#file", path)
    assert told(page).startswith("This browser cannot decode notes.mp4.")
    assert not page.evaluate("running")


def test_a_browser_without_webassembly_is_said(shown):
    page = shown(script="delete globalThis.WebAssembly;")
    assert told(page).startswith("This browser has no WebAssembly")
    assert page.locator("#choose").is_disabled()


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1440, "light", marks=pytest.mark.slow), (390, "dark")])
def test_it_fits_and_goes_by_keys(shown, web, width, scheme):
    page = shown(width=width, color_scheme=scheme)
    watched(page, sorted(web.videos.glob("*.mp4"))[0])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("ArrowLeft")
    until(page, "!frameAsked")
    before = float(page.get_attribute("#surface", "aria-valuenow"))
    page.keyboard.press("Shift+ArrowLeft")
    until(page, "!frameAsked")
    assert float(page.get_attribute("#surface", "aria-valuenow")) == pytest.approx(before - 1)
    page.keyboard.press("+")
    assert page.evaluate("view[1] - view[0] < duration")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(244, 246, 248)", "dark": "rgb(15, 19, 25)"}[scheme]


def test_the_policy_lets_nothing_else_in(shown, address):
    page = shown()
    policy = page.get_attribute("meta[http-equiv]", "content")
    sources = {source for part in policy.split("; ") for source in part.split()[1:]}
    assert sources == {"'none'", "'self'", "'wasm-unsafe-eval'", "blob:"}
    assert not re.findall(r"(?:src|href)=\"https?:", page.content())
