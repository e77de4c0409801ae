"""The page to label in: everything in one answer, but for times, frames and films of its videos."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lstr.labels.label_set import BACKGROUND
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import ORDERS
from lstr.pipelines.labelling.values import LONGEST_COMMENT, NOTHING, RESERVED
from lstr.pipelines.pages.page import Script, build_page
from lstr.pipelines.pages.palette import CLASSES

STYLES = ("lanes.css", "report.css", "label.css", "label-proposals.css", "label-training.css")
SCRIPTS = (
    "lanes.js", "served.js", "label-project.js", "label-marks.js", "label-frames.js", "label-lanes.js",
    "label-edges.js", "label-lists.js", "label-proposals.js", "label-training.js", "label.js",
)  # fmt: skip


def build_label_page(project: Project, videos: Sequence[str]) -> str:
    """The page as the project is now; `videos` are the ids in the order in which they are addressed."""
    revision, state = project.snapshot()
    document: dict[str, Any] = {
        "videos": [{"id": video, "duration": project.durations.get(video)} for video in videos],
        "file": str(project.path),
        "project": project.id,
        "revision": revision,
        "labels": {v: {key: asdict(label) for key, label in held.items()} for v, held in state.labels.items()},
        "proposals": {v: {key: asdict(one) for key, one in held.items()} for v, held in state.proposals.items()},
        "orders": list(ORDERS),
        "abouts": {video: asdict(about) for video, about in state.abouts.items()},
        "actions": {key: asdict(action) for key, action in state.actions.items()},
        "subjects": {name: asdict(subject) for name, subject in state.subjects.items()},
        "nothing": NOTHING,
        "background": BACKGROUND,
        "reserved": sorted(RESERVED),
        "longest": LONGEST_COMMENT,
        "palette": CLASSES,
        "colours": {},
    }
    return build_page("label.html", "Labels", STYLES, Script(SCRIPTS, document, is_served=True))
