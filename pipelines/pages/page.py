"""HTML files that need no other: script, style and data inside, and a policy that lets nothing else in.

The report of a video and the index of reports are written here; other rooms build their pages by `build_page`.
"""

import base64
import hashlib
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from lstr.files.atomic import write_text
from lstr.files.names import without_credentials
from lstr.labels.segment import Segment
from lstr.pipelines.pages.palette import DETECTION, LIMBS, NEUTRALS, NO_ACTION, TRUTH, colours_of
from lstr.pipelines.pages.proxy import find_ahead, find_playable, video_url

WEB = Path(__file__).parent / "web"
SHARED_SCRIPTS = ("vendor/preact-htm.js", "page.js")
REPORT_SCRIPTS = ("rules.js", "scores.js", "thresholds.js", "lanes.js", "film.js", "segments.js", "report.js")
INDEX_SCRIPTS = ("rules.js", "lanes.js", "index.js")
# Base64 of uint16 takes 2.7 bytes per score; JSON numbers of four digits take six.
FULL_SCALE = 65534  # the uint16 code of probability 1; a score is off by at most one step, 1.5e-5
NO_SCORE = 65535  # the code of a chunk without a score (NaN)
BLOCK = 1 << 16  # scores that are encoded together, because days of a camera would not fit into memory twice
PLACEHOLDER = "@scores@"  # the last one in a page is where scores go: a label may have this name
MEDIA_TYPES = {".webm": "video/webm"}


def build_page(
    name: str,
    title: str,
    scripts: Sequence[str],
    document: Mapping[str, Any],
    *,
    media: str = "",
    is_served: bool = False,
    **values: Any,
) -> str:
    """Return a page, with a content security policy that names the hashes of its style and its script.

    Args:
        name: Its template in `web/` without the ending, if there is one; the style sheet knows the page by it.
        title: The title.
        scripts: Files of `web/`, joined into one script.
        document: The data that the script reads as `report`.
        media: An embedded video (base64).
        is_served: The page comes from a server of this machine, and may ask it for more.
        values: What the template shows.
    """
    # colours of classes come with the data
    variables = [f"  --{name}: light-dark({day}, {night});\n" for name, (day, night) in NEUTRALS.items()]
    variables.append(f"  --truth: {TRUTH};\n  --no-action: {NO_ACTION};\n  --detection: {DETECTION};\n")
    style = f"\n:root {{\n  color-scheme: light dark;\n{''.join(variables)}}}\n{read_part('look.css')}"
    script = "\n" + "".join(map(read_part, (*SHARED_SCRIPTS, *scripts)))
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (style, script)
    ]
    images = "img-src data: 'self'" if is_served else "img-src data:"
    allowed = ["connect-src 'self'", "media-src 'self'"] if is_served else ["media-src file: 'self' blob:"]
    policy = ["default-src 'none'", f"style-src {hashes[0]}", images, f"script-src {hashes[1]}", *allowed]
    return find_template(name).render(
        page=name,
        title=title,
        policy="; ".join([*policy, "base-uri 'none'", "form-action 'none'"]),
        style=style,
        data=embed_json(document),
        script=script,
        media=media,
        **values,
    )


