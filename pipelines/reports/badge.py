"""What is on right now, in letters that a person reads at a glance, in the corner of a picture of the video."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lstr.pipelines.reports.fonts import letters
from lstr.pipelines.reports.palette import dark, light, rgb_of

MOST_BADGES = 3
LINGERS = 1.0  # seconds that the badge of an action stays, hollow, after its end was announced
LINES = 13  # of a badge's letters that would fill the height of the picture
DARK, WHITE = (np.array(rgb_of(colour), np.float32) for colour in (dark("page"), light("card")))
Picture = NDArray[np.uint8]


class Decided(Protocol):
    """What had been decided by a moment: `overlay.Lanes`."""

    @property
    def colours(self) -> dict[str, Picture]: ...

    @property
    def events(self) -> Sequence: ...


def draw_badges(image: Picture, decided: Decided, now: float) -> Picture:
    """The picture (H, W, 3) with a badge for each action that is on at `now` seconds, the newest on top.

    A filled badge is on; a hollow one is of an action whose end was announced less than a second ago.
    """
    badges = badges_at(decided.events, now)
    if not badges:
        return image
    height, width = image.shape[:2]
    size = max(14, min(height // LINES, width // 18))
    canvas, y, margin = image.copy(), size // 2, size // 2
    for label, is_on in badges[:MOST_BADGES]:
        mask = letters(label, size)[:, : width - 4 * margin, None]
        tall, wide = mask.shape[0] + margin, mask.shape[1] + 2 * margin
        area = canvas[y : y + tall, margin : margin + wide]
        if len(area) < tall:
            break
        colour = decided.colours[label].astype(np.float32)
        face = colour if is_on else 0.35 * area + 0.65 * DARK
        ink = readable_on(colour) if is_on else WHITE
        edge = max(2, size // 10)
        drawn = np.empty_like(area)
        drawn[:] = colour if is_on else 0.2 * area + 0.8 * colour
        inside = (slice(edge, -edge), slice(edge, -edge))
        drawn[inside] = face if is_on else face[inside]
        text = drawn[margin // 2 : margin // 2 + mask.shape[0], margin : margin + mask.shape[1]]
        text[:] = text * (1 - mask) + ink * mask
        area[:] = drawn
        y += tall + margin // 2
    return canvas


def badges_at(events: Sequence, now: float) -> list[tuple[str, bool]]:
    """(label, whether it is on) of what is on, then of what has just ended, each by its newest announcement."""
    newest: dict[str, tuple[bool, float]] = {}
    for event in events:
        if event["time"] > now:
            break
        if event["event"] in ("started", "ended"):
            newest[event["label"]] = event["event"] == "started", event["time"]
    shown = [(label, is_on, time) for label, (is_on, time) in newest.items() if is_on or now - time < LINGERS]
    return [(label, is_on) for label, is_on, _ in sorted(shown, key=lambda one: (not one[1], -one[2]))]


def readable_on(colour: NDArray[np.floating]) -> NDArray[np.float32]:
    """White or dark letters, whichever contrasts more with a colour (3,) of 0 to 255."""
    brightness = luminance(colour)
    on_dark, on_white = (brightness + 0.05) / (luminance(DARK) + 0.05), 1.05 / (brightness + 0.05)
    return DARK if on_dark > on_white else WHITE


def luminance(colour: NDArray[np.floating]) -> float:
    """Of a colour (3,) of 0 to 255, 0 to 1, as WCAG 2 defines it."""
    value = np.asarray(colour) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
