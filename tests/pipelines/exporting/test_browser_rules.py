"""Plans, events, frames at 24 a second and colour tags: the page's scripts against Python, in Chromium."""

from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
import pytest

from lstr.extractors.video.frames import SourceFrame, chunks_of, n_frames_until
from lstr.extractors.video.stretches import stretches
from lstr.kinds import KINDS
from lstr.pipelines.detection.decision import decision_of
from lstr.plans.forms import FORMS, to_dict
from lstr.timeline import Thresholds, Timeline
from tests.support.tiny_models import AVERAGED, DESIGNS, tiny
from tests.support.web_pages import with_scripts

pytestmark = pytest.mark.long

SETTINGS = [
    *({"kind": kind} for kind in KINDS),
    {"grid": "sliding"},
    {"grid": "anchored", "kind": "testra"},
    {"gru": True, "anticipation": 2},
    {"encoder": "none", "positions": "distance"},
    {"kind": "mat", "grid": "sliding", "groups": 2},
    {"kind": "mat", "long_stride": 4},
    {"kind": "gatehub", "n_heads": 2, "d_model": 160, "n0": 8},
    *DESIGNS,
    AVERAGED,
]
CHUNKS = 120  # five times what these models remember


@pytest.fixture(scope="module")
def page(chromium):
    page = with_scripts(
        chromium, "rules.js", "browser-plans.js", "browser-timeline.js", "browser-pictures.js", "browser-frames.js",
        "browser-tags.js", "browser-mp4.js",
    )  # fmt: skip
    yield page
    page.close()


def test_plans_are_those_of_python(page):
    """Of every kind and form, from the first chunk until each ring has gone round."""
    planners = {str(to_dict(planner)): planner for planner in (tiny(**settings).planner for settings in SETTINGS)}
    seen = set()
    for planner in planners.values():
        about = to_dict(planner)
        seen |= {member["form"] for member in about.get("members", [about])}
        plans = page.evaluate("([about, count]) => rangeOf(count, (chunk) => planOf(about, chunk))", [about, CHUNKS])
        for chunk, found in enumerate(plans):
            expected = {name: values.ravel().tolist() for name, values in planner(np.array([chunk])).items()}
            assert found == expected, (about, chunk)
    assert seen == set(FORMS)


RULES = [
    Thresholds(),
    Thresholds(0.6, 0.2, min_length=0.75, merge_gap=0.5),
    Thresholds(0.37, 0.37, min_length=0.3, merge_gap=1.0, highest=True),
    Thresholds(0.4, 0.2, min_length=0.5, merge_gap=0.5, backdate=1.0),
    Thresholds(0.37, 0.3, merge_gap=0.5, highest=True, backdate=0.8),
]
CLASSES = ("Background", "kick", "hug", "wave")


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize("rules", RULES)
def test_events_are_those_of_python(page, rules, ahead):
    """Random walks with chunks that are missing, and scores of chunks to come; each line of a chunk too."""
    rng = np.random.default_rng(0)
    walks = np.zeros((300, 1 + ahead, 4))
    for chunk in range(1, 300):
        walks[chunk] = 0.85 * walks[chunk - 1] + rng.normal(0, 1.8, walks.shape[1:])
    scores = (np.exp(walks) / np.exp(walks).sum(-1, keepdims=True)).astype(np.float32)
    given = [chunk for chunk in range(300) if rng.random() > 0.05]
    timeline, lines, events = Timeline(CLASSES, rules), [], []
    for chunk in given:
        row = type("Row", (), {"index": chunk, "end_time": (chunk + 1) * 0.25})
        decision = decision_of(type("Loaded", (), {"classes": CLASSES}), timeline, row, scores[chunk], 1.25)
        lines.append(decision.to_dict())
        events += [event.to_dict() for event in decision.events]
    events += [event.to_dict() for event in timeline.finish((given[-1] + 1) * 0.25)]
    found = page.evaluate(
        """([classes, rules, chunks, scores]) => {
          const timeline = makeTimeline(classes, classes.map((_, at) => (at ? rules : null))), lines = [], events = [];
          chunks.forEach((chunk) => {
            lines.push(toLine(classes, chunk, scores[chunk], 1.25));
            events.push(...timeline.push((chunk + 1) * 0.25, scores[chunk][0], scores[chunk].slice(1)));
          });
          events.push(...timeline.finish((chunks.at(-1) + 1) * 0.25));
          return [lines, events];
        }""",
        [CLASSES, rules.stored() | {"highest": rules.highest}, given, scores.astype(float).tolist()],
    )
    assert found[1] == events and len(events) > 20
    assert found[0] == lines


