"""The page of a watching service: everything in one answer, but for what happens after it."""

from collections.abc import Mapping
from typing import Any

from lstr.extractors.video.zones import MOST_CORNERS, MOST_ZONES
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.reports.page import Script, build_page, read_markup
from lstr.pipelines.reports.palette import CLASSES
from lstr.pipelines.watching.score_rows import FULL_SCALE, NO_SCORE

STYLES = ("watch.css", "watch-zones.css")
SCRIPTS = (
    *("marks.js", "drawing.js", "lanes.js"),
    *("watch-sources.js", "watch-zones.js", "zone-editor.js", "watch-events.js", "watch-stream.js", "watch.js"),
)


def build_watch_page(state: Mapping[str, Any]) -> str:
    """The page of a board's state."""
    document = {
        "state": state,
        "colours": state["colours"],
        "palette": CLASSES,
        "undecidable": [BACKGROUND, AMBIGUOUS],
        "full_scale": FULL_SCALE,
        "no_score": NO_SCORE,
        "most_zones": MOST_ZONES,
        "most_corners": MOST_CORNERS,
    }
    return build_page("Watch", read_markup("watch.html"), STYLES, Script(SCRIPTS, document, is_served=True))
