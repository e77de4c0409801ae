"""The page that leads to the reports of several videos."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from pipelines.files.atomic import write_text
from pipelines.reports.page import build_page


def write_index(
    folder: Path,
    timelines: Mapping[str, dict],
    *,
    truth: Mapping[str, list[dict] | None] | None = None,
    failed: Sequence[str] = (),
) -> Path:
    """Write the index of the reports FOLDER/ID.html; returns its path, index.html (_index.html where an id is that).

    timelines: video id to its lstr-timeline/1 dict, in the order to show. truth: video id to its labelled segments
    {label, start, end}, None where it has none. failed: a sentence for each source that came to nothing.

    Raises OutputError where the folder cannot be written.
    """
    classes: dict[str, int] = {}
    for timeline in timelines.values():
        for label in timeline["classes"]:
            classes.setdefault(label, len(classes))
    truth = {video_id: segments for video_id, segments in (truth or {}).items() if segments is not None}
    for segments in truth.values():
        for segment in segments:
            classes.setdefault(segment["label"], len(classes))

    def spans(segments: list[dict]) -> list[tuple[int, float, float]]:
        return [(classes[segment["label"]], segment["start"], segment["end"]) for segment in segments]

    document = {
        "classes": list(classes),
        "warnings": sorted({text for timeline in timelines.values() for text in timeline.get("warnings") or ()}),
        "failed": list(failed),
        "videos": [
            {
                "id": video_id,
                # a leading ./ keeps a name like javascript:x.html from being read as a scheme
                "page": f"./{quote(os.fsencode(video_id))}.html",
                "duration": timeline["duration"],
                "segments": spans(timeline["segments"]),
                "truth": spans(truth[video_id]) if video_id in truth else None,
            }
            for video_id, timeline in timelines.items()
        ],
    }
    path = Path(folder) / ("_index.html" if "index" in timelines else "index.html")
    write_text(path, build_page("index", "Action timelines", ("index.css",), ("index.js",), document))
    return path
