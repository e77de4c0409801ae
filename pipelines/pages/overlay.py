"""A video with its lanes below: at each moment what had been decided by then, and nothing later.

OpenCV draws its labels, each letter in the first font of this machine that has it.
"""

import shlex
import threading
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import chain, groupby
from pathlib import Path

import av
import cv2
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from lstr.errors import OutputError, VideoError, few
from lstr.extractors.video.containers import best_video, open_container
from lstr.extractors.video.frames import CHUNK_SECONDS, FPS
from lstr.files.atomic import replacing
from lstr.labels.label_set import actions_of
from lstr.pipelines.pages.palette import LIMBS, NEUTRALS, colours_of, rgb_of

PAST_SECONDS = 10.0  # that a lane shows; its right edge is now
MAX_LANES = 8
MIN_WIDTH = 480  # pixels; a smaller video is enlarged by whole factors, so that labels can be read
PAPER, INK, SOFT, LINE = (np.array(rgb_of(NEUTRALS[name][1]), np.uint8) for name in ("card", "ink", "soft", "line"))
Image = NDArray[np.uint8]  # (H, W, 3) RGB
FIRST_FONT = "sans"  # built into OpenCV, the same on every machine: Latin, Cyrillic, Arabic, Hebrew and common signs
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Mn", "Me", "Zl", "Zp", "Zs")  # general categories that need no glyph of their own
UNUSUAL_STYLES = ("bold", "italic", "oblique", "light", "thin", "black", "mono", "serif", "condensed", "narrow", "math")
FONT_WEIGHT = 400  # of the first font, which has all weights
LETTER_SHARE = 0.93  # of the size of letters that OpenCV calls their size
_drawing = threading.Lock()  # threads share the faces


def write_overlay(
    path: Path,
    video: Path,
    classes: Sequence[str],
    events: Sequence[Mapping],
    scores: NDArray[np.floating] | None = None,
    people: Sequence[Mapping] = (),
) -> None:
    """Write an MP4 (H.264, no sound) of a video above its lanes, each frame shown when the source shows it.

    Args:
        path: The file.
        video: The source.
        classes: Class names, background included.
        events: Started and ended events in order of time.
        scores: Probabilities (chunks, classes), if known.
        people: People to draw on the video, as of `Detection`.

    Raises:
        VideoError: The source cannot be decoded.
        OutputError: The file cannot be written.
    """
    if path.exists() and path.samefile(video):
        raise OutputError(f"{path} is the video itself.", "use another name with -o.")
    with replacing(path) as temporary:
        try:
            with (
                open_container(video) as source,
                av.open(str(temporary), "w", format="mp4", options={"movflags": "faststart"}) as target,
            ):
                watched = best_video(source, str(video))
                watched.thread_type = "AUTO"
                rate = watched.average_rate or watched.guessed_rate or Fraction(FPS)
                base = watched.time_base or 1 / rate
                step = max(1, round(1 / (rate * base)))
                stream, panel = None, None

                def mux(frame: av.VideoFrame | None) -> None:
                    assert stream
                    for packet in stream.encode(frame):
                        # the encoder leaves out how long the last frame is shown, on which the rate of the file depends
                        packet.duration = packet.duration or step
                        target.mux(packet)

                for stamp, turned, image in even_frames(source, watched, step):
                    if stream is None or panel is None:
                        height, width = image.shape[:2]
                        panel = Panel(width, classes, events, scores)
                        stream = target.add_stream("libx264", rate=rate)
                        stream.width, stream.height, stream.pix_fmt = width, height + panel.height, "yuv420p"
                        stream.options = {"crf": "20", "preset": "veryfast"}
                        stream.codec_context.time_base = base
                        # of pixels that are not square, as in DV and many broadcasts
                        if aspect := watched.sample_aspect_ratio:
                            stream.codec_context.sample_aspect_ratio = 1 / aspect if turned else aspect
                    if image.shape[:2] != (height, width):  # the stream changed its size
                        image = np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
                    now = float(stamp * base)
                    latest = bisect_right(people, now + 1e-6, key=lambda line: line["time"]) - 1
                    if latest >= 0 and now - people[latest]["time"] <= CHUNK_SECONDS:
                        image = draw_people(image, people[latest]["people"])
                    frame = av.VideoFrame.from_ndarray(np.concatenate([image, panel.draw(now)]), format="rgb24")
                    frame.pts, frame.time_base = stamp, base
                    mux(frame)
                if stream is None:
                    raise VideoError(f"{video} has no decodable frame.", "record or download the file again.")
                mux(None)
        except (av.error.FFmpegError, ValueError) as error:
            raise VideoError(
                f"No overlay can be made of {video} ({str(error).strip().splitlines()[0]}).",
                f"repair it with `ffmpeg -i {shlex.quote(str(video))} -c:v libx264 repaired.mp4`.",
            ) from error


