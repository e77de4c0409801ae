"""A picture of boxes, areas and text in points, written as SVG and as PNG: the same on every machine."""

import re
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstr.pipelines.reports.fonts import base_of, letters, width_of
from lstr.pipelines.reports.palette import rgb_of

FONT = "DejaVu Sans, Arial, sans-serif"
"""Font of an SVG, whose viewer brings letters"""
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}
POINTS_PER_INCH = 72
FINE = 4  # parts of a pixel's side
NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Box:
    """An upright rectangle."""

    left: float
    top: float
    width: float
    height: float
    fill: str
    """#rrggbb"""


@dataclass(frozen=True)
class Area:
    """What a closed line surrounds."""

    corners: NDArray[np.floating]
    """(N, 2): x and y"""
    fill: str
    alpha: float = 1.0


@dataclass(frozen=True)
class Text:
    """A line of text."""

    text: str
    x: float
    y: float
    """The line that letters stand on"""
    size: float
    fill: str
    anchor: str = "start"
    """Where x is in the text: start, middle or end"""


@dataclass
class Canvas:
    """What is drawn, in the order in which it is: what comes later hides what came before."""

    width: float
    height: float
    shapes: list[Box | Area | Text] = field(default_factory=list)

    def add(self, *shapes: Box | Area | Text) -> None:
        """Draw over what is there."""
        self.shapes += shapes

    def svg(self, paper: str) -> bytes:
        """The picture as SVG on a colour, in which text stays text."""
        size = f'width="{self.width:g}pt" height="{self.height:g}pt" viewBox="0 0 {self.width:g} {self.height:g}"'
        lines = [_element(shape) for shape in (Box(0, 0, self.width, self.height, paper), *self.shapes)]
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}"><defs></defs>'
        return "\n".join(["<?xml version='1.0' encoding='utf-8'?>", head, *lines, "</svg>\n"]).encode()

    def png(self, dots_per_inch: int, paper: str) -> bytes:
        """The picture as PNG on a colour."""
        scale = dots_per_inch / POINTS_PER_INCH
        pixels = np.empty((round(self.height * scale), round(self.width * scale), 3), np.float32)
        pixels[:] = rgb_of(paper)
        for shape in self.shapes:
            if isinstance(shape, Box):
                _paint_box(pixels, shape, scale)
            elif isinstance(shape, Area):
                _paint_area(pixels, shape, scale)
            else:
                _paint_text(pixels, shape, scale)
        image = np.rint(pixels).astype(np.uint8)
        return cv2.imencode(".png", np.ascontiguousarray(image[:, :, ::-1]))[1].tobytes()


def fitted(text: str, size: float, width: float) -> str:
    """A text as it is where it fits into a width; else its beginning and …, or nothing."""
    if width_of(text, size) <= width:
        return text
    kept = next((n for n in range(len(text) - 1, 0, -1) if width_of(f"{text[:n]}…", size) <= width), 0)
    return f"{text[:kept].rstrip()}…" if kept else ""


def _element(shape: Box | Area | Text) -> str:
    if isinstance(shape, Text):
        anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
        text = escape(NO_XML.sub("\ufffd", shape.text))
        place = f'x="{shape.x:.2f}" y="{shape.y:.2f}" font-size="{shape.size:g}"'
        return f'<text {place}{anchor} style="fill: {shape.fill}" xml:space="preserve">{text}</text>'
    style = f"fill: {shape.fill}"
    if isinstance(shape, Area):
        style += f"; fill-opacity: {shape.alpha:g}" if shape.alpha < 1 else ""
        path = "L".join(f"{x:.2f} {y:.2f}" for x, y in shape.corners)
        return f'<path d="M{path}Z" style="{style}"/>'
    place = f'x="{shape.left:.2f}" y="{shape.top:.2f}" width="{shape.width:.2f}" height="{shape.height:.2f}"'
    return f'<rect {place} style="{style}"/>'


def _paint_box(pixels: NDArray[np.float32], box: Box, scale: float) -> None:
    """A box of whole pixels, one at least, so that what lasts a moment is seen."""
    left, top = round(box.left * scale), round(box.top * scale)
    right, bottom = round((box.left + box.width) * scale), round((box.top + box.height) * scale)
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    pixels[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = rgb_of(box.fill)


def _blend(area: NDArray[np.float32], colour: str, share: float | NDArray[np.float32]) -> None:
    area[:] = area * (1 - share) + np.array(rgb_of(colour), np.float32) * share


def _paint_area(pixels: NDArray[np.float32], area: Area, scale: float) -> None:
    corners = area.corners * scale
    first = np.floor(corners.min(0)).astype(int)
    width, height = (np.ceil(corners.max(0)).astype(int) + 1 - first).tolist()
    fine = np.zeros((height * FINE, width * FINE), np.uint8)
    # the pixels of the edge are filled too: half of one less on each side
    cv2.fillPoly(fine, [np.rint((corners - first) * FINE - 0.5).astype(np.int32)], (255,))
    mask = cv2.resize(fine, (width, height), interpolation=cv2.INTER_AREA)
    _blend_at(pixels, np.multiply(mask, area.alpha / 255, dtype=np.float32), first[0], first[1], area.fill)


def _paint_text(pixels: NDArray[np.float32], text: Text, scale: float) -> None:
    size = max(1, round(text.size * scale))
    mask = letters(text.text, size)
    left = round(text.x * scale - ANCHORS[text.anchor] * (mask.shape[1] - 2))
    _blend_at(pixels, mask, left, round(text.y * scale) - base_of(size), text.fill)


def _blend_at(pixels: NDArray[np.float32], mask: NDArray[np.float32], left: int, top: int, colour: str) -> None:
    """A colour where a mask (height, width) covers, as far as that is in the picture."""
    mask = mask[max(0, -top) :, max(0, -left) :]
    part = pixels[max(0, top) :, max(0, left) :][: mask.shape[0], : mask.shape[1]]
    _blend(part, colour, mask[: part.shape[0], : part.shape[1], None])


def stepped(lefts: ArrayLike, values: ArrayLike) -> NDArray[np.float64]:
    """The corners (2 L, 2) of steps: each value (L,) from its left end (L + 1,) to the next one's."""
    x = np.repeat(np.asarray(lefts, np.float64), 2)[1:-1]
    return np.stack([x, np.repeat(np.asarray(values, np.float64), 2)], axis=1)
