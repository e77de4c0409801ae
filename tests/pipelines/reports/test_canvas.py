"""What is drawn, as SVG and as PNG."""

import xml.etree.ElementTree as ET

import cv2
import numpy as np
import pytest

from lstr.pipelines.reports.canvas import Area, Box, Canvas, Text, fitted, stepped
from lstr.pipelines.reports.figure import begin_chart
from lstr.pipelines.reports.fonts import width_of


def pixels(canvas: Canvas, dots: int = 72) -> np.ndarray:
    """RGB."""
    return cv2.imdecode(np.frombuffer(canvas.png(dots, "#ffffff"), np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]


def test_boxes_are_where_they_are_and_no_part_is_outside():
    canvas = Canvas(20, 10)
    canvas.add(Box(2, 1, 4, 3, "#0000ff"), Box(18, 8, 9, 9, "#ff0000"), Box(-5, -5, 6, 6, "#00ff00"))
    image = pixels(canvas)
    assert image.shape == (10, 20, 3) and (image[1:4, 2:6] == (0, 0, 255)).all() and (image[0, 0] == (0, 255, 0)).all()
    assert (image[8:, 18:] == (255, 0, 0)).all() and (image[4:, 1:17] == 255).all()
    assert (pixels(canvas, 144)[2:8, 4:12] == (0, 0, 255)).all()


def test_a_moment_is_seen():
    canvas = Canvas(30, 30)
    canvas.add(Box(15, 10, 0, 5, "#0000ff"))
    assert (pixels(canvas)[10:15, 15] == (0, 0, 255)).all()


def test_an_area_covers_what_it_surrounds():
    canvas = Canvas(40, 20)
    steps = stepped([5, 15, 25], [10, 5])
    assert steps.tolist() == [[5, 10], [15, 10], [15, 5], [25, 5]]
    canvas.add(Area(np.concatenate([[[5, 15]], steps, [[25, 15]]]), "#000000"))
    dark = 255 - pixels(canvas)[:, :, 0].astype(int)
    assert dark.sum() / 255 == pytest.approx(10 * 5 + 10 * 10, rel=0.1) and dark[12, 6:24].min() == 255
    assert dark[6, 6:13].max() == 0 and dark[6, 17:24].min() == 255


@pytest.mark.parametrize("anchor, left, right", [("start", 50, 90), ("middle", 30, 70), ("end", 10, 50)])
def test_text_stands_on_its_line_from_its_anchor(anchor, left, right):
    canvas = Canvas(100, 40)
    canvas.add(Text("HHH", 50, 30, 18, "#000000", anchor))
    dark = pixels(canvas)[:, :, 0] < 128
    rows, columns = np.flatnonzero(dark.any(1)), np.flatnonzero(dark.any(0))
    assert rows[-1] == 29 and 11 <= len(rows) <= 15
    assert left <= columns[0] and columns[-1] <= right and columns[-1] - columns[0] > 25


def test_text_outside_the_picture_is_left_out():
    canvas = Canvas(10, 10)
    canvas.add(Text("HHH", -500, 5, 9, "#000000"), Text("HHH", 5, 500, 9, "#000000"), Text("", 5, 5, 9, "#000000"))
    assert (pixels(canvas) == 255).all()


def test_svg_is_whole_whatever_a_text_holds():
    canvas = Canvas(10, 10)
    canvas.add(Text("<b> & \x00 \ud800 é", 1, 5, 9, "#000000"), Box(0, 0, 1, 1, "#ff0000"))
    root = ET.fromstring(canvas.svg("#ffffff"))
    assert "".join(root.itertext()).strip() == "<b> & \ufffd \ufffd é"
    assert [child.tag.rpartition("}")[2] for child in root] == ["defs", "rect", "text", "rect"]


def test_what_is_too_wide_ends_in_dots():
    assert fitted("walk", 9, 100) == "walk" and fitted("walk", 9, 1) == ""
    short = fitted("a very long name of an action", 9, 60)
    assert short.endswith("…") and width_of(short, 9) <= 60 < width_of("a very long name of an action", 9)


@pytest.mark.parametrize("seconds, n", [(1e-3, 6), (3.0, 7), (100.0, 6), (7200.0, 8), (1e6, 6)])
def test_ticks_are_few_and_round(seconds, n):
    chart = begin_chart(["walk"], seconds, 400, 20, "v.mp4")
    ticks = [
        float(s.text)
        for s in chart.canvas.shapes
        if isinstance(s, Text) and s.fill == "#5a6678" and s.text[0].isdigit()
    ]
    assert len(ticks) == n and ticks[0] == 0 and ticks[-1] <= seconds
    assert chart.x(0) == chart.left and chart.x(seconds) == chart.x(seconds * 2) == chart.right


def test_what_is_outside_of_the_time_is_left_out():
    chart = begin_chart([], 0.0, 400, 20, "v.mp4")
    assert chart.seconds > 0 and chart.spans([(5, 6), (-2, -1)]) == []
    walk = begin_chart(["walk"], 10.0, 400, 20, "v.mp4")
    assert walk.spans([(9, 12)]) == [(walk.x(9), walk.right)]
