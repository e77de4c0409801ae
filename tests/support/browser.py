"""Control of a page in a headless Chromium, and the report of a grey video with three segments."""

from fractions import Fraction
from time import monotonic

import av
import cv2
import numpy as np

from lstr.labels.segment import Segment
from lstr.pipelines.pages.page import write_report
from tests.support.pages import make_timeline
from tests.support.waiting import TIMEOUT_S

CLASSES = ["Background", "<script>alert(1)</script>", "kick", "hug"]
HOSTILE = CLASSES[1]
SECONDS = 10
UNAVAILABLE = ("ERR_", "status of 4")  # in console messages about a server that has ended or refuses requests
GREYS = (40, 90, 140, 190, 240)  # of the video's five parts of two seconds


def wait_for(page, expression: str) -> None:
    """Wait until an expression is true; polled, because the page's policy forbids eval."""
    deadline = monotonic() + TIMEOUT_S
    while not page.evaluate(expression):
        assert monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(25)


def write_greys(path, codec: str = "libx264", late: int = 0) -> None:
    """Write a grey video that changes every two seconds and starts `late` seconds after its sound."""
    with av.open(str(path), "w") as container:
        options = {"g": "12", "preset": "ultrafast", "x265-params": "log-level=none"}
        stream = container.add_stream(codec, rate=Fraction(24), options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        sound = container.add_stream("aac", rate=8000, layout="mono") if late else None
        for k in range(SECONDS * 24):
            image = np.full((48, 64, 3), GREYS[k // 48], np.uint8)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = late * 24 + k, Fraction(1, 24)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        for k in range(0, (SECONDS + late) * 8000 if sound else 0, 1000):
            samples = av.AudioFrame.from_ndarray(np.zeros((1, 1000), np.float32), format="fltp", layout="mono")
            samples.sample_rate, samples.pts, samples.time_base = 8000, k, Fraction(1, 8000)
            container.mux(sound.encode(samples))
        if sound:
            container.mux(sound.encode())


def segment(label: str, start: float, end: float, score: float) -> dict:
    return {"label": label, "start": start, "end": end, "score": score}


SEGMENTS = [segment("kick", 2, 4, 0.9), segment("hug", 5, 5.5, 0.6), segment(HOSTILE, 6, 8, 0.8)]
EVENTS = [{"event": "started", "label": s["label"], "start": s["start"], "time": s["start"] + 0.5} for s in SEGMENTS]
TRUTH = [
    Segment(1.25, 4, "kick"),  # detected, reported 1.25 s after its start
    Segment(0, 1, HOSTILE),  # missed
    Segment(8, 9, "wave"),  # not a class of the checkpoint
]


def report_on(video, path, **more):
    """Write the report of a grey video; return its path."""
    chunks = SECONDS * 4
    scores = np.full((chunks, len(CLASSES)), 0.1, np.float32)
    for s in SEGMENTS:
        scores[int(s["start"] * 4) : int(s["end"] * 4), CLASSES.index(s["label"])] = s["score"]
    about = {"source": "rtsp://admin:hunter2@camera/live", "duration": float(SECONDS), "segments": SEGMENTS}
    timeline = make_timeline(chunks, CLASSES, **about, speed={"realtime_factor": 3.5}, warnings=[HOSTILE])
    write_report(path, timeline, scores, video=video, truth=TRUTH, events=EVENTS, **more)
    return path


def seconds(page) -> float:
    """Return the time at the cursor, as screen readers get it."""
    wait_for(page, "!frameAsked || playing")
    return float(page.get_attribute("#surface", "aria-valuenow"))


def wait_for_picture(page, grey: int) -> None:
    """Wait until the middle of the video has this grey, in a screenshot: scripts cannot read a video from disk."""
    deadline, current = monotonic() + TIMEOUT_S, -1
    while abs(current - grey) >= 8:
        assert monotonic() < deadline, f"the frame is {current}, not {grey}"
        shot = cv2.imdecode(np.frombuffer(page.locator("#video").screenshot(), np.uint8), cv2.IMREAD_GRAYSCALE)
        current = int(shot[shot.shape[0] // 2, shot.shape[1] // 2])
        page.wait_for_timeout(25)


def ink(page, lane: int) -> int:
    """Return the number of drawn pixels of a lane."""
    wait_for(page, f"!document.querySelectorAll('.lane, .line')[{lane}].lane.dirty")
    return page.evaluate(
        """(lane) => {
          const canvas = document.querySelectorAll(".lane canvas, .line canvas")[lane], { width, height } = canvas;
          const pen = new OffscreenCanvas(width, height).getContext("2d");
          pen.drawImage(canvas, 0, 0);
          const pixels = pen.getImageData(0, 0, width, height).data;
          return pixels.filter((value, index) => index % 4 === 3 && value).length;
        }""",
        lane,
    )
