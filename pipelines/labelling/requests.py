"""What a page asks about proposals: which wait, in which order, and what becomes of one."""

from collections.abc import Collection, Mapping
from typing import Any

from lstr.pipelines.labelling.orders import ORDERS
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.proposals import Decision, accepted, rejected, waiting
from lstr.pipelines.labelling.proposer import Proposer
from lstr.pipelines.labelling.values import Label, RefusedError, change_of


def proposals_in_order(project: Project, proposer: Proposer, order: str) -> dict[str, Any]:
    """The open proposals, as the places of their videos and their ids, and how far the search for more is.

    order: one of ORDERS; the first one where it is none.
    """
    places = {video: at for at, video in enumerate(proposer.videos)}
    revision, state = project.snapshot()
    chosen = ORDERS.get(order) or next(iter(ORDERS.values()))
    placed = chosen(waiting(state, places), project.durations)
    return {
        "revision": revision,
        "order": [[places[one.video], one.key] for one in placed],
        "search": proposer.searched().to_dict(),
    }


def decision_of(body: Mapping[str, Any], videos: Collection[str]) -> Decision:
    """The decision that a request is: to `accept` a proposal, with a `label` that it is corrected to, or to `reject`.

    Raises RefusedError where it is none.
    """
    deed, video, key, made = (body.get(name) for name in ("decision", "video", "key", "label_key"))
    sound = isinstance(key, str) and isinstance(made, str) and 8 <= len(made) <= 100
    if deed not in ("accept", "reject") or video not in videos or not sound:
        raise RefusedError("That is no decision.", "reload the page.")
    assert isinstance(video, str) and isinstance(key, str) and isinstance(made, str)
    if deed == "reject":
        return rejected(video, key, made)
    wanted = body.get("label")
    change = change_of({"kind": "label", "video": video, "key": made, "before": None, "after": wanted})
    return accepted(video, key, made, change.after if isinstance(change.after, Label) else None)
