"""The page that leads to the reports of several videos."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lstr.labels.segment import Segment
from lstr.pipelines.files.atomic import write_text
from lstr.pipelines.reports.page import Script, build_page, read_part
from lstr.pipelines.reports.palette import colours_of

SCRIPTS = ("rules.js", "verdict.js", "files.js", "index.js")


def write_index(
    folder: Path,
    timelines: Mapping[str, Mapping[str, Any]],
    *,
    truth: Mapping[str, Sequence[Segment] | None] | None = None,
    failed: Sequence[str] = (),
) -> Path:
    """Write the index of the reports FOLDER/ID.html; returns its path, index.html (_index.html where an id is that).

    timelines: video id to its lstr-timeline/1 dict, in the order to show. truth: video id to its labelled segments,
    None where it has none. failed: a sentence for each source that came to nothing.

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
        "warnings": sorted({text for timeline in timelines.values() for text in timeline.get("warnings") or ()}),
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
    path = Path(folder) / ("_index.html" if "index" in timelines else "index.html")
    script = Script(SCRIPTS, document)
    write_text(path, build_page("Action timelines", read_part("index.html"), ("index.css",), script))
    return path
