"""Changes of a labels project as its page requests them, and keys pressed on the page."""

import itertools

from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import About, Action, Change, Label, Subject

_ids = itertools.count()


def new_id() -> str:
    return f"test-{next(_ids)}"


def put(project: Project, value, video: str = "", key: str = ""):
    """Replace a value of the project; the request includes the previous value, as the page's requests do."""
    kinds = {Label: "label", About: "about", Action: "action", Subject: "subject"}
    kind = kinds[type(value)] if value is not None else "label"
    before = project.state.get(kind, video, key)
    return project.change(new_id(), [Change(kind, video, key, before, value)])


def action(project: Project, name: str, key: str = "") -> str:
    """Add an action; return its id."""
    put(project, Action(name, key, len(project.state.actions)), key=f"id of {name}")
    return f"id of {name}"


def labels_of(page) -> list[tuple]:
    """Return (action, start, end) of the page's labels in order of the start."""
    return [tuple(label) for label in page.evaluate("inOrder().map(([, l]) => [nameOf(l.action), l.start, l.end])")]
