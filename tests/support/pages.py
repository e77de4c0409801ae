"""Parsed pages, and timelines to draw."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

HOSTILE = "</script><script>alert(1)</script><!-- {{data}} {{policy}} &amp; \u2028\u2029 \" ' `"


def make_timeline(chunks: int, classes: list[str], **more) -> dict:
    """Return a timeline with one segment and all entries of the format."""
    return {
        "format": "lstr-timeline/1",
        "source": "clips/one.mp4",
        "duration": chunks * 0.25 + 0.1,
        "checkpoint": "run/best.pt",
        "recipe": {"id": "8f3ac01d", "flow": {"algorithm": "tvl1"}},
        "classes": classes,
        "seconds_per_chunk": 0.25,
        "chunks": chunks,
        "segments": [{"label": classes[-1], "start": 0.5, "end": 1.25, "score": 0.875}],
        "gaps": [],
        "speed": {"decisions_per_second": 40.5, "latency_ms": {"p50": 18.25}},
        **more,
    }


def make_scores(chunks: int, classes: int) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.ones(classes), chunks).astype(np.float32)


class Page(HTMLParser):
    """The tags of a report, and the text of its scripts and styles."""

    def __init__(self, path: Path):
        super().__init__()
        self.tags, self.texts = [], []
        self.markup = path.read_text("utf-8")
        self.feed(self.markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.texts.append("")

    handle_startendtag = handle_starttag

    def handle_data(self, data):
        if self.cdata_elem:  # inside a script or a style
            self.texts[-1] += data

    @property
    def data(self) -> dict:
        return json.loads(self.texts[1])  # style, data, script