def draw_people(image: Image, people: Iterable[Mapping]) -> Image:
    """Return an image with people, as of `Person.to_dict`: box, number, and the keypoints that are seen, joined."""
    image, size = image.copy(), np.array(image.shape[1::-1])
    for person in people:
        left_top, right_bottom = np.rint(np.reshape(person["box"], (2, 2)) * size).astype(int)
        points = np.array(person["keypoints"])
        places = np.rint(points[:, :2] * size).astype(int).tolist()
        for colour, width in (((0, 0, 0), 3), ((255, 255, 255), 1)):  # white with a dark edge is seen everywhere
            cv2.rectangle(image, left_top, right_bottom, colour, width, cv2.LINE_AA)
            for first, second in LIMBS:
                if points[[first, second], 2].all():
                    cv2.line(image, places[first], places[second], colour, width, cv2.LINE_AA)
            corner = left_top + (4, max(12, len(image) // 18))
            cv2.putText(image, str(person["id"]), corner, cv2.FONT_HERSHEY_SIMPLEX, len(image) / 600, colour, width)
    return image


def even_frames(source: InputContainer, watched: VideoStream, step: int) -> Iterator[tuple[int, bool, Image]]:
    """Yield frames of even size with their time since the first one and whether width and height are swapped.

    Times are in the stream's time base. Those that are missing or go back become one `step`, as everywhere else.
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
        # H.264 with 4:2:0 has no odd sides
        yield stamp, frame.rotation % 180 != 0, image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]


class Panel:
    """The strip below the video: a clock, and one lane per class with its score; nothing is kept between frames.

    Args: as of `write_overlay`, and the width in pixels.
    """

    def __init__(
        self, width: int, classes: Sequence[str], events: Sequence[Mapping], scores: NDArray[np.floating] | None
    ):
        self.width, self.classes, self.events, self.scores = width, list(classes), events, scores
        self.labels = actions_of(classes)
        self.colours = {label: np.array(rgb_of(colour), np.uint8) for label, colour in colours_of(classes).items()}
        self.size = max(11, min(22, width // 45))  # of the letters, in pixels
        self.lane = round(self.size * 1.7)
        self.names = min(width // 3, self.size * 9)
        self.height = (self.lane * min(MAX_LANES, max(1, len(self.labels))) + self.size * 2) // 2 * 2

    def draw(self, now: float) -> Image:
        """Return the strip (height, width, 3) uint8 RGB at `now` seconds."""
        canvas = np.full((self.height, self.width, 3), PAPER, np.uint8)
        scale = (self.width - self.names) / PAST_SECONDS  # pixels per second
        known: dict[str, list[tuple[float, float | None, float]]] = {}  # start, end or None, and score, by label
        for event in self.events:
            if event["time"] > now:
                break
            score = event.get("score", 1.0)
            if event["event"] == "started":
                known.setdefault(event["label"], []).append((event["start"], None, score))
            elif event["event"] == "ended":
                known[event["label"]][-1] = (event["start"], event["end"], score)
        # every class, or of many the ones that started last
        latest = sorted(known, key=lambda label: known[label][-1][0])[-MAX_LANES:]
        rows = [label for label in self.labels if len(self.labels) <= MAX_LANES or label in latest]
        n_decided = int(now / CHUNK_SECONDS + 1e-6)
        # of each column
        chunks = ((now - np.arange(self.width - self.names - 1, -1, -1) / scale) // CHUNK_SECONDS).astype(int)
        active = []
        for row, label in enumerate(rows):
            top, bottom = row * self.lane + 3, (row + 1) * self.lane - 3
            segments = known.get(label, [])
            curve: NDArray[np.floating] = np.zeros(0)
            if self.scores is not None:
                curve = self.scores[:n_decided, self.classes.index(label)]
                # as steps, paler than segments
                values = np.zeros(self.width - self.names)
                if len(curve):
                    is_decided = (chunks >= 0) & (chunks < len(curve))
                    values = np.where(is_decided, curve[chunks.clip(0, len(curve) - 1)], 0)
                heights = np.rint(np.nan_to_num(values) * (bottom - top) * 0.6)
                below = np.arange(bottom - top - 1, -1, -1)[:, None] < heights  # (rows, columns)
                canvas[top:bottom, self.names :][below] = (0.7 * self.colours[label] + 0.3 * PAPER).astype(np.uint8)
            canvas[bottom : bottom + 1, self.names :] = LINE
            for start, end, _ in segments:
                left = round(self.width - (now - start) * scale)
                right = round(self.width - (now - (now if end is None else end)) * scale)
                if right > self.names:
                    bar = canvas[top : top + (bottom - top) // 3, max(left, self.names) : max(right, left + 1)]
                    bar[:] = self.colours[label]
            is_active = bool(segments) and segments[-1][1] is None
            if is_active:
                active.append(f"{label} {curve[-1] if len(curve) else segments[-1][2]:.2f}")
            self._write(canvas, label, 6, top, INK if is_active else SOFT, self.names - 10)
        foot = self.height - round(self.size * 1.6)
        self._write(canvas, f"{int(now // 60)}:{now % 60:05.2f}", 6, foot, INK, self.names)
        self._write(canvas, "  ·  ".join(active), self.names, foot, INK, self.width - self.names - 6)
        return canvas

    def _write(self, canvas: Image, text: str, x: int, y: int, colour: NDArray[np.uint8], width: int) -> None:
        mask = letters(text, self.size)[: self.height - y, :width, None]
        area = canvas[y : y + mask.shape[0], x : x + mask.shape[1]]
        area[:] = (area * (1 - mask) + colour * mask).astype(np.uint8)


@cache
def font_of(letter: str) -> str | None:
    """Return the font to draw a letter with, its path or FIRST_FONT; None if no font has it."""
    if unicodedata.category(letter) in INVISIBLE_CATEGORIES:
        return FIRST_FONT
    # the others are searched only if they are needed: it takes a second
    for font in chain([FIRST_FONT], (path for path in _other_fonts() if ord(letter) in _letters_of(path))):
        # OpenCV draws a letter that a font lacks as a question mark, or not at all
        found, question = (np.zeros((60, 90), np.uint8) for _ in range(2))
        _draw(found, letter, font, 30, (20, 40))
        _draw(question, "?", font, 30, (20, 40))
        if found.any() and (letter == "?" or not np.array_equal(found, question)):
            return font
    return None


def illegible_warning(labels: Iterable[str]) -> str:
    """Return a sentence naming the labels that cannot be drawn because no font has a letter; else empty."""
    unknown = [label for label in labels if any(font_of(letter) is None for letter in label)]
    if not unknown:
        return ""
    return (
        f"no installed font has all letters of {few(unknown)}: frames show question marks instead. "
        "Install more letters with `apt-get install fonts-noto`."
    )


@lru_cache(maxsize=1024)
def letters(text: str, size: int) -> NDArray[np.float32]:
    """Return the coverage (height, width) of a line of text, 0 to 1; its baseline is the row `size`."""
    parts, width = [], 0
    # letters that no font has are in FIRST_FONT, which draws question marks
    for font, group in groupby(text, lambda letter: font_of(letter) or FIRST_FONT):
        parts.append((part := "".join(group), font, width))
        width += max(0, _draw(np.zeros((1, 1), np.uint8), part, font, size, (0, 0)))
    image = np.zeros((round(size * 1.4), max(1, width) + 2), np.uint8)
    for part, font, x in parts:
        _draw(image, part, font, size, (x, size))
    return np.divide(image, 255, dtype=np.float32)


def _draw(image: NDArray[np.uint8], text: str, font: str, size: int, where: tuple[int, int]) -> int:
    """Draw text in white, from the left end of its baseline at (column, row); return the column of its end."""
    with _drawing:
        end, _ = cv2.putText(
            image, text, where, (255,), _face_of(font), max(1, round(size * LETTER_SHARE)), FONT_WEIGHT
        )
    return int(end[0])


_face_of = lru_cache(maxsize=8)(cv2.FontFace)


@lru_cache(maxsize=1)
def _other_fonts() -> list[str]:
    """Return the fonts that Matplotlib finds, upright ones of usual weight first; empty without Matplotlib."""
    if find_spec("matplotlib") is None:
        return []
    from matplotlib.font_manager import fontManager  # it searches the machine at its first use

    paths = {font.fname for font in fontManager.ttflist}
    return sorted(paths, key=lambda path: (sum(word in Path(path).name.lower() for word in UNUSUAL_STYLES), path))


@cache
def _letters_of(path: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    with suppress(OSError, RuntimeError):  # a damaged file
        return frozenset(get_font(path).get_charmap())
    return frozenset()