TOLD = 251
"""Frames that are told apart by the number in their image"""


def source(times, duration):
    """Frames of such numbers, at their times."""
    for number, time in enumerate(times):
        image = np.full((1, 1, 3), number % TOLD, np.uint8)
        yield SourceFrame(Fraction(time), Fraction(duration), lambda image=image: image)


@pytest.mark.parametrize("rate", ["30", "24", "25", "16", "48", "30000/1001", "5"])
def test_frames_are_shown_in_the_slots_of_python(page, rate):
    step = 1 / Fraction(rate)
    times = [number * step for number in range(int(6 / step))]
    expected = [chunk.frames[:, 0, 0, 0].tolist() for chunk in chunks_of(source(times, step))]
    scale = step.denominator
    ticks = [int(time * scale) for time in times]
    found = page.evaluate(
        """async ([ticks, scale, end]) => {
          const chunks = makeChunks(new Set([0, 1, 2, 3, 4, 5])), seen = [];
          for (const [number, tick] of ticks.entries()) {
            const frame = { image: async () => number % 251, close() {} };
            seen.push(...await chunks.take(slotOf(tick, scale), frame));
          }
          seen.push(...await chunks.end(slotOf(end, scale)));
          return seen.map(({ index, frames }) => [index, frames]);
        }""",
        [ticks, scale, int((times[-1] + step) * scale)],
    )
    assert found == [[index, frames] for index, frames in enumerate(expected)] and len(found) >= 23


def test_a_live_source_has_the_gaps_of_python(page):
    """Frames of a trembling clock, and pauses that are longer than a frame may stand."""
    rng = np.random.default_rng(0)
    times, now = [], 0
    for number in range(230):
        times.append(Fraction(now, 1000))
        now += int(rng.integers(25, 60)) + {60: 1900, 120: 2400, 200: 9000}.get(number, 0)
    expected = []
    for first, stretch in stretches(source(times, 0)):
        frames = list(stretch)
        steps = [later.time - earlier.time for earlier, later in pairwise(frames)]
        last = frames[-1]
        frames[-1] = SourceFrame(last.time, steps[-1], last.render)
        expected += [[c.index, c.frames[:, 0, 0, 0].tolist()] for c in chunks_of(iter(frames), first)]
    found = page.evaluate(
        """async (times) => {
          const chunks = makeLiveChunks(new Set([0, 1, 2, 3, 4, 5])), seen = [];
          for (const [number, time] of times.entries()) {
            const frame = { image: async () => number % 251, close() {} };
            seen.push(...await chunks.take(5 + time, frame));
          }
          return seen.map(({ index, frames }) => [index, frames]);
        }""",
        [float(time) for time in times],
    )
    assert found == expected[: len(found)] and len(expected) - len(found) <= 1
    indices = [index for index, _ in found]
    assert max(later - earlier for earlier, later in pairwise(indices)) > 8, "there are gaps"
    assert n_frames_until(times[-1]) // 6 - indices[-1] <= 1


@pytest.mark.parametrize(("number", "matrix"), [(None, "bt601"), (1, "bt709"), (5, "bt601"), (9, "bt2020-ncl")])
def test_an_mp4_is_read_as_the_browser_s_decoder_needs_it(page, tmp_path, number, matrix):
    """Frames with B-frames between them at 30000/1001, in the order of decoding; and what its colours are made with."""
    path, rate = tmp_path / "tagged.mp4", Fraction(30000, 1001)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"g": "20", "bf": "2"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        if number:
            stream.codec_context.colorspace = number
        for n in range(50):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 5 * n, np.uint8), format="rgb24")
            frame.pts, frame.time_base = n, 1 / rate
            if number:
                frame = frame.reformat(format="yuv420p", dst_colorspace=number)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        first, base = min(packet.pts for packet in packets), packets[0].time_base
        expected = [[packet.size, (packet.pts - first) * base, packet.is_keyframe] for packet in packets]
    page.set_content('<input type="file" id="file">')
    page.set_input_files("#file", path)
    found = page.evaluate(
        """async () => {
          const { samples, timescale, matrix, config } = await openMp4(document.getElementById("file").files[0]);
          return [samples.map(({ size, time, key }) => [size, time, key]), timescale, matrix, config.codec];
        }"""
    )
    assert [[size, Fraction(time, found[1]), key] for size, time, key in found[0]] == expected
    assert len({time for _, time, _ in expected}) == 50 and expected != sorted(expected, key=lambda one: one[1])
    assert found[2] == matrix and found[3].startswith("avc1.")
