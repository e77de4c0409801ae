"""The video with its lanes and labels burnt in: at each moment what had been decided by then, and nothing later."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import av
import cv2
import numpy as np

from extractors.errors import OutputError, VideoError
from extractors.video.containers import best_video, open_container
from extractors.video.frames import CHUNK_SECONDS
from lstr.labels import AMBIGUOUS, BACKGROUND
from pipelines.files.atomic import replacing
from pipelines.reports.fonts import runs

PAST_SECONDS = 10.0  # that a lane shows; its right edge is now
MOST_LANES = 8
MIN_WIDTH = 480  # pixels; a smaller video is enlarged by whole factors, so that labels can be read
COLOURS = np.array(
    [(78, 121, 167), (242, 142, 43), (89, 161, 79), (225, 87, 89), (118, 183, 178), (237, 201, 72), (176, 122, 161),
     (255, 157, 167), (156, 117, 95), (186, 176, 172)], np.uint8
)  # fmt: skip
PAPER, INK, QUIET, RULE = 24, 235, 130, 60  # greys of the panel


@dataclass(frozen=True)
class Lanes:
    """What was decided when: classes, `started` and `ended` events in order of time, and scores (chunks, C) or None."""

    classes: tuple[str, ...]
    events: Sequence[Mapping]
    scores: np.ndarray | None = None

    @property
    def labels(self) -> list[str]:
        """The classes that can have a lane."""
        return [label for label in self.classes if label not in (BACKGROUND, AMBIGUOUS)]

    def until(self, time: float) -> dict[str, list[tuple[float, float | None, float]]]:
        """Segments known at `time`, by label in the order of their first start: (start, end or None, score)."""
        known: dict[str, list[tuple[float, float | None, float]]] = {}
        for event in self.events:
            if event["time"] > time:
                break
            score = event.get("score", 1.0)
            if event["event"] == "started":
                known.setdefault(event["label"], []).append((event["start"], None, score))
            elif event["event"] == "ended":
                known[event["label"]][-1] = (event["start"], event["end"], score)
        return known

    def rows(self, known: Mapping[str, list]) -> list[str]:
        """The lanes to show: every class, or where they are many those that began last, in the order of classes."""
        labels = self.labels
        if len(labels) <= MOST_LANES:
            return labels
        latest = sorted(known, key=lambda label: known[label][-1][0])[-MOST_LANES:]
        return [label for label in labels if label in latest]


def write_overlay(path: Path, video: Path, lanes: Lanes) -> None:
    """Write an MP4 (H.264, no sound) of `video` above its lanes, each frame shown when the source shows it.

    Raises VideoError when the source cannot be decoded, OutputError when the file cannot be written.
    """
    if path.exists() and path.samefile(video):
        raise OutputError(f"{path} is the video itself.", "give another name with -o.")
    with replacing(path) as temporary:
        try:
            _write(temporary, video, lanes)
        except (av.error.FFmpegError, ValueError) as error:
            raise VideoError(
                f"{video} cannot be drawn on ({str(error).strip().splitlines()[0]}).",
                f"repair it with `ffmpeg -i {shlex.quote(str(video))} -c:v libx264 repaired.mp4`.",
            ) from error


def _write(path: Path, video: Path, lanes: Lanes) -> None:
    with (
        open_container(video) as source,
        av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as target,
    ):
        given = best_video(source, str(video))
        given.thread_type = "AUTO"
        rate = given.average_rate or given.guessed_rate or Fraction(24)
        stream, panel = None, None
        step = max(1, round(1 / (rate * given.time_base)))
        for moment, stamp, turned, image in _frames(source, given, step):
            if stream is None:
                height, width = image.shape[:2]
                panel = Panel(width, min(MOST_LANES, max(1, len(lanes.labels))))
                stream = target.add_stream("libx264", rate=rate)
                stream.width, stream.height, stream.pix_fmt = width, height + panel.height, "yuv420p"
                stream.options = {"crf": "20", "preset": "veryfast"}
                stream.codec_context.time_base = given.time_base
                if aspect := given.sample_aspect_ratio:
                    stream.codec_context.sample_aspect_ratio = 1 / aspect if turned else aspect
            if image.shape[:2] != (height, width):  # the stream changed its size
                image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
            canvas = np.concatenate([image, panel.draw(lanes, float(moment))])  # (H + panel, W, 3)
            frame = av.VideoFrame.from_ndarray(canvas, format="rgb24")
            frame.pts, frame.time_base = stamp, given.time_base
            _mux(target, stream.encode(frame), step)
        if stream is None:
            raise VideoError(f"{video} holds no decodable frame.", "record or download the file again.")
        _mux(target, stream.encode(), step)


def _mux(target, packets, step: int) -> None:
    """Write packets; the encoder does not say how long the last frame is shown, which the rate of the file hangs on."""
    for packet in packets:
        packet.duration = packet.duration or step
        target.mux(packet)


def _frames(source, given, step: int) -> Iterator[tuple[Fraction, int, bool, np.ndarray]]:
    """Of each frame the seconds since the first one, these in the stream's time base, whether width and height are
    swapped, and (H, W, 3) RGB of an even size.

    Times that are missing or go back are replaced by one frame's `step`, as everywhere else.
    """
    first = last = None
    for frame in source.decode(given):
        stamp = frame.pts if frame.pts is not None else (0 if last is None else last + first + step)
        first = stamp if first is None else first
        stamp -= first
        if last is not None and stamp <= last:
            stamp = last + step
        last = stamp
        image = frame.to_ndarray(format="rgb24")
        if frame.rotation:
            image = np.rot90(image, frame.rotation // 90)
        factor = -(-MIN_WIDTH // image.shape[1])
        image = image.repeat(factor, 0).repeat(factor, 1) if factor > 1 else image
        turned = frame.rotation % 180 != 0
        yield stamp * given.time_base, stamp, turned, image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]


class Panel:
    """The strip under the video: a clock, and a lane a class with its score now. It keeps nothing between frames."""

    def __init__(self, width: int, n_lanes: int):
        self.width, self.n_lanes = width, n_lanes
        self.size = max(11, min(22, width // 45))  # of the letters, in pixels
        self.lane = round(self.size * 1.7)
        self.names = min(width // 3, self.size * 9)
        self.height = (self.lane * n_lanes + self.size * 2) // 2 * 2
        self.scale = (width - self.names) / PAST_SECONDS  # pixels a second

    def draw(self, lanes: Lanes, now: float) -> np.ndarray:
        """The strip (height, width, 3) uint8 RGB at `now` seconds."""
        canvas = np.full((self.height, self.width, 3), PAPER, np.uint8)
        known = lanes.until(now)
        chunk = int(now / CHUNK_SECONDS + 1e-6) - 1  # the newest whose end has come
        for row, label in enumerate(lanes.rows(known)):
            top, bottom = row * self.lane + 3, (row + 1) * self.lane - 3
            colour = COLOURS[lanes.classes.index(label) % len(COLOURS)]
            segments = known.get(label, [])
            on = bool(segments) and segments[-1][1] is None
            canvas[bottom : bottom + 1, self.names :] = RULE
            if lanes.scores is not None:
                self._curve(canvas, lanes.scores[: chunk + 1, lanes.classes.index(label)], now, top, bottom, colour)
            for start, end, _ in segments:
                left, right = self._x(start, now), self._x(now if end is None else end, now)
                if right > self.names:
                    canvas[top : top + (bottom - top) // 3, max(left, self.names) : max(right, left + 1)] = colour
            self._text(canvas, label, 6, top, INK if on else QUIET, self.names - 10)
        clock = f"{int(now // 60)}:{now % 60:05.2f}"
        self._text(canvas, clock, 6, self.height - round(self.size * 1.6), INK, self.names)
        active = [label for label, segments in known.items() if segments[-1][1] is None]
        said = "  ·  ".join(f"{label} {self._score(lanes, label, chunk, known[label][-1][2])}" for label in active)
        where = self.height - round(self.size * 1.6)
        self._text(canvas, said, self.names, where, INK, self.width - self.names - 6)
        return canvas

    def _score(self, lanes: Lanes, label: str, chunk: int, announced: float) -> str:
        """The newest score of a class, else that of its announcement."""
        newest = lanes.scores[: chunk + 1, lanes.classes.index(label)] if lanes.scores is not None else ()
        return f"{newest[-1] if len(newest) else announced:.2f}"

    def _x(self, time: float, now: float) -> int:
        """The column of a moment; now is the right edge."""
        return round(self.width - (now - time) * self.scale)

    def _curve(self, canvas, scores, now: float, top: int, bottom: int, colour) -> None:
        """Scores (chunks so far,) as steps under the segments, less bright."""
        columns = np.arange(self.names, self.width)
        chunks = ((now - (self.width - columns - 1) / self.scale) // CHUNK_SECONDS).astype(int)
        there = (chunks >= 0) & (chunks < len(scores))
        values = np.where(there, scores[chunks.clip(0, len(scores) - 1)], 0) if len(scores) else np.zeros(len(columns))
        heights = np.rint(np.nan_to_num(values) * (bottom - top) * 0.6)
        below = np.arange(bottom - top)[::-1, None] < heights  # (rows, columns)
        canvas[top:bottom, self.names :][below] = colour // 3 * 2

    def _text(self, canvas: np.ndarray, text: str, x: int, y: int, grey: int, width: int) -> None:
        mask = _letters(text, self.size)[: self.height - y, :width, None]
        area = canvas[y : y + mask.shape[0], x : x + mask.shape[1]]
        area[:] = (area * (1 - mask) + grey * mask).astype(np.uint8)


@lru_cache(maxsize=1024)
def _letters(text: str, size: int) -> np.ndarray:
    """The coverage (height, width) of a line of text, 0 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    parts = [(part, ImageFont.truetype(str(path), size)) for part, path in runs(text)]
    widths = [font.getlength(part) for part, font in parts]
    image = Image.new("L", (max(1, round(sum(widths)) + 2), round(size * 1.4)))
    base = parts[0][1].getmetrics()[0] if parts else 0
    for (part, font), x in zip(parts, accumulate(widths, initial=0), strict=False):
        ImageDraw.Draw(image).text((x, base), part, fill=255, font=font, anchor="ls")
    return np.asarray(image, np.float32) / 255
