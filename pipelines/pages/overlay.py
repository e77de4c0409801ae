"""The video above its lanes: at each moment what had been decided by then, and nothing later."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.container import InputContainer, OutputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from lstr.errors import OutputError, VideoError
from lstr.extractors.video.containers import best_video, open_container
from lstr.extractors.video.frames import CHUNK_SECONDS, FPS
from lstr.files.atomic import replacing
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.pages.fonts import letters
from lstr.pipelines.pages.palette import colours_of, dark, rgb_of

PAST_SECONDS = 10.0  # that a lane shows; its right edge is now
MOST_LANES = 8
MIN_WIDTH = 480  # pixels; a smaller video is enlarged by whole factors, so that labels can be read
PAPER, INK, QUIET, RULE = (np.array(rgb_of(dark(name)), np.uint8) for name in ("card", "ink", "soft", "line"))
# (H, W, 3) RGB
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Lanes:
    """What was decided when: classes, `started` and `ended` events in order of time, and scores (chunks, C) or None."""

    classes: tuple[str, ...]
    events: Sequence[Mapping]
    scores: NDArray[np.floating] | None = None

    @property
    def labels(self) -> list[str]:
        """The classes that can have a lane."""
        return [label for label in self.classes if label not in (BACKGROUND, AMBIGUOUS)]

    @property
    def colours(self) -> dict[str, Picture]:
        """The colour (3,) of each class."""
        return {label: np.array(rgb_of(colour), np.uint8) for label, colour in colours_of(self.classes).items()}

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
        """The lanes to show: every class, or of many those that began last, in the order of classes."""
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
        watched = best_video(source, str(video))
        watched.thread_type = "AUTO"
        rate = watched.average_rate or watched.guessed_rate or Fraction(FPS)
        base = watched.time_base or 1 / rate
        stream, panel = None, None
        step = max(1, round(1 / (rate * base)))
        for stamp, turned, image in _frames(source, watched, step):
            if stream is None or panel is None:
                height, width = image.shape[:2]
                panel = Panel(width, min(MOST_LANES, max(1, len(lanes.labels))))
                stream = target.add_stream("libx264", rate=rate)
                stream.width, stream.height, stream.pix_fmt = width, height + panel.height, "yuv420p"
                stream.options = {"crf": "20", "preset": "veryfast"}
                stream.codec_context.time_base = base
                if aspect := watched.sample_aspect_ratio:
                    stream.codec_context.sample_aspect_ratio = 1 / aspect if turned else aspect
            if image.shape[:2] != (height, width):  # the stream changed its size
                image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
            now = float(stamp * base)
            canvas = np.concatenate([image, panel.draw(lanes, now)])  # (H + panel, W, 3)
            frame = av.VideoFrame.from_ndarray(canvas, format="rgb24")
            frame.pts, frame.time_base = stamp, base
            _mux(target, stream.encode(frame), step)
        if stream is None:
            raise VideoError(f"{video} holds no decodable frame.", "record or download the file again.")
        _mux(target, stream.encode(), step)


def _mux(target: OutputContainer, packets: Iterable[av.Packet], step: int) -> None:
    """Write packets; the encoder leaves out how long the last frame is shown, on which the rate of the file depends."""
    for packet in packets:
        packet.duration = packet.duration or step
        target.mux(packet)


def _frames(source: InputContainer, watched: VideoStream, step: int) -> Iterator[tuple[int, bool, Picture]]:
    """Each frame's time since the first one in the stream's time base, whether width and height are swapped, and
    its picture, of an even size.

    Times that are missing or go back are replaced by one frame's `step`, as everywhere else.
    """
    first, last = 0, None
    for frame in source.decode(watched):
        stamp = frame.pts if frame.pts is not None else (0 if last is None else last + first + step)
        if last is None:
            first = stamp
        stamp -= first
        if last is not None and stamp <= last:
            stamp = last + step
        last = stamp
        image = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
        if frame.rotation:
            image = np.rot90(image, frame.rotation // 90)
        factor = -(-MIN_WIDTH // image.shape[1])
        image = image.repeat(factor, 0).repeat(factor, 1) if factor > 1 else image
        turned = frame.rotation % 180 != 0
        yield stamp, turned, image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]


class Panel:
    """The strip under the video: a clock, and one lane per class with its score now; nothing is kept between frames."""

    def __init__(self, width: int, n_lanes: int):
        self.width, self.n_lanes = width, n_lanes
        self.size = max(11, min(22, width // 45))  # of the letters, in pixels
        self.lane = round(self.size * 1.7)
        self.names = min(width // 3, self.size * 9)
        self.height = (self.lane * n_lanes + self.size * 2) // 2 * 2
        self.scale = (width - self.names) / PAST_SECONDS  # pixels per second

    def draw(self, lanes: Lanes, now: float) -> Picture:
        """The strip (height, width, 3) uint8 RGB at `now` seconds."""
        canvas = np.full((self.height, self.width, 3), PAPER, np.uint8)
        colours = lanes.colours
        known = lanes.until(now)
        chunk = int(now / CHUNK_SECONDS + 1e-6) - 1  # the newest whose end has come
        for row, label in enumerate(lanes.rows(known)):
            top, bottom = row * self.lane + 3, (row + 1) * self.lane - 3
            segments = known.get(label, [])
            on = bool(segments) and segments[-1][1] is None
            canvas[bottom : bottom + 1, self.names :] = RULE
            if lanes.scores is not None:
                scores = lanes.scores[: chunk + 1, lanes.classes.index(label)]
                self._curve(canvas[top:bottom], scores, now, colours[label])
            for start, end, _ in segments:
                left, right = self._x(start, now), self._x(now if end is None else end, now)
                if right > self.names:
                    bar = canvas[top : top + (bottom - top) // 3, max(left, self.names) : max(right, left + 1)]
                    bar[:] = colours[label]
            self._text(canvas, label, 6, top, INK if on else QUIET, self.names - 10)
        clock = f"{int(now // 60)}:{now % 60:05.2f}"
        self._text(canvas, clock, 6, self.height - round(self.size * 1.6), INK, self.names)
        active = [label for label, segments in known.items() if segments[-1][1] is None]
        line = "  ·  ".join(f"{label} {self._score(lanes, label, chunk, known[label][-1][2])}" for label in active)
        where = self.height - round(self.size * 1.6)
        self._text(canvas, line, self.names, where, INK, self.width - self.names - 6)
        return canvas

    def _score(self, lanes: Lanes, label: str, chunk: int, announced: float) -> str:
        """The newest score of a class, else that of its announcement."""
        if lanes.scores is not None and len(so_far := lanes.scores[: chunk + 1, lanes.classes.index(label)]):
            announced = so_far[-1]
        return f"{announced:.2f}"

    def _x(self, time: float, now: float) -> int:
        """The column of a moment; now is the right edge."""
        return round(self.width - (now - time) * self.scale)

    def _curve(self, lane: Picture, scores: NDArray[np.floating], now: float, colour: Picture) -> None:
        """Scores (chunks so far,) as steps under the segments, paler."""
        height = len(lane)
        columns = np.arange(self.names, self.width)
        chunks = ((now - (self.width - columns - 1) / self.scale) // CHUNK_SECONDS).astype(int)
        decided = (chunks >= 0) & (chunks < len(scores))
        values = np.zeros(len(columns))
        if len(scores):
            values = np.where(decided, scores[chunks.clip(0, len(scores) - 1)], 0)
        heights = np.rint(np.nan_to_num(values) * height * 0.6)
        below = np.arange(height - 1, -1, -1)[:, None] < heights  # (rows, columns)
        lane[:, self.names :][below] = (0.7 * colour + 0.3 * PAPER).astype(np.uint8)

    def _text(self, canvas: Picture, text: str, x: int, y: int, colour: Picture, width: int) -> None:
        mask = letters(text, self.size)[: self.height - y, :width, None]
        area = canvas[y : y + mask.shape[0], x : x + mask.shape[1]]
        area[:] = (area * (1 - mask) + colour * mask).astype(np.uint8)
