"""The HTML report of one video, the player beside a lane of scores and segments for each class; and their index."""

import base64
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import av
import numpy as np

from lstr.errors import VideoError
from lstr.extractors.video.probe import find_start
from lstr.files.atomic import write_text
from lstr.labels.segment import Segment
from lstr.pipelines.pages.page import Script, build_page, plain
from lstr.pipelines.pages.palette import CLASSES, colours_of
from lstr.pipelines.pages.proxy import is_playable, write_proxy

STYLES = ("lanes.css", "report.css")
SCRIPTS = (
    "rules.js", "verdict.js", "files.js", "scores.js", "thresholds.js", "lanes.js", "film.js", "segments.js",
    "review.js", "report.js",
)  # fmt: skip
INDEX_SCRIPTS = ("rules.js", "verdict.js", "files.js", "lanes.js", "index.js")
FULL_SCALE = 65534  # the uint16 code of probability 1; a score is off by at most one step, 1.5e-5
NO_SCORE = 65535  # the code of a chunk without a score (NaN)
AT_ONCE = 1 << 16  # scores that are encoded together: those of a camera after days are never in memory as a whole
PLACE = "@scores@"  # the last one in a page, before they come: a label may be called so
MEDIA_TYPES = {".webm": "video/webm"}
MAX_UP = 3  # folders to climb before a relative link is less likely to survive a move than an absolute one


def write_report(
    path: Path,
    timeline: Mapping[str, Any],
    scores: np.ndarray,
    *,
    video: Path | None = None,
    truth: Sequence[Segment] | None = None,
    events: Sequence[Mapping[str, Any]] = (),
    recipe: Mapping[str, Any] | None = None,
    origins: Mapping[str, str] | None = None,
    subset: str | None = None,
    index: Path | None = None,
    embed: int = 0,
) -> None:
    """Write one self-contained HTML page: the lanes of `timeline` and `scores` beside `video`.

    timeline: an lstr-timeline/1 dict; its "warnings" (list of text), if any, stand at the top of the page. Its "id", if
    any, is the video's in the labels that a person downloads; else that is PATH's stem.
    scores: float (chunks, classes), probabilities; NaN where a chunk has none.
    video: linked, or put into the page where it has at most `embed` bytes. Where browsers cannot play it, a small
    H.264 copy takes its place: PATH's stem + ".lstr-proxy.mp4", beside the page unless it is put in.
    truth: labelled segments, drawn under the detected ones.
    events: started / ended events; a segment is pale until the moment at which it was announced.
    recipe: the whole recipe of the features, to be unfolded. origins: what its networks began with, and the licence of
    that, by stream.
    subset: the one that the labels have the video in. index: the page over all videos, which this one then links.

    Raises ValueError when scores and timeline do not fit together. The page appears whole or not at all.
    """
    path = Path(path)
    scores = np.asarray(scores)
    expected = (timeline["chunks"], len(timeline["classes"]))
    if scores.shape != expected:
        raise ValueError(f"scores are {scores.shape}, the timeline has (chunks, classes) = {expected}")

    shown = find_shown(Path(video), path) if video else None
    held = shown if shown and shown.is_file() and shown.stat().st_size <= embed else None
    is_copy = shown is not None and shown != Path(video or "")
    names = [*timeline["classes"], *(segment.label for segment in truth or ())]
    document = {
        "id": timeline.get("id", path.stem),
        "timeline": timeline,
        "truth": None if truth is None else [segment.to_dict() for segment in truth],
        "events": list(events),
        "recipe": recipe,
        "origins": origins or {},
        "subset": subset,
        "index": f"./{quote(os.fsencode(os.path.relpath(index, path.parent)))}" if index else None,
        "given": _digest_of(timeline["duration"], truth),
        "video": None if held or shown is None else video_url(shown, path.parent),
        "embedded": {"type": MEDIA_TYPES.get(held.suffix.lower(), "video/mp4")} if held else None,
        "proxy": is_copy,
        "ahead": find_ahead(Path(video), shown) if video and shown else 0.0,
        "colours": colours_of(names),
        "palette": CLASSES,
        "scores": {"full_scale": FULL_SCALE, "missing": NO_SCORE, "base64": PLACE},
    }
    media = base64.b64encode(held.read_bytes()).decode("ascii") if held else ""
    script = Script(SCRIPTS, document, media)
    before, _, after = build_page(
        "app.html", "Action timeline", STYLES, script, warnings=timeline.get("warnings")
    ).rpartition(PLACE)
    write_text(path, chain([before], encoded_scores(scores), [after]))
    if held and is_copy:
        held.unlink()


def _digest_of(duration: float, truth: Sequence[Segment] | None) -> str:
    """Names the labels that a page was given: what a browser keeps of an earlier page is not mixed with others."""
    given = [duration, None if truth is None else [segment.to_dict() for segment in truth]]
    return hashlib.sha256(json.dumps(plain(given)).encode()).hexdigest()[:16]


