"""Control of a page in a headless Chromium, and the report of a grey video with three segments."""

import cv2
import numpy as np

from lstr.labels.segment import Segment
from lstr.pipelines.pages.page import write_report
from tests.support.pages import make_timeline
from tests.support.videos import write_video
from tests.support.waiting import wait_until

CLASSES = ["Background", "<script>alert(1)</script>", "kick", "hug"]
HOSTILE = CLASSES[1]
SECONDS = 10
UNAVAILABLE = ("ERR_", "status of 4")  # in console messages about a server that has ended or refuses requests
GREYS = (40, 90, 140, 190, 240)  # of the video's five parts of two seconds


def wait_for(page, expression: str) -> None:
    """Wait until an expression is true; polled, because the page's policy forbids eval."""
    wait_until(lambda: page.evaluate(expression), lambda: page.wait_for_timeout(25))


def write_greys(path, codec: str = "libx264", late: int = 0) -> None:
    """Write a grey video that changes every two seconds and starts `late` seconds after its sound."""
    options = {"g": "12", "preset": "ultrafast", "x265-params": "log-level=none"}
    times, greys = range(late * 24, (late + SECONDS) * 24), np.repeat(GREYS, 48)
    write_video(path, times, codec=codec, options=options, rate=24, greys=greys, sound_s=late and SECONDS + late)


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

    def has_grey() -> bool:
        shot = cv2.imdecode(np.frombuffer(page.locator("#video").screenshot(), np.uint8), cv2.IMREAD_GRAYSCALE)
        return abs(int(shot[shot.shape[0] // 2, shot.shape[1] // 2]) - grey) < 8

    wait_until(has_grey, lambda: page.wait_for_timeout(25))


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
