"""Changes of a labels project as a page makes them, and keys pressed on the page itself."""

import itertools
import json

from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import About, Action, Change, Label, Subject, Value
from tests.support.browser import wait_for

_ids = itertools.count()


def new_id() -> str:
    return f"test-{next(_ids)}"


def put(project: Project, value: Value | None, video: str = "", key: str = ""):
    """Let a value be the one at its place, as the page does that knows what was there."""
    kinds = {Label: "label", About: "about", Action: "action", Subject: "subject"}
    kind = kinds[type(value)] if value is not None else "label"
    before = project.state.get(kind, video, key)
    return project.change(new_id(), [Change(kind, video, key, before, value)])


def action(project: Project, name: str, key: str = "") -> str:
    """Add an action; its id."""
    put(project, Action(name, key, len(project.state.actions)), key=f"id of {name}")
    return f"id of {name}"


def settled(page) -> None:
    """Nothing is on its way: no change, no picture, no drawing."""
    wait_for(page, "!asked.length && !loading && !frameAsked && shownNumber === number")


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    settled(page)


def labels_of(page) -> list[tuple]:
    """(action, start, end) by start, as the page has them."""
    return [tuple(one) for one in page.evaluate("inOrder().map(([, l]) => [nameOf(l.action), l.start, l.end])")]


def labels_after(journal: list[str]) -> dict[str, tuple[float, float]]:
    """The labels by key, from the journal's lines alone, read without our reader."""
    labels: dict[str, tuple[float, float]] = {}
    for text in journal:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        for change in line.get("changes", ()):
            if change["kind"] != "label":
                continue
            after = change["after"]
            if after is None:
                labels.pop(change["key"], None)
            else:
                labels[change["key"]] = (after["start"], after["end"])
    return labels