def find_shown(video: Path, page: Path) -> Path:
    """The file that the page plays: `video`, or a copy of it for browsers; `video` too where it cannot be read."""
    try:
        return video if is_playable(video) else write_proxy(video, page.parent, page.stem)
    except (VideoError, av.error.FFmpegError, OSError, ValueError):  # the page then says that it cannot be played
        return video


def find_ahead(video: Path, shown: Path) -> float:
    """Seconds by which a player's clock is ahead where the pictures begin after the sound; a copy has none."""
    if shown != video:
        return 0.0
    try:
        return find_start(video)
    except VideoError:  # the page then says that it cannot be played
        return 0.0


def encoded_scores(scores: np.ndarray) -> Iterator[str]:
    """Scores (chunks, classes) in 0..1 as base64 of little-endian uint16, one class after the other, in pieces.

    A code is on the same side as its score of every threshold of two digits, so that the page decides as `lstr detect`.
    """
    rest = b""  # base64 writes three bytes at a time
    for column in scores.T:  # so that the page scans each curve in one run
        for start in range(0, len(column), AT_ONCE):
            codes = rest + _codes_of(column[start : start + AT_ONCE]).tobytes()
            whole = len(codes) - len(codes) % 3
            rest = codes[whole:]
            yield base64.b64encode(codes[:whole]).decode("ascii")
    yield base64.b64encode(rest).decode("ascii")


def _codes_of(scores: np.ndarray) -> np.ndarray:
    clipped = np.clip(scores, 0.0, 1.0).astype(np.float64)
    threshold = np.rint(clipped * 100) / 100  # the only one that rounding may cross
    codes = np.rint(clipped * FULL_SCALE)
    codes += (clipped >= threshold) & (codes / FULL_SCALE < threshold)
    codes -= (clipped < threshold) & (codes / FULL_SCALE >= threshold)
    return np.where(np.isnan(codes), NO_SCORE, codes).astype("<u2")


def video_url(video: Path, folder: Path) -> str:
    """The address of `video` for a page in `folder`: relative when near, so that both can move together."""
    video, folder = Path(os.path.abspath(video)), Path(os.path.abspath(folder))
    try:
        relative = Path(os.path.relpath(video, folder))
        shared = Path(os.path.commonpath([video, folder]))
    except ValueError:  # another drive
        return video.as_uri()
    climbs = relative.parts.count("..")
    if climbs > MAX_UP or (climbs and shared == Path(shared.anchor)):
        return video.as_uri()
    return quote(os.fsencode(relative.as_posix()))


def index_path(folder: Path, ids: Collection[str], name: str = "index") -> Path:
    """Where the index of the reports of some videos is: FOLDER/NAME.html, _NAME.html where a video is called NAME."""
    return Path(folder) / (f"_{name}.html" if name in ids else f"{name}.html")


def write_index(
    folder: Path,
    timelines: Mapping[str, Mapping[str, Any]],
    *,
    truth: Mapping[str, Sequence[Segment] | None] | None = None,
    subsets: Mapping[str, str] | None = None,
    failed: Sequence[str] = (),
    path: Path | None = None,
) -> Path:
    """Write the index of the reports FOLDER/ID.html; returns its path, by default `index_path` of its videos.

    timelines: video id to its lstr-timeline/1 dict, in the order to show. truth: video id to its labelled segments,
    None where it has none. subsets: video id to the subset that its labels are in. failed: a sentence for each source
    that came to nothing.

    Raises OutputError where the folder cannot be written.
    """
    classes: dict[str, int] = {}
    for timeline in timelines.values():
        for label in timeline["classes"]:
            classes.setdefault(label, len(classes))
    labelled = {video_id: segments for video_id, segments in (truth or {}).items() if segments is not None}
    for segments in labelled.values():
        for segment in segments:
            classes.setdefault(segment.label, len(classes))

    def spans(segments: Iterable[Segment]) -> list[tuple[int, float, float, float | None]]:
        return [(classes[segment.label], segment.start, segment.end, segment.score) for segment in segments]

    document = {
        "classes": list(classes),
        "colours": colours_of(classes),
        "failed": list(failed),
        "videos": [
            {
                "id": video_id,
                # a leading ./ keeps a name like javascript:x.html from being read as a scheme
                "page": f"./{quote(os.fsencode(video_id))}.html",
                "duration": timeline["duration"],
                "segments": spans(map(Segment.from_dict, timeline["segments"])),
                "truth": spans(labelled[video_id]) if video_id in labelled else None,
                "subset": (subsets or {}).get(video_id),
                "given": _digest_of(timeline["duration"], labelled.get(video_id)),
            }
            for video_id, timeline in timelines.items()
        ],
    }
    path = path or index_path(folder, timelines)
    script = Script(INDEX_SCRIPTS, document)
    warnings = sorted({text for timeline in timelines.values() for text in timeline.get("warnings") or ()})
    write_text(path, build_page("app.html", "Action timelines", ("index.css",), script, warnings=warnings))
    return path