@cache
def find_template(name: str) -> Any:
    """Return the template of a page, which is compiled once for all its pages."""
    from jinja2 import Environment, FileSystemLoader  # here: a job without a page does not wait for it

    templates = Environment(loader=FileSystemLoader(WEB), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return templates.select_template([f"{name}.html", "frame.html"])


def read_part(name: str) -> str:
    """Return the text of a file of `web/`."""
    return (WEB / name).read_text("utf-8")


def embed_json(document: Mapping[str, Any]) -> str:
    """Return JSON for a script element: no character of it can end the element or start another."""
    # ASCII output escapes U+2028, U+2029 and the lone surrogates of undecodable file names as well
    text = json.dumps(plain(document), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: numpy scalars as numbers, paths as text, NaN as null, no credentials."""
    if isinstance(value, Mapping):
        return {without_credentials(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, os.PathLike):
        value = str(value)
    return without_credentials(value) if isinstance(value, str) else value


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
    index: Path | None = None,
    embed: int = 0,
    people: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a self-contained HTML page: the lanes of a timeline and its scores next to the video.

    Args:
        path: The file. It appears whole or not at all.
        timeline: An lstr-timeline/1 dict. Its "warnings" (texts), if any, are at the top of the page; its "id" names
            downloads, by default the stem of `path`.
        scores: Probabilities (chunks, classes), NaN for a chunk without one.
        video: Linked, or embedded if it has at most `embed` bytes. If browsers cannot play it, a small H.264 copy
            replaces it: the stem of `path` + ".lstr-proxy.mp4", next to the page unless it is embedded.
        truth: Labelled segments, drawn under the detected ones.
        events: Started and ended events; a segment is pale until it was announced.
        recipe: The whole recipe of the features.
        origins: What its networks started from and the licence, by stream.
        index: The page over all videos, which this one links.
        embed: Maximum bytes of an embedded video.
        people: People to draw on the video, as of `Detection`.

    Raises:
        ValueError: Scores and timeline do not fit together.
    """
    path, scores = Path(path), np.asarray(scores)
    expected = (timeline["chunks"], len(timeline["classes"]))
    if scores.shape != expected:
        raise ValueError(f"scores are {scores.shape}, the timeline has (chunks, classes) = {expected}")
    shown = (find_playable(Path(video), path.parent, path.stem) or Path(video)) if video else None
    held = shown if shown and shown.is_file() and shown.stat().st_size <= embed else None
    is_copy = shown is not None and shown != Path(video or "")
    document = {
        "id": timeline.get("id", path.stem),
        "timeline": timeline,
        "truth": None if truth is None else [segment.to_dict() for segment in truth],
        "events": list(events),
        "people": list(people),
        "limbs": LIMBS,
        "recipe": recipe,
        "origins": origins or {},
        "index": f"./{quote(os.fsencode(os.path.relpath(index, path.parent)))}" if index else None,
        "video": None if held or shown is None else video_url(shown, path.parent),
        "embedded": {"type": MEDIA_TYPES.get(held.suffix.lower(), "video/mp4")} if held else None,
        "proxy": is_copy,
        "ahead": find_ahead(Path(video), shown) if video and shown else 0.0,
        "colours": colours_of([*timeline["classes"], *(segment.label for segment in truth or ())]),
        "scores": {"full_scale": FULL_SCALE, "missing": NO_SCORE, "base64": PLACEHOLDER},
    }
    media = base64.b64encode(held.read_bytes()).decode("ascii") if held else ""
    warnings = timeline.get("warnings")
    page = build_page("report", "Action timeline", REPORT_SCRIPTS, document, media=media, warnings=warnings)
    before, _, after = page.rpartition(PLACEHOLDER)
    write_text(path, chain([before], encode_scores(scores), [after]))
    if held and is_copy:  # its bytes are in the page
        held.unlink()


def encode_scores(scores: np.ndarray) -> Iterator[str]:
    """Yield scores (chunks, classes) in 0..1 as base64 of little-endian uint16, class by class, in pieces.

    A code is on the same side of every threshold of two digits as its score, so that the page decides as `lstr detect`.
    """
    rest = b""  # base64 encodes three bytes at a time
    for column in scores.T:  # the page scans each curve in one run
        for start in range(0, len(column), BLOCK):
            clipped = np.clip(column[start : start + BLOCK], 0.0, 1.0).astype(np.float64)
            threshold = np.rint(clipped * 100) / 100  # the only one that rounding may cross
            codes = np.rint(clipped * FULL_SCALE)
            codes += (clipped >= threshold) & (codes / FULL_SCALE < threshold)
            codes -= (clipped < threshold) & (codes / FULL_SCALE >= threshold)
            data = rest + np.where(np.isnan(codes), NO_SCORE, codes).astype("<u2").tobytes()
            whole = len(data) - len(data) % 3
            rest = data[whole:]
            yield base64.b64encode(data[:whole]).decode("ascii")
    yield base64.b64encode(rest).decode("ascii")


def index_path(folder: Path, ids: Collection[str], name: str = "index") -> Path:
    """Return the path of the index of some reports: FOLDER/NAME.html, or _NAME.html if a video is called NAME."""
    return Path(folder) / (f"_{name}.html" if name in ids else f"{name}.html")


def write_index(
    folder: Path,
    timelines: Mapping[str, Mapping[str, Any]],
    *,
    truth: Mapping[str, Sequence[Segment] | None] | None = None,
    failed: Sequence[str] = (),
    path: Path | None = None,
) -> Path:
    """Write the index of the reports FOLDER/ID.html; return its path, by default `index_path` of its videos.

    Args:
        folder: The folder of the reports.
        timelines: The lstr-timeline/1 dicts by video id, in the order to show.
        truth: Labelled segments by video id, None for a video without labels.
        failed: A sentence for each source that failed.
        path: The file.

    Raises:
        OutputError: The folder cannot be written.
    """
    labelled = {video_id: segments for video_id, segments in (truth or {}).items() if segments is not None}
    names = chain.from_iterable(timeline["classes"] for timeline in timelines.values())
    labels = (segment.label for segments in labelled.values() for segment in segments)
    classes = {label: at for at, label in enumerate(dict.fromkeys(chain(names, labels)))}

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
            }
            for video_id, timeline in timelines.items()
        ],
    }
    path = path or index_path(folder, timelines)
    warnings = sorted({text for timeline in timelines.values() for text in timeline.get("warnings") or ()})
    write_text(path, build_page("index", "Action timelines", INDEX_SCRIPTS, document, warnings=warnings))
    return path
