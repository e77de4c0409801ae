"""Video ids: paths without an ending, relative to a folder of videos or of features, and never out of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePath

from lstr.errors import LabelsError, brief
from lstr.files.names import fault_of

NUMBER = re.compile(r"[0-9]+")
LONGEST = 255  # bytes of a file name
MOST_COMPARED = 20
"""Ids of labels that are compared with all others: where ids differ in one way, the first tells it."""
HINT = "Write it as the video's path in its folder, without the ending: part_1/video_07."

MATCH_HINT = "name each video by its path in the folder without the ending, or give the folder that holds the videos."


def check_ids(video_ids: Iterable[object], where: str) -> None:
    """Raise LabelsError, with the file `where` and the id, for one that names no file inside a folder."""
    for video_id in video_ids:
        if fault := fault_of(video_id):
            raise LabelsError(f"{where}: the video id {brief(video_id)} is {fault}.", HINT)


def mismatch_of(labelled: Collection[str], present: Collection[str]) -> str:
    """What keeps every id of labels from being one of the ids at hand, with the first of both; empty where one is."""
    if not present or any(name in present for name in labelled):
        return ""
    if not labelled:
        return "the labels name no video"
    if meant := meant_pair(labelled, present):
        return f"no label belongs to any of the videos: is {brief(meant[0])} of the labels {brief(meant[1])} at hand?"
    ids = f"the first label is of {brief(min(labelled))}, the first of {len(present)} at hand is {brief(min(present))}"
    return f"no label belongs to any of the videos: {ids}"


def meant_pair(labelled: Collection[str], present: Collection[str]) -> tuple[str, str] | None:
    """The first id of labels that one id at hand may mean: it differs a little, or has more before or after it."""
    near = {near_id(other): other for other in present}
    for name in sorted(labelled)[:MOST_COMPARED]:
        longer = [other for other in present if name in other or PurePath(other).name in name]
        if meant := near.get(near_id(name)) or (longer[0] if len(longer) == 1 else ""):
            return name, meant
    return None


def check_match(labelled: Collection[str], present: Collection[str]) -> None:
    """Raise LabelsError where no id of labels is one of the ids at hand."""
    if sentence := mismatch_of(labelled, present):
        raise LabelsError(f"{sentence[0].upper()}{sentence[1:]}.", MATCH_HINT)


def near_id(name: str) -> str:
    """What ids have in common that may mean the same: case and noughts before a number aside."""
    return NUMBER.sub(lambda number: number[0].lstrip("0") or "0", name.casefold())
